package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// seedNode is a machine with kubelet and containerd in a cluster of its own,
// which reads Multus' configuration as it stands.
type seedNode struct {
	*kube.Node
	t     *testing.T
	c     *kube.Cluster
	args  []string
	agent *testbed.Agent
}

func startSeedNode(t *testing.T) *seedNode {
	t.Helper()
	c := kube.Start(t, kube.Options{})
	n := &seedNode{Node: kube.StartNode(t, c, testbed.New(t), kube.NodeOptions{}), t: t, c: c}
	n.Outside()
	bond(n.Node.Node)
	c.Apply(strings.Replace(seed(t, "nad-ipvlan-net2.yaml"), `"type": "ipvlan"`, `"type": "macvlan"`, 1))
	n.args = []string{"--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.Name, "--iface", testbed.OutsideIf,
		"--compat-socket", kubeOVNSocket}
	n.startAgent()
	n.agent.WaitReady()
	n.WriteConf("00-multus.conf", seed(t, "00-multus.conf"))
	n.WaitReady()
	return n
}

func (n *seedNode) startAgent() { n.agent = n.Agent(n.args...) }

// seedPod is the pod of the seed with an image that the node has, under a name.
func (n *seedNode) seedPod(name string) *kube.Pod {
	n.t.Helper()
	return n.RunPod(strings.NewReplacer("busybox:latest", kube.Busybox, "ipvlanpod22", name).Replace(seed(n.t, "pod-ipvlanpod22.yaml")))
}

// look is what must stay the same as long as the pod lives: its sandbox, what
// is seen inside by `kubectl exec`, its status, and how often it was started.
func (n *seedNode) look(p *kube.Pod) string {
	n.t.Helper()
	var inside string
	eventually(n.t, func() string { // kubelet has just come back
		var err error
		if inside, err = p.Exec("sh", "-c", "ip -o link; ip -o addr; ip route; ip rule"); err != nil {
			return err.Error()
		}
		return ""
	})
	o, err := p.Object()
	require.NoError(n.t, err)
	return strings.Join([]string{p.ContainerID(), passing.ReplaceAllString(inside, ""), o.Annotations[statusKey],
		o.Status.PodIP, strconv.Itoa(int(o.Status.ContainerStatuses[0].RestartCount))}, "\n")
}

// passing is what the kernel counts of an address, and says until it knows that
// nobody else has it.
var passing = regexp.MustCompile(`(valid|preferred)_lft \S+|tentative `)

