package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// shimNode is a machine with `fairlead cri` over Docker, and the world outside.
type shimNode struct {
	*docker.CRI
	t      *testing.T
	n      *testbed.Node
	out    *testbed.Outside
	engine *docker.Engine
}

func newShimNode(t *testing.T, flags ...string) *shimNode {
	t.Helper()
	n := testbed.Bare(t)
	s := &shimNode{t: t, n: n, out: n.Outside()}
	s.engine = docker.Start(t, n)
	s.CRI = s.engine.StartCRI(flags...)
	return s
}

// sandbox is the configuration of one whose name is free.
func (s *shimNode) sandbox(name string, notes map[string]string, ports ...*cri.PortMapping) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name}, Hostname: name,
		LogDirectory: filepath.Join(s.n.Dir, "log", name), Annotations: notes, PortMappings: ports,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: s.engine.Cgroup + "/pod-" + name},
	}
}

// run starts a pod with one container that serves its name, and gives the
// sandbox's id, the container's id and its addresses.
func (s *shimNode) run(config *cri.PodSandboxConfig) (sandbox, container string, ips []string) {
	s.t.Helper()
	r, err := s.RunPodSandbox(s.t.Context(), &cri.RunPodSandboxRequest{Config: config})
	require.NoError(s.t, err)
	c, err := s.CreateContainer(s.t.Context(), &cri.CreateContainerRequest{
		PodSandboxId: r.PodSandboxId, SandboxConfig: config, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: docker.Busybox}, LogPath: "main.log",
			Command: []string{"sh", "-c", "mkdir -p /tmp/www && hostname >/tmp/www/index.html && exec httpd -f -p 80 -h /tmp/www"},
		},
	})
	require.NoError(s.t, err)
	_, err = s.StartContainer(s.t.Context(), &cri.StartContainerRequest{ContainerId: c.ContainerId})
	require.NoError(s.t, err)
	return r.PodSandboxId, c.ContainerId, s.addresses(r.PodSandboxId)
}

func (s *shimNode) addresses(sandbox string) []string {
	s.t.Helper()
	st, err := s.PodSandboxStatus(s.t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: sandbox})
	require.NoError(s.t, err)
	ips := []string{st.Status.Network.Ip}
	for _, ip := range st.Status.Network.AdditionalIps {
		ips = append(ips, ip.Ip)
	}
	return ips
}

func (s *shimNode) remove(sandbox string) {
	s.t.Helper()
	_, err := s.RemovePodSandbox(s.t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: sandbox})
	require.NoError(s.t, err)
}

// within runs a command in a container.
type within struct {
	s  *shimNode
	id string
}

func (w within) Try(argv ...string) (string, error) {
	r, err := w.s.ExecSync(w.s.t.Context(), &cri.ExecSyncRequest{ContainerId: w.id, Cmd: argv, Timeout: 30})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", r.ExitCode, r.Stderr)
	}
	return string(r.GetStdout()), err
}

// page is what the container gets from a web server.
func (w within) page(addr string, port int) string {
	got, _ := w.Try("wget", "-q", "-O", "-", "http://"+net.JoinHostPort(addr, strconv.Itoa(port))+"/")
	return strings.TrimSpace(got)
}

// fetches wants a page, sooner or later: a server takes its time to start.
func fetches(t *testing.T, who, want string, page func() string) {
	t.Helper()
	eventually(t, func() string {
		if got := page(); got != want {
			return fmt.Sprintf("%s gets %q", who, got)
		}
		return ""
	})
}

