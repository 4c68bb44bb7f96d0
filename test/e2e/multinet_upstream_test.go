package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// The cases of Multus' own end-to-end manifests (v4.3.0, e2e/templates) on one
// node: its default network is a ptp of somebody else's, named kindnet as in
// kind, in the form in which Multus' daemon generates its configuration.

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
	n := testbed.New(t)
	bond(n)
	writeConf(n, "10-kindnet.conflist", kindnet)
	if len(objects) > 0 {
		n.WriteObjects("all.yaml", together(objects...))
	}
	n.Agent().WaitReady()
	awaitGateways(t, n)
	warm := n.NewPod("warm") // what plugins leave for good becomes the base line
	warm.CNI("ADD", metaConf("")).Must()
	warm.CNI("DEL", metaConf("")).Must()
	warm.Delete()
	return n
}

// TestUpstream_SimplePod: a pod that asks for nothing has the cluster network.
func TestUpstream_SimplePod(t *testing.T) {
	t.Parallel()
	n := upstreamNode(t, podObject("p", nil))
	p := n.NewPod("p")
	before := n.Inventory()
	added := p.CNI("ADD", metaConf("")).Must()
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	require.Equal(t, "10.244.1", prefix24(added.IPs()[0]))
	require.NoError(t, p.Ping("10.244.1.1"))
	status := statuses(t, n, "default/p")
	require.Len(t, status, 1)
	require.Equal(t, "kindnet eth0", status[0].Name+" "+status[0].Interface)
	require.True(t, status[0].Default)
	require.Equal(t, []string{"10.244.1.1"}, status[0].Gateway)
	p.CNI("CHECK", withPrev(metaConf(""), added.Stdout)).Must()
	p.CNI("DEL", metaConf("")).Must()
	n.RequireNoLeaks(before)
}

// TestUpstream_MacvlanStatic is simple-macvlan1: two pods with static addresses
// by the capability ips; they reach each other.
func TestUpstream_MacvlanStatic(t *testing.T) {
	t.Parallel()
	pod := func(name, ip string) string {
		return asking(name, fmt.Sprintf(`[{"name":"macvlan1-config","ips":[%q]}]`, ip))
	}
	n := upstreamNode(t,
		nadObject("macvlan1-config", `{"cniVersion":"1.0.0","plugins":[
			{"type":"macvlan","capabilities":{"ips":true},"master":"bond0","mode":"bridge","ipam":{"type":"static"}},{"type":"tuning"}]}`),
		pod("macvlan1-worker1", "10.1.1.11/24"), pod("macvlan1-worker2", "10.1.1.12/24"))
	a, b := n.NewPod("macvlan1-worker1"), n.NewPod("macvlan1-worker2")
	before := n.Inventory()
	for p, ip := range map[*testbed.Pod]string{a: "10.1.1.11/24", b: "10.1.1.12/24"} {
		p.CNI("ADD", metaConf("")).Must()
		require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
		require.Equal(t, []string{ip}, addresses(t, p, "net1"))
		status := statuses(t, n, "default/"+p.Name)
		require.Equal(t, "default/macvlan1-config net1", status[1].Name+" "+status[1].Interface)
		require.Equal(t, []string{bare(ip)}, status[1].IPs)
	}
	require.NoError(t, a.Ping("10.1.1.12"))
	for _, p := range []*testbed.Pod{a, b} {
		p.CNI("DEL", metaConf("")).Must()
	}
	n.RequireNoLeaks(before)
}

