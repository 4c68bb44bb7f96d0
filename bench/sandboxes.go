package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Confs by which runtimes call plugins. Ours serves the ports itself.
const (
	oursList = `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead",
"capabilities":{"portMappings":true,"io.kubernetes.cri.pod-annotations":true}}]}`
	portmapList = `{"cniVersion":"1.1.0","name":"bench","plugins":[
{"type":"bridge","bridge":"cni0","mtu":1400,"isGateway":true,"ipMasq":true,"ipam":` + ipamConf + `},
{"type":"portmap","snat":true,"capabilities":{"portMappings":true}}]}`
	// plainList is the least that a bridge can do: no masquerade, no ports.
	plainList = `{"cniVersion":"1.1.0","name":"plain","plugins":[
{"type":"bridge","bridge":"cni1","mtu":1400,"isGateway":true,"ipMasq":false,
"ipam":{"type":"host-local","ranges":[[{"subnet":"10.22.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`
)

// A plugin that does nothing: pods have a network namespace, and only lo in it.
const (
	emptyList   = `{"cniVersion":"1.1.0","name":"empty","plugins":[{"type":"empty"}]}`
	emptyPlugin = `#!/bin/sh
case $CNI_COMMAND in
ADD) echo '{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"'"$CNI_NETNS"'"}],"ips":[{"address":"192.0.2.2/24","interface":0}]}' ;;
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}' ;;
esac
`
)

// sandboxes is a side whose ADD is RunPodSandbox, and whose DEL is
// StopPodSandbox and RemovePodSandbox.
type sandboxes struct {
	engine  *engine
	host    bool   // the node's network
	ports   bool   // as many host ports as in row 3
	handler string // of the runtime, "" for the default
	settle  func() error
	counted *http.Client // where containerd's metrics are asked, or nil
	ids     *sync.Map    // sandboxes by pod
}

func (s *sandboxes) Node() *node { return s.engine.node }

func (s *sandboxes) Settle() error {
	if s.settle == nil {
		return nil
	}
	return s.settle()
}

func (s *sandboxes) Call(w *worker, command string, p *pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if command == "DEL" {
		return s.remove(ctx, p)
	}
	if s.counted == nil || s.host {
		return s.add(ctx, p)
	}
	before, err := s.networkTime(w)
	if err == nil {
		err = s.add(ctx, p)
	}
	if err != nil {
		return err
	}
	after, err := s.networkTime(w)
	if err == nil && after <= before {
		err = errors.New("containerd's metrics do not tell of the pod's network")
	}
	w.part = append(w.part, after-before)
	return err
}

func (s *sandboxes) add(ctx context.Context, p *pod) error {
	made, err := s.engine.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: s.config(p), RuntimeHandler: s.handler})
	if err == nil {
		s.ids.Store(p, made.GetPodSandboxId())
	}
	return err
}

// config is what kubelet asks for a pod without anything special.
func (s *sandboxes) config(p *pod) *cri.PodSandboxConfig {
	namespaces := &cri.NamespaceOption{Network: cri.NamespaceMode_POD, Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_POD}
	uid := "00000000-0000-4000-8000-0000" + p.container[:8]
	c := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: p.name, Namespace: benchNS, Uid: uid},
		Hostname: p.name, Labels: map[string]string{"io.kubernetes.pod.uid": uid},
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: s.engine.cgroups.Name, SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
	}
	if s.host {
		namespaces.Network, c.Hostname = cri.NamespaceMode_NODE, ""
	}
	for i := range portsEach {
		if s.ports {
			protocol := []cri.Protocol{cri.Protocol_TCP, cri.Protocol_UDP}[i%2]
			c.PortMappings = append(c.PortMappings, &cri.PortMapping{Protocol: protocol, ContainerPort: int32(80 + i), HostPort: int32(20000 + p.index*portsEach + i)})
		}
	}
	return c
}

func (s *sandboxes) remove(ctx context.Context, p *pod) error {
	id, ok := s.ids.LoadAndDelete(p)
	if !ok {
		return fmt.Errorf("%s has no sandbox", p.name)
	}
	_, err := s.engine.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id.(string)})
	if err == nil {
		_, err = s.engine.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id.(string)})
	}
	return err
}

// networkTime is the sum of what containerd has waited for CNI ADD so far: the
// difference around one RunPodSandbox is that of one pod, exactly.
func (s *sandboxes) networkTime(w *worker) (sum time.Duration, err error) {
	begun := time.Now()
	defer func() { w.aside += time.Since(begun) }()
	resp, err := s.counted.Get("http://" + containerdMetrics + "/v1/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	const name = `containerd_cri_network_plugin_operations_duration_seconds_seconds_sum{operation_type="set_up_pod"} `
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name); ok {
			seconds, failed := strconv.ParseFloat(value, 64)
			sum, err = time.Duration(seconds*float64(time.Second)), failed
		}
	}
	return sum, errors.Join(err, lines.Err()) // before the first pod there is none
}

// plugins is a folder with our plugin by its usual name, and with the empty one.
func (f *fairlead) plugins() (string, error) {
	dir := filepath.Join(f.node.dir, "plugins")
	return dir, errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(f.path, filepath.Join(dir, "fairlead")),
		os.WriteFile(filepath.Join(dir, "empty"), []byte(emptyPlugin), 0o700))
}

// name gives a node pods that a runtime makes.
func (n *node) name(count int) {
	for i := len(n.pods); i < count; i++ {
		n.pods = append(n.pods, &pod{index: i, name: fmt.Sprintf("pod-%d", i)})
	}
}

