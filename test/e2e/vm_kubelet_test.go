//go:build vm

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

const vfContainerd = `version = 3
root = "@DIR@/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "@PAUSE@"
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["@DIR@/bin"]
  conf_dir = "@DIR@/net.d"
  use_internal_loopback = true
[plugins.'io.containerd.nri.v1.nri']
  disable = true
`

const vfKubelet = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: @DIR@/manifests
registerNode: false
address: 127.0.0.1
readOnlyPort: 10255
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
failSwapOn: false
makeIPTablesUtilChains: false
resolvConf: ""
volumePluginDir: @DIR@/volume-plugins
podLogsDir: @DIR@/logs
fileCheckFrequency: 1s
`

const vfConf = `{"cniVersion":"1.0.0","name":"cluster","plugins":[{"type":"fairlead","socket":"@DIR@/agent.sock","delegates":[
	{"cniVersion":"1.0.0","name":"main","type":"macvlan","master":"up0","ipam":{"type":"host-local","subnet":"10.1.0.0/24","dataDir":"@DIR@/leases"}}]}]}`

const vfObjects = `
apiVersion: net.fairlead.io/v1alpha1
kind: NodeVFPolicy
metadata: {name: db}
spec: {resource: fairlead.io/db, pf: [pf0], numVFs: 3}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {namespace: bank, name: db-vf, annotations: {k8s.v1.cni.cncf.io/resourceName: fairlead.io/db}}
spec: {config: '{"cniVersion":"1.0.0","type":"sriov"}'}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: db-net, labels: {net.fairlead.io/pod-network: "true"}}
data:
  mysql-0-vm: '{"interface":"net1","network":"bank/db-vf","ip":"10.9.0.17/24","mac":"02:0a:09:00:00:11","vlan":1200}'
  mysql-1-vm: '{"interface":"net1","network":"bank/db-vf","ip":"10.9.0.18/24","mac":"02:0a:09:00:00:12","vlan":1200}'
  mysql-2-vm: '{"interface":"net1","network":"bank/db-vf","ip":"10.9.0.19/24","mac":"02:0a:09:00:00:13","vlan":1300}'
`

// vfNode is a machine with the VM's card, kubelet and containerd. Pods are static: no
// API server starts in the VM in reasonable time.
type vfNode struct {
	*card

	programs string
	kubelet  *exec.Cmd
}

func newVFNode(t *testing.T) *vfNode {
	dir, err := os.MkdirTemp("/run", "vf") // the root's overlay does not keep inodes apart
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	n := &vfNode{card: &card{T: t, dir: dir}}
	n.programs, err = kube.Programs()
	require.NoError(t, err)
	for _, d := range []string{"objects", "state", "fail", "bin", "net.d", "manifests", "containerd"} {
		require.NoError(t, os.Mkdir(filepath.Join(n.dir, d), 0o755))
	}
	// Its layers lie on no other overlay, and kubelet's folder propagates its mounts.
	for _, d := range []string{filepath.Join(n.dir, "containerd"), "/var/lib/kubelet"} {
		require.NoError(t, os.MkdirAll(d, 0o755))
		n.run("mount", "-t", "tmpfs", "none", d)
		n.run("mount", "--make-rshared", d)
		t.Cleanup(func() { n.run("umount", "-R", "-l", d) })
	}
	n.write("objects/all.yaml", vfObjects)
	n.write("net.d/10-cluster.conflist", vfConf)
	n.write("containerd.toml", vfContainerd)
	n.write("kubelet.yaml", vfKubelet)
	plugin, err := os.ReadFile(filepath.Join(filepath.Dir(testbed.Program(t)), "fairlead-cni"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, "bin/fairlead"), plugin, 0o755)) //nolint:gosec // a program
	n.run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	n.run("ip", "link", "set", "up0", "up")
	t.Cleanup(func() { n.run("ip", "link", "del", "up0") })
	require.NoError(t, os.WriteFile("/sys/class/net/pf0/device/sriov_numvfs", []byte("0"), 0o600))
	t.Cleanup(func() { n.stop() })
	n.start()
	n.startContainerd()
	t.Cleanup(n.endPods)
	n.startKubelet()
	return n
}

func (n *vfNode) write(name, text string) {
	n.Helper()
	text = strings.NewReplacer("@DIR@", n.dir, "@PAUSE@", image.PauseName).Replace(text)
	require.NoError(n, os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600))
}

// daemon starts a program of Kubernetes', with its output in a file.
func (n *vfNode) daemon(name string, args ...string) *exec.Cmd {
	n.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(n, err)
	defer log.Close()
	cmd := exec.Command(filepath.Join(n.programs, name), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "PATH="+n.programs+":"+os.Getenv("PATH"))
	require.NoError(n, cmd.Start())
	n.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); n.Failed() && err == nil {
			n.Logf("%s:\n%s", name, text[max(0, len(text)-8000):])
		}
	})
	return cmd
}

func (n *vfNode) startContainerd() {
	n.daemon("containerd", "--config", n.dir+"/containerd.toml")
	ctr := func(args ...string) error {
		return exec.Command(n.programs+"/ctr", append([]string{"--namespace=k8s.io"}, args...)...).Run()
	}
	n.eventually("containerd answers", func() bool { return ctr("version") == nil })
	pause, err := image.Pause(n.programs + "/pause")
	require.NoError(n, err)
	busybox, err := image.Busybox()
	require.NoError(n, err)
	for name, tar := range map[string][]byte{"pause": pause, "busybox": busybox} {
		n.write(name+".tar", string(tar))
		require.NoError(n, ctr("images", "import", filepath.Join(n.dir, name+".tar")))
	}
}

func (n *vfNode) startKubelet() {
	n.Helper()
	n.kubelet = n.daemon("kubelet", "--config="+n.dir+"/kubelet.yaml", "--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--hostname-override=vm", "--v=2")
	n.eventually("kubelet serves", func() bool { return alive("http://127.0.0.1:10248/healthz") })
}

func (n *vfNode) eventually(what string, is func() bool) {
	n.Helper()
	require.Eventually(n, is, 3*time.Minute, 100*time.Millisecond, what)
}

// pod puts a static pod that asks for a VF into kubelet's folder.
func (n *vfNode) pod(name string) {
	n.write("manifests/"+name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: bank, name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: %q, imagePullPolicy: Never, command: [sleep, "100000"], resources: {limits: {fairlead.io/db: 1}}}]
`, name, image.BusyboxName))
}