// records are what the network plugin keeps on disk.
func (s *shimNode) records(plugin string) []string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Root, plugin, "pods"))
	require.NoError(s.t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func kubenetFlags(more ...string) []string {
	return append([]string{
		"--network-plugin=kubenet", "--pod-cidr=10.244.3.0/24,fd00:244:3::/64", "--non-masquerade-cidr=10.0.0.0/8,fd00::/8",
	}, more...)
}

// TestNetpluginKubenetOverDocker: without CNI plugin, configuration or agent, pods
// of Docker have addresses of both families, reach each other and the world,
// serve ports of the node, and have their rates. All of it outlives the shim.
func TestNetpluginKubenetOverDocker(t *testing.T) {
	t.Parallel()
	metrics := "http://127.0.0.1:10666/metrics"
	s := newShimNode(t, kubenetFlags("--http=127.0.0.1:10666")...)
	first, _, _ := s.run(s.sandbox("first", nil))
	s.remove(first)
	before := s.n.Inventory()

	web, _, webIPs := s.run(s.sandbox("web", map[string]string{
		"kubernetes.io/ingress-bandwidth": "20M", "kubernetes.io/egress-bandwidth": "10M",
	}, &cri.PortMapping{HostPort: 8080, ContainerPort: 80}))
	other, main, otherIPs := s.run(s.sandbox("other", nil))
	require.Len(t, webIPs, 2)
	require.Len(t, otherIPs, 2)
	both := func() {
		t.Helper()
		in := within{s, main}
		for _, ip := range webIPs {
			fetches(t, "the other pod from "+ip, "web", func() string { return in.page(ip, 80) })
		}
		fetches(t, "the other pod by the node's port", "web", func() string { return in.page(testbed.NodeIP4, 8080) })
		for _, ip := range []string{testbed.NodeIP4, testbed.NodeIP6} {
			fetches(t, "the world from "+ip, "web", func() string { return page(s.out, ip, 8080) })
		}
		fetches(t, "the node", "web", func() string { return page(s.n, "127.0.0.1", 8080) })
		_, err := in.Try("ping", "-c", "1", "-w", "10", testbed.WorldIP4)
		require.NoError(t, err, "the world answers only who is masqueraded")
	}
	both()
	shaped := s.n.Run("tc", "qdisc", "show")
	require.Regexp(t, `tbf .*dev veth\w+ root .*rate 20Mbit`, shaped)
	require.Regexp(t, `tbf .*dev flifb\w+ root .*rate 10Mbit`, shaped)
	counted := s.n.Run("busybox", "wget", "-q", "-O", "-", metrics)
	require.Contains(t, counted, `fairlead_network_plugin_operations_total{operation_type="set_up_pod"} 3`)
	require.Contains(t, counted, `fairlead_network_plugin_operations_duration_seconds_count{operation_type="tear_down_pod"}`)
	st, err := s.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: web, Verbose: true})
	require.NoError(t, err)
	require.Contains(t, st.Info["info"], `"networkCheck":"ok"`)

	s.Kill()
	fetches(t, "the world without the shim", "web", func() string { return page(s.out, testbed.NodeIP4, 8080) })
	s.Run()
	require.Equal(t, webIPs, s.addresses(web))
	both()
	s.remove(web)
	s.remove(other)
	s.n.RequireNoLeaks(before)
	require.Empty(t, s.records("kubenet"))
}

// TestNetpluginKubenetCrashes kills the shim at its crash points (see sample), on
// the way up and down, of a pod with host port and rates. The next one takes back
// what was begun, and the pod comes at the second attempt.
func TestNetpluginKubenetCrashes(t *testing.T) {
	t.Parallel()
	s := newShimNode(t, kubenetFlags()...)
	notes := map[string]string{"kubernetes.io/egress-bandwidth": "10M"}
	port := &cri.PortMapping{HostPort: 8080, ContainerPort: 80}
	up := func(name string) (string, error) {
		r, err := s.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: s.sandbox(name, notes, port)})
		return r.GetPodSandboxId(), err
	}
	id, err := up("first")
	require.NoError(t, err)
	s.remove(id)
	points := slices.Compact(slices.Sorted(slices.Values(s.n.CrashTrace())))
	require.Subset(t, points, []string{
		"kubenet.recorded", "bridge.linked", "hostlocal.reserved", "kubenet.attached", "shaper.ifb", "kubenet.shaped",
		"hostport.opened", "kubenet.closed", "hostport.closed", "kubenet.detached",
	})
	before := s.n.Inventory()
	for i, point := range sample(points) {
		name := fmt.Sprint("web", i)
		s.n.Crash(point)
		id, err := up(name)
		if err == nil { // a point of the way down
			_, err = s.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: id})
		}
		require.Error(t, err, "the crash at %s did not happen", point)
		<-s.Done()
		s.n.Crash("")
		s.Run()
		if id == "" {
			require.Empty(t, s.records("kubenet"), "after a crash at %s", point)
			id, err = up(name)
			require.NoError(t, err, "after a crash at %s", point)
		}
		s.remove(id)
		require.Empty(t, strings.Join(s.n.Leaks(before), "\n"), "after a crash at %s", point)
		require.Empty(t, s.records("kubenet"), "after a crash at %s", point)
	}
}

// TestNetpluginCollectsFromTheAgent: what the agent has for a sandbox that Docker
// does not know is given back when the shim starts (CNI's GC); what belongs to
// sandboxes, and what was attached by hand, stays.
func TestNetpluginCollectsFromTheAgent(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	agent := n.Agent()
	agent.WaitReady()
	s := &shimNode{t: t, n: n}
	s.engine = docker.Start(t, n)
	const conf = `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`
	require.NoError(t, os.WriteFile(filepath.Join(n.Dir, "disk/etc/cni/net.d/10-fairlead.conflist"), []byte(conf), 0o600))
	s.CRI = s.engine.StartCRI()
	before := n.Inventory()
	sandbox, _, ips := s.run(s.sandbox("web", nil))
	lost := n.NewPod("lost")
	lost.CNI("ADD", `{"cniVersion":"1.1.0","name":"fairlead","type":"fairlead"}`).Must()
	byHand := n.NewPod("by-hand")
	n.Fairlead("attach", "--netns", byHand.Netns(), "--pod", "default/by-hand")
	s.Kill()
	s.Run()
	eventually(t, func() string {
		if pods := n.Fairlead("get", "pods", "-A"); strings.Contains(pods, "lost") {
			return pods
		}
		return ""
	})
	pods := n.Fairlead("get", "pods", "-A")
	require.Contains(t, pods, "by-hand")
	require.Contains(t, pods, "web")
	require.Equal(t, ips, s.addresses(sandbox))
	lost.Delete()
	n.Fairlead("detach", "--netns", byHand.Netns(), "--pod", "default/by-hand")
	byHand.Delete()
	s.remove(sandbox)
	n.RequireNoLeaks(before)
	agent.Stop()
}