// sandboxPods is how many pods a run of rows 12 and 13 has, one at a time.
func (b *bench) sandboxPods(count int) int {
	if b.quick {
		return 3
	}
	return count
}

// runtimeOurs is our side: agent, Open vSwitch, and a runtime that calls our
// plugin.
func (b *bench) runtimeOurs(start func(n *node, plugins string) (*engine, error)) (*fairlead, *engine, error) {
	f, err := b.ours(0, portsSubnet, "/var/lib/fairlead")
	if err != nil {
		return nil, nil, err
	}
	f.node.name(mostPods)
	dir, err := f.plugins()
	if err != nil {
		return nil, nil, errors.Join(err, f.node.close())
	}
	e, err := start(f.node, dir)
	return f, e, err
}

// containerdRow is row 12, and row 13 for containerd.
func containerdRow(b *bench) (lines []line, err error) {
	f, ours, err := b.runtimeOurs(func(n *node, plugins string) (*engine, error) { return b.containerd(n, plugins, oursList, emptyList) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	n, err := b.newNode(0)
	if err != nil {
		return nil, err
	}
	n.name(mostPods)
	peer, err := b.containerd(n, b.tool(""), portmapList, plainList)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.close()) }()
	b.note("rows 12, 13: containerd %s, %s", version(b.kube("containerd"), "github.com/containerd/containerd/v2"), runcVersion(n))
	of := func(e *engine, s sandboxes) *sandboxes {
		s.engine, s.ids, s.counted = e, &sync.Map{}, e.node.client("")
		if e == ours {
			s.settle = f.settle
		}
		return &s
	}
	none := contest{load: "1 par, 0 host ports", floor: 4, metrics: zeroPortMetrics(), sides: []side{
		of(ours, sandboxes{}), of(peer, sandboxes{}), of(peer, sandboxes{handler: plainHandler}),
		of(ours, sandboxes{host: true}), of(ours, sandboxes{handler: plainHandler}),
	}}
	three := contest{load: "1 par, 3 host ports", sides: []side{of(ours, sandboxes{ports: true}), of(peer, sandboxes{ports: true})},
		metrics: against(1, []metric{networkPart("network part of RunPodSandbox / bridge ipMasq + portmap", atLeast(8, 8))})}
	for _, c := range []contest{none, three} {
		c.pods = b.sandboxPods(6)
		got, err := b.sandboxContest(c)
		if err != nil {
			return lines, err
		}
		lines = append(lines, got...)
	}
	return lines, nil
}

// zeroPortMetrics are of the sides ours, bridge and portmap, bridge alone, the
// node's network, none.
func zeroPortMetrics() []metric {
	peer := against(1, []metric{networkPart("network part of RunPodSandbox / bridge ipMasq + portmap", atLeast(3.5, 3.5))})
	plain := against(2, []metric{networkPart("network part of RunPodSandbox / bridge + host-local alone, no masquerade", bound{})})
	return slices.Concat(peer, plain, wholeSandbox("containerd", 3, 4))
}

// networkPart is what a runtime waits for CNI ADD.
func networkPart(what string, b bound) metric {
	return metric{row: "12", what: what + ", p50 (p99)", bound: b,
		value: func(s sample) float64 { return quantile(s.add.part, 0.5) },
		show: func(s sample) string {
			return fmt.Sprintf("%.1f (%.1f) ms", quantile(s.add.part, 0.5), quantile(s.add.part, 0.99))
		}}
}

// wholeSandbox compares with pods that have a network namespace and nothing in
// it, which is the engine without network, and tells how pods of the node's
// network compare, for which an engine has less to do: the floor there is what an
// empty namespace costs.
func wholeSandbox(engine string, host, empty int) []metric {
	what := "whole RunPodSandbox, " + engine + ": our network / "
	judged := addTime("13", what+"none, an empty namespace", atMost(1.2, 1.2))
	judged.peer = empty
	told := addTime("13", what+"the node's", bound{})
	told.peer, told.floor = host, true
	both := []metric{judged, told}
	for i := range both {
		both[i].above = true
	}
	return both
}

// sandboxContest runs a contest, after the bridges are there, which stay.
func (b *bench) sandboxContest(c contest) ([]line, error) {
	for _, s := range c.sides {
		pods := pick(s, 1)
		s.Node().renew(pods)
		for _, command := range []string{"ADD", "DEL"} {
			if _, err := batch(s, command, pods, 1); err != nil {
				return nil, err
			}
		}
	}
	c.par, c.delPar, c.rounds = 1, c.pods, b.rounds
	return c.run()
}

// dockerRow is row 13 for `fairlead cri`.
func dockerRow(b *bench) (lines []line, err error) {
	f, ours, err := b.runtimeOurs(func(n *node, plugins string) (*engine, error) { return b.docker(n, plugins, oursList) })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.close()) }()
	empty, err := b.emptied(ours, filepath.Join(f.node.dir, "plugins"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, empty.conn.Close()) }()
	b.note("row 13: %s", dockerVersion(f.node))
	ids := &sync.Map{}
	return b.sandboxContest(contest{load: "1 par, 0 host ports", pods: b.sandboxPods(5), floor: 2,
		metrics: wholeSandbox("fairlead cri over Docker", 1, 2), sides: []side{
			&sandboxes{engine: ours, settle: f.settle, ids: ids},
			&sandboxes{engine: ours, settle: f.settle, ids: ids, host: true},
			&sandboxes{engine: empty, settle: f.settle, ids: ids},
		}})
}

// runcVersion is what the program says of itself.
func runcVersion(n *node) string {
	out, err := n.output("runc", "--version")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(out, "\n")
	return first
}
