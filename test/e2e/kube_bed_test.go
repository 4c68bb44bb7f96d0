package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestKube is all that needs an API server which stays up. Subnets belong to
// the whole cluster, and so to every agent: these tests have one of their own,
// where all agents have the same ones from the start.
func TestKube(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.Apply(kubeObjects())
	for name, test := range map[string]func(*kubeNode){
		"storm": testStorm, "reborn": testReborn, "Rule11 counts": testCounts, "changed NAD": testChangedNAD,
		"stranger": testStranger, "memory": testMemory, "Rule12 hot plug": testHotPlug,
		"told": testTold, "leased": testLeased,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newKubeNode(t, c.With(t)))
		})
	}
}

// kubeObjects are the networks of a test cluster. Every node has addresses of
// its own for them: nodes share nothing but the API server.
func kubeObjects() string {
	return together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/16", "provider": storageProvider}),
		nadObject("default/storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"`+storageProvider+`"}`),
		nadObject("default/foreign", `{"cniVersion":"1.0.0","name":"foreign","type":"bridge","bridge":"br-foreign",
			"ipam":{"type":"host-local","subnet":"10.30.0.0/16"}}`),
	)
}

const storageProvider = "storage.default.ovn"

// kubeNode is a node of such a cluster. Its agent is a user of its own, so that
// its requests can be told from those of others.
type kubeNode struct {
	*clusterNode
	user  string
	agent *testbed.Agent
}

func newKubeNode(t *testing.T, c *kube.Cluster) *kubeNode {
	t.Helper()
	n := &kubeNode{clusterNode: startClusterNode(t, c)}
	n.user = "agent-of-" + n.name
	n.args = []string{"--kubeconfig", c.Kubeconfig(c.User(n.user, "system:masters")), "--node-name", n.name}
	// The plugin `bridge` leaves it for all pods.
	n.Run("ip", "link", "add", "br-foreign", "address", "0a:00:00:00:30:01", "up", "type", "bridge")
	n.agent = n.Agent(n.args...)
	n.agent.WaitReady()
	return n
}

// kubePod is a pod of the API server with its sandbox.
type kubePod struct {
	*testbed.Pod
	n   *kubeNode
	uid string
}

// makePod makes a pod that is bound to the node, with annotations.
func (n *kubeNode) makePod(name string, notes map[string]string) *kubePod {
	n.t.Helper()
	o, err := n.create(name, notes)
	require.NoError(n.t, err)
	return &kubePod{Pod: n.NewPod(n.name + "/" + name), n: n, uid: string(o.UID)}
}

// create makes the object alone; safe in any goroutine.
func (n *kubeNode) create(name string, notes map[string]string) (*corev1.Pod, error) {
	return n.c.Client().CoreV1().Pods(n.name).Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: notes},
		Spec:       corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
}

// makePods makes many, some at a time.
func (n *kubeNode) makePods(count int, notes func(i int) map[string]string) []*kubePod {
	n.t.Helper()
	pods := make([]*kubePod, count)
	failed := make(chan error, count)
	atOnce(8, count, func(i int) {
		name := fmt.Sprintf("pod-%d", i)
		o, err := n.create(name, notes(i))
		if err != nil {
			failed <- err
			return
		}
		pods[i] = &kubePod{n: n, uid: string(o.UID)}
	})
	close(failed)
	require.NoError(n.t, <-failed)
	for i, p := range pods {
		p.Pod = n.NewPod(fmt.Sprintf("%s/pod-%d", n.name, i))
	}
	return pods
}

// erase deletes the object at once, as the API server does when kubelet says
// that the pod has ended.
func (n *kubeNode) erase(name string) {
	n.t.Helper()
	now := int64(0)
	require.NoError(n.t, n.c.Client().CoreV1().Pods(n.name).Delete(n.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// cni is the plugin's call as containerd makes it, UID included. Safe in any
// goroutine.
func (p *kubePod) cni(op string) testbed.Answer {
	return p.n.CNI(cni.Request{
		Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0",
		Args: p.Args() + ";K8S_POD_UID=" + p.uid, Config: []byte(ownConf),
	})
}

// end is a pod's end on the node: DEL, twice as containerd does, then the
// namespace goes.
func (p *kubePod) end() {
	p.n.t.Helper()
	p.cni("DEL").Must()
	p.cni("DEL").Must()
	requireBare(p.n.t, p.Pod)
	p.Delete()
}

// requests are what the node's agent asked of the API server.
func (n *kubeNode) requests(since kube.Mark, resource string, verbs ...string) []kube.Request {
	n.t.Helper()
	return n.c.Requests(kube.Filter{Since: since, User: n.user, Resource: resource, Verbs: verbs})
}

// statuses are the network-status annotations of all pods of the node.
func (n *kubeNode) statuses() (map[string][]agent.NetworkStatus, error) {
	list, err := n.c.Client().CoreV1().Pods(n.name).List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string][]agent.NetworkStatus{}
	for _, p := range list.Items {
		var s []agent.NetworkStatus
		if text := p.Annotations[statusKey]; text != "" {
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", p.Name, err, text)
			}
		}
		out[p.Name] = s
	}
	return out, nil
}

// podNIC is an interface inside a pod, as the kernel says.
type podNIC struct {
	mac, ip string // one IPv4 address
	up      bool
}

// nics are the interfaces of all pods of the node but lo, by the path of the
// namespace and by name; one process looks at them all.
func (n *kubeNode) nics() map[string]map[string]podNIC { return n.nicsIn("*") }

// nicsIn is nics of the namespaces whose names match a pattern.
func (n *kubeNode) nicsIn(pattern string) map[string]map[string]podNIC {
	n.t.Helper()
	out := map[string]map[string]podNIC{}
	text := n.Run("sh", "-c", `cd /run/netns && for ns in `+pattern+`; do echo "/run/netns/$ns $(ip -n "$ns" -j addr show | tr -d '\n')"; done`)
	for line := range strings.Lines(text) {
		path, raw, _ := strings.Cut(strings.TrimSpace(line), " ")
		var links []struct {
			Name  string                           `json:"ifname"`
			MAC   string                           `json:"address"`
			Flags []string                         `json:"flags"`
			Addrs []struct{ Family, Local string } `json:"addr_info"`
		}
		require.NoError(n.t, json.Unmarshal([]byte(raw), &links), line)
		out[path] = map[string]podNIC{}
		for _, l := range links {
			one := podNIC{mac: l.MAC}
			for _, f := range l.Flags {
				one.up = one.up || f == "UP"
			}
			for _, a := range l.Addrs {
				if a.Family == "inet" {
					one.ip = a.Local
				}
			}
			if l.Name != "lo" && !strings.HasPrefix(l.Name, "fltomb") {
				out[path][l.Name] = one
			}
		}
	}
	return out
}

// atOnce calls f for 0 to count-1, so many at a time, and waits.
func atOnce(width, count int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range width {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range count {
		next <- i
	}
	close(next)
	wg.Wait()
}