// TestNetpluginFlags: a wrong flag is told before anything is touched.
func TestNetpluginFlags(t *testing.T) {
	t.Parallel()
	n := testbed.Bare(t)
	for flags, want := range map[string]string{
		"--network-plugin=nonsense":                         "there are kubernetes.io/no-op, cni, kubenet",
		"--hairpin-mode=sometimes":                          "hairpin mode \"sometimes\" is none of",
		"--pod-cidr=10.0.0.0/8,10.1.0.0/16":                 "same family",
		"--non-masquerade-cidr=ten":                         "--non-masquerade-cidr",
		"--network-plugin-mtu=-1":                           "negative",
		"--cni-sync-period=-1s":                             "negative",
		"--network-plugin=kubenet --network-plugin-mtu=abc": "invalid",
	} {
		out, err := n.Try(append([]string{testbed.Program(t), "cri"}, strings.Fields(flags)...)...)
		require.ErrorContains(t, err, "exit status 2", "%s: %s", flags, out)
		require.Contains(t, err.Error()+out, want, flags)
	}
}

// TestNetpluginKubenetUnderKubelet: stock kubelet tells the pod CIDR that its Node
// was given; until then the node says what it waits for. It tells it once: a
// restarted shim goes on with it.
func TestNetpluginKubenetUnderKubelet(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	bed := testbed.Bare(t)
	s := &shimNode{t: t, n: bed}
	s.engine = docker.Start(t, bed)
	s.CRI = s.engine.StartCRI("--network-plugin=kubenet")
	node := kube.StartNode(t, c, bed, kube.NodeOptions{Runtime: s.Socket})
	eventually(t, func() string {
		why := c.Kubectl("get", "node", node.Name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		if strings.Contains(why, "nobody has told the node's pod CIDR yet") {
			return ""
		}
		return "the node says: " + why
	})
	c.Kubectl("patch", "node", node.Name, "-p", `{"spec":{"podCIDR":"10.244.9.0/24","podCIDRs":["10.244.9.0/24"]}}`)
	node.WaitReady()
	ns := c.Namespace()
	web := node.RunPod(fmt.Sprintf(webPod, ns, "unused", kube.Busybox))
	cli := node.RunPod(kube.Shell(ns, "cli", "", ""))
	require.Contains(t, web.IPs()[0], "10.244.9.")
	works := func() {
		t.Helper()
		eventually(t, func() string {
			out, err := cli.Exec("wget", "-q", "-O", "-", "http://"+web.IPs()[0]+"/")
			if err != nil || out != "hello\n" {
				return fmt.Sprintf("the other pod gets %q, %v", out, err)
			}
			return ""
		})
		fetches(t, "the node by its port", "hello", func() string { return page(bed, node.IP, 8080) })
	}
	works()
	s.Kill()
	s.Run()
	works()
	later := node.RunPod(kube.Shell(ns, "later", "", ""))
	require.Contains(t, later.IPs()[0], "10.244.9.")
	c.Kubectl("delete", "pods", "-n", ns, "--all", "--grace-period=1", "--timeout=120s")
	eventually(t, func() string { return strings.Join(s.records("kubenet"), " ") })
}

// TestNetpluginNoOp: Docker's own bridge serves, as with `docker run`.
func TestNetpluginNoOp(t *testing.T) {
	t.Parallel()
	n := testbed.Bare(t)
	n.Run("sh", "-c", "ip link add dk0 type bridge && ip addr add 172.30.0.1/24 dev dk0 && ip link set dk0 up")
	s := &shimNode{t: t, n: n}
	s.engine = docker.Start(t, n, "--bridge=dk0")
	s.CRI = s.engine.StartCRI("--network-plugin=no-op")
	st, err := s.Status(t.Context(), &cri.StatusRequest{})
	require.NoError(t, err)
	require.True(t, st.Status.Conditions[1].Status)
	sandbox, _, ips := s.run(s.sandbox("web", nil))
	require.Contains(t, ips[0], "172.30.0.")
	fetches(t, "the node", "web", func() string { return page(n, ips[0], 80) })
	s.remove(sandbox)
}
