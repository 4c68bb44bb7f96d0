package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// The cases of Multus' own end-to-end manifests (v4.3.0, e2e/templates) on one
// node: its default network is a ptp of somebody else's, named kindnet as in
// kind, in the form in which Multus' daemon generates its configuration. Each
// case is run with its objects at a real API server, and in a folder;
// kubelet_upstream_test.go has kubelet run them.

// metaConf is what a runtime reads: Multus' generated configuration, with more
// keys.
func metaConf(more string) string {
	return `{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus","capabilities":{"portMappings":true},
		"clusterNetwork":"/etc/cni/net.d/10-kindnet.conflist"` + more + `}`
}

const kindnet = `{"cniVersion":"1.0.0","name":"kindnet","plugins":[
	{"type":"ptp","ipMasq":false,"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","routes":[{"dst":"0.0.0.0/0"}],"ranges":[[{"subnet":"10.244.1.0/24"}]]},"mtu":1500},
	{"type":"portmap","capabilities":{"portMappings":true}}]}`

// upstreamNode is a node with kindnet and objects, and bond0 for kind's eth1.
func upstreamNode(t *testing.T, objects ...string) *testbed.Node {
	t.Helper()
	return inFolder(t, objects...).Node
}

// upstream is such a node, wherever its objects are.
type upstream struct {
	*testbed.Node
	// ns is the namespace of all objects.
	ns   string
	call func(op string, p *testbed.Pod, conf string) testbed.Answer
	// published is a pod's network-status, for all to see.
	published func(pod string) []agent.NetworkStatus
}

// upstreamCase runs a case with its objects at either place.
func upstreamCase(t *testing.T, run func(t *testing.T, at func(*testing.T, ...string) *upstream)) {
	t.Helper()
	t.Parallel()
	for name, at := range map[string]func(*testing.T, ...string) *upstream{"API server": atServer, "folder": inFolder} {
		t.Run(name, func(t *testing.T) { t.Parallel(); run(t, at) })
	}
}

func inFolder(t *testing.T, objects ...string) *upstream {
	t.Helper()
	n := testbed.New(t)
	if len(objects) > 0 {
		n.WriteObjects("all.yaml", together(objects...))
	}
	u := &upstream{Node: n, ns: "default"}
	u.call = func(op string, p *testbed.Pod, conf string) testbed.Answer { return p.CNI(op, conf) }
	u.published = func(pod string) []agent.NetworkStatus { return statuses(t, n, "default/"+pod) }
	u.begin(t)
	return u
}

func atServer(t *testing.T, objects ...string) *upstream {
	t.Helper()
	n := startClusterNode(t, kube.Shared(t))
	for _, o := range append(objects, podObject("warm", nil)) {
		n.c.Apply(onNode(t, o, n.name))
	}
	u := &upstream{Node: n.Node, ns: n.name, call: n.call, published: n.published}
	u.begin(t, n.args...)
	return u
}

// onNode puts an object into a namespace, and a pod onto the node of that name.
func onNode(t *testing.T, object, name string) string {
	t.Helper()
	var o struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       map[string]any `json:"spec"`
	}
	require.NoError(t, json.Unmarshal([]byte(object), &o))
	o.Metadata["namespace"] = name
	if o.Kind == "Pod" {
		o.Spec = map[string]any{"nodeName": name, "containers": []any{map[string]any{"name": "c", "image": "none"}}}
	}
	b, err := json.Marshal(o)
	require.NoError(t, err)
	return string(b)
}

// begin starts the agent; what plugins leave for good becomes the base line.
func (u *upstream) begin(t *testing.T, args ...string) {
	t.Helper()
	bond(u.Node)
	writeConf(u.Node, "10-kindnet.conflist", kindnet)
	u.Agent(args...).WaitReady()
	awaitGateways(t, u.Node)
	warm := u.pod("warm")
	u.call("ADD", warm, metaConf("")).Must()
	u.call("DEL", warm, metaConf("")).Must()
	warm.Delete()
}

func (u *upstream) pod(name string) *testbed.Pod { return u.NewPod(u.ns + "/" + name) }

// status waits until so many networks of a pod are published.
func (u *upstream) status(t *testing.T, p *testbed.Pod, networks int) []agent.NetworkStatus {
	t.Helper()
	eventually(t, func() string {
		if have := len(u.published(p.Name)); have != networks {
			return fmt.Sprintf("%s: status of %d networks", p.Name, have)
		}
		return ""
	})
	return u.published(p.Name)
}