// TestKubelet_SeedPod: kubelet and containerd start the seed's pod by Multus'
// configuration (macvlan stands in for ipvlan, which this kernel has not). It
// has both interfaces and says so, and it loses nothing, not a ping, when agent
// and kubelet are restarted and the API server is away meanwhile. Deletion
// frees everything.
func TestKubelet_SeedPod(t *testing.T) {
	t.Parallel()
	n := startSeedNode(t)
	n.seedPod("warm").Delete() // portmap's own chains stay: they are part of the base line
	before := n.Inventory()
	p := n.seedPod("ipvlanpod22")
	near := n.seedPod("near")
	n.requireSeed(p, "192.168.133.191")
	was := map[*kube.Pod]string{p: n.look(p), near: n.look(near)}
	pings := []*kubeletPing{n.ping(p, p.IPs()[0], near.IPs()[0]), n.ping(p, "192.168.133.191", "192.168.133.192")}

	n.agent.Kill()
	n.startAgent()
	n.RestartKubelet()
	n.away()

	for pod, what := range was {
		require.Equal(t, what, n.look(pod), pod.Name)
		n.Fairlead("check", "default/"+pod.Name)
	}
	for _, g := range pings {
		g.stop()
	}
	late := n.seedPod("late")
	n.requireSeed(late, "192.168.133.193")
	for _, pod := range []*kube.Pod{p, near, late} {
		pod.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestKubelet_Reboot: after a reboot kubelet starts its pods again. While the
// agent is not up yet they do not start, whatever is in the configurations'
// folder; with it they have all their networks.
func TestKubelet_Reboot(t *testing.T) {
	t.Parallel()
	n := startSeedNode(t)
	p := n.seedPod("ipvlanpod22")
	n.requireSeed(p, "192.168.133.190")
	sandbox := p.ContainerID()
	n.Reboot()
	bond(n.Node.Node)
	eventually(t, func() string {
		events := strings.Join(p.Events(), "\n")
		if strings.Contains(events, "FailedCreatePodSandBox") && strings.Contains(events, "no answer from an agent") {
			return ""
		}
		return events
	})
	n.startAgent()
	eventually(t, func() string {
		o, err := p.Object()
		require.NoError(t, err)
		if s := o.Status.ContainerStatuses; len(s) == 0 || s[0].State.Running == nil || s[0].RestartCount == 0 {
			return "the pod has not been started again"
		}
		return ""
	})
	require.NotEqual(t, sandbox, p.ContainerID())
	n.requireSeed(p, "192.168.133.191")
	eventually(t, func() string { // the sandbox of before is gone for good
		if list := asked[agent.Pod](t, n.Node.Node, "describe", "pod", "default/ipvlanpod22").Attachments; len(list) != 1 {
			return fmt.Sprintf("%d attachments", len(list))
		}
		return ""
	})
	n.Fairlead("check", "default/ipvlanpod22")
	p.Delete()
}

// away: the API server is down, at first with the agent and kubelet as they
// are, then with both started anew, who know of it only what is on disk.
func (n *seedNode) away() {
	n.t.Helper()
	length := 5 * time.Second
	if soak() {
		length = time.Minute
	}
	since := time.Now()
	n.c.Stop()
	n.Fairlead("check", "default/ipvlanpod22")
	n.agent.Kill()
	n.startAgent()
	n.RestartKubelet()
	n.Fairlead("check", "default/ipvlanpod22")
	time.Sleep(time.Until(since.Add(length)))
	n.c.Restart()
	n.t.Logf("the API server was away for %s", time.Since(since).Round(time.Second))
	n.agent.WaitReady()
	n.WaitReady()
}

// requireSeed: what the seed says of its pod, seen by `kubectl exec` and in its
// status.
func (n *seedNode) requireSeed(p *kube.Pod, net1 string) {
	n.t.Helper()
	cn := &clusterNode{t: n.t, c: n.c, name: p.Namespace}
	eventually(n.t, func() string {
		if len(cn.published(p.Name)) != 2 {
			return "no status"
		}
		return ""
	})
	status := cn.published(p.Name)
	require.Equal(n.t, "kube-ovn eth0", status[0].Name+" "+status[0].Interface)
	require.True(n.t, status[0].Default)
	require.Equal(n.t, p.IPs(), status[0].IPs)
	require.Equal(n.t, "default/ipvlan-net2 net1", status[1].Name+" "+status[1].Interface)
	require.Equal(n.t, []string{net1}, status[1].IPs)
	require.False(n.t, status[1].Default)
	for ifName, want := range map[string]string{"eth0": " mtu 1400 ", "net1": " mtu 1500 "} {
		out, err := p.Exec("ip", "-o", "link", "show", "dev", ifName)
		require.NoError(n.t, err)
		require.Contains(n.t, out, want)
		i := map[string]int{"eth0": 0, "net1": 1}[ifName]
		require.Contains(n.t, out, "link/ether "+status[i].MAC+" ")
		out, err = p.Exec("ip", "-o", "-4", "addr", "show", "dev", ifName)
		require.NoError(n.t, err)
		require.Contains(n.t, out, "inet "+status[i].IPs[0]+"/")
	}
	out, err := p.Exec("sh", "-c", "ip route; ip rule")
	require.NoError(n.t, err)
	require.Contains(n.t, out, "default via 10.16.0.1 dev eth0")
	require.Contains(n.t, out, "from "+net1+" lookup 100")
	require.Equal(n.t, 1, strings.Count(out, "default via"))
}

// kubeletPing is a ping that goes on in a pod of kubelet.
type kubeletPing struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bytes.Buffer
}

// ping pings addr from an address of the pod: plugin sbr makes net1 the way of
// its own address alone.
func (n *seedNode) ping(p *kube.Pod, from, addr string) *kubeletPing {
	n.t.Helper()
	_, err := p.Nsenter("ping", "-n", "-I", from, "-c", "1", "-w", "5", addr)
	require.NoError(n.t, err)
	g := &kubeletPing{t: n.t, out: &bytes.Buffer{}}
	// Its life is not the test's context: it ends by its own signal.
	g.cmd = n.Cmd(context.Background(), "nsenter", "--net="+p.Netns(), "--", "ping", "-n", "-I", from, "-i", "0.1", addr)
	g.cmd.Stdout, g.cmd.Stderr = g.out, os.Stderr
	require.NoError(n.t, g.cmd.Start())
	return g
}

var pinged = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// stop ends the ping; but the last request, which may be under way, all must
// have been answered.
func (g *kubeletPing) stop() {
	g.t.Helper()
	require.NoError(g.t, g.cmd.Process.Signal(syscall.SIGINT))
	_ = g.cmd.Wait() // status 1 = some were lost
	m := pinged.FindStringSubmatch(g.out.String())
	require.NotNil(g.t, m, g.out.String())
	sent, err := strconv.Atoi(m[1])
	require.NoError(g.t, err)
	answered, err := strconv.Atoi(m[2])
	require.NoError(g.t, err)
	require.Greater(g.t, answered, 10)
	require.LessOrEqual(g.t, sent-answered, 1, g.out.String())
}