// pods are those of kubelet, each by what it is as long as nothing happens to it.
func (n *vfNode) pods() (out []string) {
	r, err := http.Get("http://127.0.0.1:10255/pods") //nolint:noctx // of the test's own
	if err != nil {
		return nil
	}
	defer func() { _ = r.Body.Close() }()
	var list corev1.PodList
	if raw, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	for _, p := range list.Items {
		text := fmt.Sprint(p.Name, " ", p.Status.Phase)
		for _, c := range p.Status.ContainerStatuses {
			text += fmt.Sprint(" ", c.ContainerID, " ", c.RestartCount)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// kubeletKnows asks kubelet which places pods have, and how many there are to have.
func (n *vfNode) kubeletKnows() (given map[string]string, count int) {
	conn, err := grpc.NewClient("unix:///var/lib/kubelet/pod-resources/kubelet.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(n, err)
	defer func() { _ = conn.Close() }()
	ctx, stop := context.WithTimeout(n.Context(), 10*time.Second)
	defer stop()
	c, given := podresources.NewPodResourcesListerClient(conn), map[string]string{}
	all, err := c.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, -1
	}
	for _, d := range all.GetDevices() {
		if d.GetResourceName() == "fairlead.io/db" {
			count += len(d.GetDeviceIds())
		}
	}
	pods, err := c.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, -1
	}
	for _, p := range pods.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				given[p.GetName()] = strings.Join(d.GetDeviceIds(), ",")
			}
		}
	}
	return given, count
}

func (n *vfNode) knows(pods, count int) {
	n.Helper()
	n.eventually(fmt.Sprintf("%d pods have places, of %d", pods, count), func() bool {
		given, all := n.kubeletKnows()
		return len(given) == pods && all == count
	})
}

// inside is the namespace of the pod that has an address on net1.
func (n *vfNode) inside(addr string) string {
	all, _ := filepath.Glob("/run/netns/cni-*")
	for _, path := range all {
		out, err := exec.Command("ip", "-n", filepath.Base(path), "-o", "addr", "show", "dev", "net1").CombinedOutput()
		if err == nil && strings.Contains(string(out), addr) {
			return filepath.Base(path)
		}
	}
	return ""
}

func (n *vfNode) pings() bool {
	ns := n.inside("10.9.0.17/24")
	return ns != "" && exec.Command("ip", "netns", "exec", ns, "ping", "-n", "-c", "1", "-w", "3", "10.9.0.18").Run() == nil
}

// endPods ends all pods through kubelet.
func (n *vfNode) endPods() {
	all, _ := filepath.Glob(n.dir + "/manifests/*")
	for _, f := range all {
		_ = os.Remove(f)
	}
	n.eventually("pods end", func() bool { left, _ := filepath.Glob("/run/netns/cni-*"); return len(left) == 0 })
}

// TestKernelKubeletVFs: a policy's functions are made and told to a real kubelet; a static
// pod that asks for one of them, and for no network, gets it with what a ConfigMap declares
// of its name. Kubelet and agent restart, and pods and counts stay.
func TestKernelKubeletVFs(t *testing.T) {
	n := newVFNode(t)
	n.knows(0, 3)
	n.pod("mysql-0")
	n.pod("mysql-1")
	n.knows(2, 3)
	n.eventually("pods run and reach each other", n.pings)
	running := func() bool {
		pods := n.pods()
		return len(pods) == 2 && strings.HasPrefix(pods[0], "mysql-0-vm Running") && strings.HasPrefix(pods[1], "mysql-1-vm Running")
	}
	n.eventually("pods run", running)
	require.Regexp(t, `02:0a:09:00:00:11.* vlan 1200`, n.run("ip", "link", "show", "dev", "pf0"))
	pods := n.pods()
	given, _ := n.kubeletKnows()
	rounds := 3
	if soak() {
		rounds = 20
	}
	for round := range rounds {
		require.NoError(t, n.kubelet.Process.Kill())
		_ = n.kubelet.Wait()
		n.startKubelet()
		n.knows(2, 3)
		n.eventually("kubelet sees the pods", func() bool { return slices.Equal(pods, n.pods()) })
		n.stop()
		n.start()
		n.knows(2, 3)
		require.Equal(t, pods, n.pods(), "round %d", round)
		now, _ := n.kubeletKnows()
		require.Equal(t, given, now)
		require.True(t, n.pings())
		t.Logf("round %d: nothing has changed", round)
	}
	n.pod("mysql-2") // the last one is free, and is what it should be
	n.knows(3, 3)
	n.eventually("the third pod runs", func() bool { return n.inside("10.9.0.19/24") != "" })
	n.endPods()
	n.knows(0, 3)
	n.eventually("the functions are clean", func() bool {
		left, err := os.ReadDir("/run/fairlead/vf")
		return err == nil && len(left) == 0
	})
	require.NotContains(t, n.run("ip", "link", "show", "dev", "pf0"), "vlan")
}