// TestUpstream_SimplePod: a pod that asks for nothing has the cluster network.
func TestUpstream_SimplePod(t *testing.T) {
	upstreamCase(t, func(t *testing.T, at func(*testing.T, ...string) *upstream) {
		n := at(t, podObject("p", nil))
		p := n.pod("p")
		before := n.Inventory()
		added := n.call("ADD", p, metaConf("")).Must()
		require.Equal(t, addresses(t, p, "eth0"), added.IPs())
		require.Equal(t, "10.244.1", prefix24(added.IPs()[0]))
		require.NoError(t, p.Ping("10.244.1.1"))
		status := n.status(t, p, 1)
		require.Equal(t, "kindnet eth0", status[0].Name+" "+status[0].Interface)
		require.True(t, status[0].Default)
		require.Equal(t, []string{"10.244.1.1"}, status[0].Gateway)
		n.call("CHECK", p, withPrev(metaConf(""), added.Stdout)).Must()
		n.call("DEL", p, metaConf("")).Must()
		n.RequireNoLeaks(before)
	})
}

// Objects of upstream's manifests, which kubelet's cases share.
const (
	macvlanStatic = `{"cniVersion":"1.0.0","plugins":[
		{"type":"macvlan","capabilities":{"ips":true},"master":"bond0","mode":"bridge","ipam":{"type":"static"}},{"type":"tuning"}]}`
	macvlanRoute = `{"cniVersion":"1.0.0","plugins":[{"type":"macvlan","master":"bond0","mode":"bridge","ipam":{"type":"static"}}]}`
	macvlanMany  = `{"cniVersion":"1.0.0","plugins":[{"type":"macvlan","master":"bond0","mode":"bridge",
		"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","subnet":"10.2.0.0/22"}},{"type":"tuning"}]}`
)

// TestUpstream_MacvlanStatic is simple-macvlan1: two pods with static addresses
// by the capability ips; they reach each other.
func TestUpstream_MacvlanStatic(t *testing.T) {
	upstreamCase(t, func(t *testing.T, at func(*testing.T, ...string) *upstream) {
		pod := func(name, ip string) string {
			return asking(name, fmt.Sprintf(`[{"name":"macvlan1-config","ips":[%q]}]`, ip))
		}
		n := at(t, nadObject("macvlan1-config", macvlanStatic),
			pod("macvlan1-worker1", "10.1.1.11/24"), pod("macvlan1-worker2", "10.1.1.12/24"))
		a, b := n.pod("macvlan1-worker1"), n.pod("macvlan1-worker2")
		before := n.Inventory()
		for p, ip := range map[*testbed.Pod]string{a: "10.1.1.11/24", b: "10.1.1.12/24"} {
			n.call("ADD", p, metaConf("")).Must()
			require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
			require.Equal(t, []string{ip}, addresses(t, p, "net1"))
			status := n.status(t, p, 2)
			require.Equal(t, n.ns+"/macvlan1-config net1", status[1].Name+" "+status[1].Interface)
			require.Equal(t, []string{bare(ip)}, status[1].IPs)
		}
		require.NoError(t, a.Ping("10.1.1.12"))
		require.NoError(t, b.Ping("10.1.1.11"))
		for _, p := range []*testbed.Pod{a, b} {
			n.call("DEL", p, metaConf("")).Must()
		}
		n.RequireNoLeaks(before)
	})
}

// TestUpstream_DefaultRoute is default-route1: its NAD declares no capability,
// so that ips reach the static IPAM by CNI_ARGS; worker1's default route goes
// via 10.1.1.254, worker2's stays with the cluster network.
func TestUpstream_DefaultRoute(t *testing.T) {
	upstreamCase(t, func(t *testing.T, at func(*testing.T, ...string) *upstream) {
		n := at(t, nadObject("default-route-config", macvlanRoute),
			asking("default-route-worker1", `[{"name":"default-route-config","ips":["10.1.1.21/24"],"default-route":["10.1.1.254"]}]`),
			asking("default-route-worker2", `[{"name":"default-route-config","ips":["10.1.1.22/24"]}]`))
		before := n.Inventory()
		for _, c := range []struct{ pod, ip, route string }{
			{"default-route-worker1", "10.1.1.21/24", "default via 10.1.1.254 dev net1"},
			{"default-route-worker2", "10.1.1.22/24", "default via 10.244.1.1 dev eth0"},
		} {
			p := n.pod(c.pod)
			added := n.call("ADD", p, metaConf("")).Must()
			require.Equal(t, []string{c.ip}, addresses(t, p, "net1"))
			require.Equal(t, []string{c.route}, trimProto(defaultRoutes(p, "-4")))
			n.call("CHECK", p, withPrev(metaConf(""), added.Stdout)).Must()
			n.call("DEL", p, metaConf("")).Must()
			p.Delete()
		}
		n.RequireNoLeaks(before)
	})
}

