package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// Row 14: what the program that runs a node's pods keeps in memory, with as many
// pods from a folder, on the same containerd.

const (
	residents = 50
	// startLimit bounds the wait for all of them.
	startLimit = 4 * patience
)

// manifest is a pod of one container, which waits for its end.
func manifest(i int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: p%d, namespace: bench, labels: {app: bench}}
spec: {containers: [{name: c, image: %q, imagePullPolicy: IfNotPresent}]}
`, i, image.PauseName)
}

// manifests fills a folder of the node with pods.
func manifests(n *node, count int) (string, error) {
	dir := filepath.Join(n.dir, "pods")
	err := os.MkdirAll(dir, 0o755)
	for i := range count {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("p%d.yaml", i)), []byte(manifest(i)), 0o600))
	}
	return dir, err
}

// keeper is a program that runs pods on a node.
type keeper struct {
	engine *engine
	daemon *daemon
}

// fairleadUp is `fairlead up` on containerd, with Open vSwitch.
func (b *bench) fairleadUp(pods int) (*keeper, error) {
	n, err := b.newNode(0)
	if err != nil {
		return nil, err
	}
	plugins := filepath.Join(n.dir, "plugins") // it puts its plugin there
	e, err := b.containerd(n, plugins, "", "")
	if err != nil {
		return nil, err
	}
	k, err := b.startUp(e, plugins, pods)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fairlead up: %w", err), e.close())
	}
	return k, nil
}

func (b *bench) startUp(e *engine, plugins string, pods int) (*keeper, error) {
	n := e.node
	err := n.startOVS()
	for _, argv := range []string{"ip link add up0 type veth peer name up1", "ip link set up0 up", "ip link set up1 up"} {
		err = errors.Join(err, n.command(strings.Fields(argv)...))
	}
	dir, err2 := manifests(n, pods)
	err = errors.Join(err, err2, os.WriteFile(filepath.Join(dir, "subnet.yaml"), []byte(portsSubnet), 0o600))
	if err != nil {
		return nil, err
	}
	d, err := e.start("fairlead-up", b.bin("fairlead"), "up", "--dir="+dir, "--runtime=unix://"+containerdSocket, "--node-name=bench", "--iface=up0",
		"--cgroup-root="+e.cgroups.Name, "--cni-conf-dir="+filepath.Join(n.dir, "net.d"), "--cni-bin-dir="+plugins)
	if err != nil {
		return nil, err
	}
	return &keeper{e, d}, e.connect(containerdSocket, d)
}

// kubeletConfig is for a kubelet that knows of no API server; the rest is
// default, or lets the machine be as it is.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: "@PODS@"
address: 127.0.0.1
readOnlyPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: "@CGROUP@"
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
failSwapOn: false
oomScoreAdj: 0
makeIPTablesUtilChains: false
protectKernelDefaults: false
resolvConf: ""
volumePluginDir: /var/lib/kubelet/volume-plugins
`

// kubeletWants are the machine-wide sysctls that kubelet sets unless they are
// what it wants: on the node it finds them so.
var kubeletWants = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// kubelet is the peer: standalone, its pods on a bridge, by programs that leave
// nothing in memory.
func (b *bench) kubelet(pods int) (*keeper, error) {
	n, err := b.newNode(0)
	if err != nil {
		return nil, err
	}
	e, err := b.containerd(n, b.tool(""), portmapList, "")
	if err != nil {
		return nil, err
	}
	k, err := b.startKubelet(e, pods)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kubelet: %w", err), e.close())
	}
	return k, nil
}

