package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// clusterNode is a node whose agent reads an API server under a name of its
// own, which is the namespace's too.
type clusterNode struct {
	*testbed.Node
	t    *testing.T
	c    *kube.Cluster
	link *kube.Link
	name string
	args []string
}

func startClusterNode(t *testing.T, c *kube.Cluster) *clusterNode {
	t.Helper()
	n := &clusterNode{Node: testbed.New(t), t: t, c: c, name: c.Namespace()}
	n.link = c.Link(n.NetnsPath())
	n.args = []string{"--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.name}
	return n
}

// pod makes a pod on the node, and its sandbox.
func (n *clusterNode) pod(name string, notes map[string]string) *testbed.Pod {
	n.t.Helper()
	n.c.Apply(object("v1", "Pod", n.name+"/"+name, notes, map[string]any{
		"nodeName": n.name, "containers": []any{map[string]any{"name": "c", "image": "none"}},
	}))
	return n.NewPod(n.name + "/" + name)
}

// call is the plugin's call as containerd makes it, UID included.
func (n *clusterNode) call(op string, p *testbed.Pod, conf string) testbed.Answer {
	n.t.Helper()
	return n.CNI(cni.Request{
		Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0",
		Args: p.Args() + ";K8S_POD_UID=" + n.uid(p.Name), Config: []byte(conf),
	})
}

func (n *clusterNode) uid(pod string) string {
	n.t.Helper()
	o, err := n.c.Client().CoreV1().Pods(n.name).Get(n.t.Context(), pod, metav1.GetOptions{})
	require.NoError(n.t, err)
	return string(o.UID)
}

// published is the pod's network-status at the API server.
func (n *clusterNode) published(pod string) []agent.NetworkStatus {
	n.t.Helper()
	o, err := n.c.Client().CoreV1().Pods(n.name).Get(n.t.Context(), pod, metav1.GetOptions{})
	require.NoError(n.t, err)
	var out []agent.NetworkStatus
	if text := o.Annotations[statusKey]; text != "" {
		require.NoError(n.t, json.Unmarshal([]byte(text), &out), text)
	}
	return out
}

const statusKey = "k8s.v1.cni.cncf.io/network-status"

// TestClusterPod: a pod of a real API server gets the networks that its
// annotation names, and its status says what it got.
func TestClusterPod(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	n.c.Apply(nadObject(n.name+"/storage", `{"cniVersion":"1.0.0","type":"bridge","bridge":"br-storage","ipam":{"type":"host-local","subnet":"10.20.0.0/24","rangeStart":"10.20.0.5"}}`))
	n.Run("ip", "link", "add", "br-storage", "address", "0a:00:00:00:20:01", "up", "type", "bridge") // the plugin leaves it for all pods
	n.Agent(n.args...).WaitReady()
	before := n.Inventory()
	p := n.pod("web", map[string]string{networksKey: "storage"})

	n.call("ADD", p, ownConf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	eventually(t, func() string {
		if len(n.published("web")) != 2 {
			return "no status"
		}
		return ""
	})
	got := n.published("web")
	require.Equal(t, "eth0", got[0].Interface)
	require.True(t, got[0].Default)
	require.Equal(t, []string{bare(addresses(t, p, "eth0")[0])}, got[0].IPs)
	require.Equal(t, n.name+"/storage", got[1].Name)
	require.Equal(t, []string{"10.20.0.5"}, got[1].IPs)

	n.call("DEL", p, ownConf).Must()
	p.Delete()
	require.Equal(t, before, n.Inventory())
}

// TestClusterAgentIsSmall: what a full node costs. The API's objects are trimmed
// when they arrive, so that neither they nor their lists stay.
func TestClusterAgentIsSmall(t *testing.T) {
	t.Parallel()
	const pods, nads, attached, limit = 250, 1000, 50, 60_000 // KiB
	n := startClusterNode(t, kube.Shared(t))
	store := func(count int, object func(i int) string) {
		beside(count, func(i int) { n.c.Apply(object(i)) })
	}
	padding := strings.Repeat("x", 300)
	store(nads, func(i int) string {
		return nadObject(fmt.Sprintf("%s/net-%d", n.name, i), fmt.Sprintf(
			`{"cniVersion":"1.0.0","type":"macvlan","master":"eth%d","mode":"bridge","ipam":{"type":"static","note":"%s"}}`, i, padding))
	})
	store(pods, func(i int) string {
		return object("v1", "Pod", fmt.Sprintf("%s/pod-%d", n.name, i), map[string]string{networksKey: fmt.Sprintf("net-%d,net-%d", i, i+1), "note": padding},
			map[string]any{"nodeName": n.name, "containers": []any{map[string]any{"name": "c", "image": "none", "command": []string{padding, padding}}}})
	})
	a := n.Agent(n.args...)
	a.WaitReady()
	require.LessOrEqual(t, rss(t, a), limit)

	storm := make([]*testbed.Pod, attached)
	for i := range storm {
		storm[i] = n.NewPod(fmt.Sprintf("%s/pod-%d", n.name, i))
	}
	// As Kube-OVN's plugin it is asked for the default network only.
	beside(attached, func(i int) {
		storm[i].CNI("ADD", `{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"kube-ovn"}`).Must()
	})
	require.LessOrEqual(t, rss(t, a), limit)
	eventually(t, func() string {
		for i := range storm {
			if len(n.published(storm[i].Name)) != 1 {
				return "no status of " + storm[i].Name
			}
		}
		return ""
	})
}

// beside calls f for 0 to count-1, eight at a time.
func beside(count int, f func(i int)) {
	const workers = 8
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < count; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

// rss is a process's resident memory in KiB.
func rss(t *testing.T, a *testbed.Agent) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.PID()))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			require.NoError(t, err)
			return kib
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