// TestUpstream_SubdirectoryChain is subdirectory-chaining: the file of the
// default network goes on in a folder of its name.
func TestUpstream_SubdirectoryChain(t *testing.T) {
	upstreamCase(t, func(t *testing.T, at func(*testing.T, ...string) *upstream) {
		n := at(t, podObject("sysctl-modified", nil))
		n.chain(t, "kindnet", "IFNAME", "")
	})
}

// TestUpstream_SubdirectoryChainPassthru is the same with the chain of
// auxiliaryCNIChainName, for which Multus needs its plugin passthru: the name
// of the interface stands in the file, and IFNAME works as well.
func TestUpstream_SubdirectoryChainPassthru(t *testing.T) {
	upstreamCase(t, func(t *testing.T, at func(*testing.T, ...string) *upstream) {
		n := at(t, podObject("sysctl-modified", nil))
		n.chain(t, "vendor-cni-chain", "eth0", `,"auxiliaryCNIChainName":"vendor-cni-chain"`)
		n.chain(t, "vendor-cni-chain", "IFNAME", `,"auxiliaryCNIChainName":"vendor-cni-chain"`)
	})
}

// chain lays a tuning configuration into a folder while the agent runs and
// attaches a pod, then takes it away again: what DEL needs is in the record.
func (u *upstream) chain(t *testing.T, folder, ifName, more string) {
	t.Helper()
	p := u.pod("sysctl-modified")
	before := u.Inventory()
	u.Run("mkdir", "-p", "/etc/cni/net.d/"+folder)
	writeConf(u.Node, folder+"/sysctltwiddle.conf", sysctlTwiddle(ifName))
	conf := metaConf(more)
	added := u.call("ADD", p, conf).Must()
	require.Equal(t, "1", strings.TrimSpace(p.Run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_filter")))
	require.Equal(t, addresses(t, p, "eth0"), added.IPs(), "the chain's result is the default network's")
	u.status(t, p, 1)
	u.CNI(cni.Request{Command: "STATUS", Config: []byte(conf)}).Must()
	u.call("CHECK", p, withPrev(conf, added.Stdout)).Must()
	p.Run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/eth0/arp_filter")
	u.call("CHECK", p, withPrev(conf, added.Stdout)).MustCode(106)
	u.Run("rm", "/etc/cni/net.d/"+folder+"/sysctltwiddle.conf")
	u.call("DEL", p, conf).Must()
	u.RequireNoLeaks(before)
	p.Delete()
}

// sysctlTwiddle is the configuration that upstream's case lays into the folder.
func sysctlTwiddle(ifName string) string {
	return `{"cniVersion":"1.0.0","name":"sysctltwiddle","type":"tuning","sysctl":{"net.ipv4.conf.` + ifName + `.arp_filter":"1"}}`
}

// TestUpstream_ManyPods is many-pods with more pods at once than its 6.
func TestUpstream_ManyPods(t *testing.T) {
	t.Parallel()
	many := 10
	if soak() {
		many = 100
	}
	objects := []string{nadObject("mac", macvlanMany)}
	for i := range many {
		objects = append(objects, asking(fmt.Sprintf("many-%d", i), "mac"))
	}
	n := atServer(t, objects...)
	var pods []*testbed.Pod
	for i := range many {
		pods = append(pods, n.pod(fmt.Sprintf("many-%d", i)))
	}
	before := n.Inventory()
	requireAll(t, n.allAtOnce(pods, "ADD"))
	seen := map[string]string{}
	for _, p := range pods {
		require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
		status := n.status(t, p, 2)
		for i, ifName := range []string{"eth0", "net1"} {
			ip := addresses(t, p, ifName)[0]
			require.Equal(t, []string{bare(ip)}, status[i].IPs)
			require.Empty(t, seen[ip], "%s has the address of %s", p.Name, seen[ip])
			seen[ip] = p.Name
		}
	}
	requireAll(t, n.allAtOnce(pods, "DEL"))
	n.RequireNoLeaks(before)
}

// allAtOnce calls the plugin for all pods at the same time.
func (u *upstream) allAtOnce(pods []*testbed.Pod, op string) []testbed.Answer {
	answers := make([]testbed.Answer, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { answers[i] = u.call(op, p, metaConf("")) })
	}
	wg.Wait()
	return answers
}

func requireAll(t *testing.T, answers []testbed.Answer) {
	t.Helper()
	for i, a := range answers {
		require.Nil(t, a.Err(), "pod %d", i)
	}
}