func (b *bench) startKubelet(e *engine, pods int) (*keeper, error) {
	n := e.node
	dir, err := manifests(n, pods)
	config := filepath.Join(n.dir, "kubelet.yaml")
	text := strings.NewReplacer("@PODS@", dir, "@CGROUP@", e.cgroups.Name).Replace(kubeletConfig)
	err = errors.Join(err, os.WriteFile(config, []byte(text), 0o600), n.command("ip", "addr", "add", "192.0.2.1/32", "dev", "lo"))
	for name, value := range kubeletWants {
		file := filepath.Join(n.dir, strings.ReplaceAll(name, "/", "."))
		err = errors.Join(err, os.WriteFile(file, []byte(value+"\n"), 0o600), n.command("mount", "--bind", file, "/proc/sys/"+name))
	}
	if err != nil {
		return nil, err
	}
	d, err := e.start("kubelet", b.peer("kubelet"), "--config="+config, "--container-runtime-endpoint=unix://"+containerdSocket,
		"--hostname-override=bench", "--node-ip=192.0.2.1", "--cert-dir=/var/lib/kubelet/pki", "--v=0")
	return &keeper{e, d}, err
}

// await waits until all pods' containers run.
func (k *keeper) await(pods int) error {
	running := &cri.ContainerFilter{State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}
	return k.daemon.awaitWithin(startLimit, func() error {
		time.Sleep(200 * time.Millisecond) // each look costs the runtime something
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		list, err := k.engine.ListContainers(ctx, &cri.ListContainersRequest{Filter: running})
		if err == nil && len(list.GetContainers()) < pods {
			err = fmt.Errorf("%d of %d containers run: %s", len(list.GetContainers()), pods, tail(k.daemon.log))
		}
		return err
	})
}

// memoryRow is row 14. Both sides run at the same time and are looked at in turns.
func memoryRow(b *bench) (lines []line, err error) {
	pods, looks, rest := residents, 10, 10*time.Second
	if b.quick {
		pods, looks, rest = 5, 2, 2*time.Second
	}
	if _, err := os.Stat(b.peer("kubelet")); err != nil {
		return nil, fmt.Errorf("build first (make bench): %w", err)
	}
	var sides []*keeper
	defer func() {
		for _, k := range sides {
			err = errors.Join(err, k.engine.close())
		}
	}()
	for _, start := range []func(int) (*keeper, error){b.fairleadUp, b.kubelet} {
		k, err := start(pods)
		if err != nil {
			return nil, err
		}
		sides = append(sides, k)
	}
	for _, k := range sides {
		if err := k.await(pods); err != nil {
			return nil, err
		}
	}
	time.Sleep(rest)
	ours, peer, ratio, err := compareMemory(sides[0], sides[1], looks)
	if err != nil {
		return nil, err
	}
	if err := b.noteMemory(sides[0].engine.node); err != nil {
		return nil, err
	}
	return []line{{row: "14", what: "RSS of fairlead up / kubelet standalone", load: fmt.Sprintf("%d pods on containerd", pods),
		ours: ours, peer: peer, got: ratio, unit: " x", bound: atMost(0.7, 0.7)}}, nil
}

// compareMemory takes the medians of looks in turns, one a second, and of their
// ratios.
func compareMemory(a, b *keeper, looks int) (ours, peer string, ratio float64, err error) {
	var each [2][]memory
	var ratios []float64
	for range looks {
		time.Sleep(time.Second)
		for i, k := range []*keeper{a, b} {
			m, err := memoryOf(k.daemon.pid())
			if err != nil {
				return "", "", 0, err
			}
			each[i] = append(each[i], m)
		}
		ratios = append(ratios, each[0][len(ratios)].rss/each[1][len(ratios)].rss)
	}
	return middle(each[0]), middle(each[1]), median(ratios), nil
}

// middle shows the medians of looks.
func middle(looks []memory) string {
	var rss, own []float64
	for _, m := range looks {
		rss, own = append(rss, m.rss), append(own, m.own)
	}
	return fmt.Sprintf("%.1f MB (anonymous %.1f)", median(rss), median(own))
}

// noteMemory tells of what is not in our figure.
func (b *bench) noteMemory(ours *node) error {
	var sum float64
	for _, d := range ours.living() {
		if !strings.HasPrefix(d.name, "ovs") {
			continue
		}
		m, err := memoryOf(d.pid())
		if err != nil {
			return err
		}
		sum += m.rss
	}
	b.note("row 14: kubelet %s, a program of its own; Open vSwitch, which the peer's bridge does without, has %.1f MB beside ours",
		version(b.peer("kubelet"), "k8s.io/kubernetes"), sum)
	return nil
}