// TestUpstream_DefaultRoute is default-route1: its NAD declares no capability,
// so that ips reach the static IPAM by CNI_ARGS; worker1's default route goes
// via 10.1.1.254, worker2's stays with the cluster network.
func TestUpstream_DefaultRoute(t *testing.T) {
	t.Parallel()
	n := upstreamNode(t,
		nadObject("default-route-config", `{"cniVersion":"1.0.0","plugins":[{"type":"macvlan","master":"bond0","mode":"bridge","ipam":{"type":"static"}}]}`),
		asking("default-route-worker1", `[{"name":"default-route-config","ips":["10.1.1.21/24"],"default-route":["10.1.1.254"]}]`),
		asking("default-route-worker2", `[{"name":"default-route-config","ips":["10.1.1.22/24"]}]`))
	before := n.Inventory()
	for _, c := range []struct{ pod, ip, route string }{
		{"default-route-worker1", "10.1.1.21/24", "default via 10.1.1.254 dev net1"},
		{"default-route-worker2", "10.1.1.22/24", "default via 10.244.1.1 dev eth0"},
	} {
		p := n.NewPod(c.pod)
		added := p.CNI("ADD", metaConf("")).Must()
		require.Equal(t, []string{c.ip}, addresses(t, p, "net1"))
		require.Equal(t, []string{c.route}, trimProto(defaultRoutes(p, "-4")))
		p.CNI("CHECK", withPrev(metaConf(""), added.Stdout)).Must()
		p.CNI("DEL", metaConf("")).Must()
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestUpstream_SubdirectoryChain is subdirectory-chaining: the file of the
// default network goes on in a folder of its name.
func TestUpstream_SubdirectoryChain(t *testing.T) {
	t.Parallel()
	chainCase(t, "kindnet", "IFNAME", "")
}

// TestUpstream_SubdirectoryChainPassthru is the same with the chain of
// auxiliaryCNIChainName, for which Multus needs its plugin passthru: the name
// of the interface stands in the file, and IFNAME works as well.
func TestUpstream_SubdirectoryChainPassthru(t *testing.T) {
	t.Parallel()
	chainCase(t, "vendor-cni-chain", "eth0", `,"auxiliaryCNIChainName":"vendor-cni-chain"`)
	chainCase(t, "vendor-cni-chain", "IFNAME", `,"auxiliaryCNIChainName":"vendor-cni-chain"`)
}

// chainCase lays a tuning configuration into a folder while the agent runs and
// attaches a pod, then takes it away again: what DEL needs is in the record.
func chainCase(t *testing.T, folder, ifName, more string) {
	t.Helper()
	n := upstreamNode(t, podObject("sysctl-modified", nil))
	p := n.NewPod("sysctl-modified")
	before := n.Inventory()
	file := "/etc/cni/net.d/" + folder + "/sysctltwiddle.conf"
	n.Run("mkdir", "-p", "/etc/cni/net.d/"+folder)
	n.Run("sh", "-c", "cat > "+file+` <<'END'
{"cniVersion":"1.0.0","name":"sysctltwiddle","type":"tuning","sysctl":{"net.ipv4.conf.`+ifName+`.arp_filter":"1"}}
END`)
	conf := metaConf(more)
	added := p.CNI("ADD", conf).Must()
	require.Equal(t, "1", strings.TrimSpace(p.Run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_filter")))
	require.Equal(t, addresses(t, p, "eth0"), added.IPs(), "the chain's result is the default network's")
	require.Len(t, statuses(t, n, "default/sysctl-modified"), 1)
	n.CNI(cni.Request{Command: "STATUS", Config: []byte(conf)}).Must()
	p.CNI("CHECK", withPrev(conf, added.Stdout)).Must()
	p.Run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/eth0/arp_filter")
	p.CNI("CHECK", withPrev(conf, added.Stdout)).MustCode(106)
	n.Run("rm", file)
	p.CNI("DEL", conf).Must()
	n.RequireNoLeaks(before)
}

// TestUpstream_ManyPods is many-pods with 100 pods at once instead of 6.
func TestUpstream_ManyPods(t *testing.T) {
	t.Parallel()
	const many = 100
	objects := []string{nadObject("mac", `{"cniVersion":"1.0.0","plugins":[{"type":"macvlan","master":"bond0","mode":"bridge",
		"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","subnet":"10.2.0.0/22"}},{"type":"tuning"}]}`)}
	for i := range many {
		objects = append(objects, asking(fmt.Sprintf("many-%d", i), "mac"))
	}
	n := upstreamNode(t, objects...)
	var pods []*testbed.Pod
	for i := range many {
		pods = append(pods, n.NewPod(fmt.Sprintf("many-%d", i)))
	}
	before := n.Inventory()
	requireAll(t, allAtOnce(pods, "ADD"))
	seen := map[string]string{}
	for _, p := range pods {
		require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
		for _, ifName := range []string{"eth0", "net1"} {
			ip := addresses(t, p, ifName)[0]
			require.Empty(t, seen[ip], "%s has the address of %s", p.Name, seen[ip])
			seen[ip] = p.Name
		}
	}
	requireAll(t, allAtOnce(pods, "DEL"))
	n.RequireNoLeaks(before)
}

// allAtOnce calls the plugin for all pods at the same time.
func allAtOnce(pods []*testbed.Pod, op string) []testbed.Answer {
	answers := make([]testbed.Answer, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { answers[i] = p.CNI(op, metaConf("")) })
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
