package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// upstreamKubelet is a machine with kubelet and containerd on which Multus' own
// end-to-end manifests are applied: with `kubectl apply` and `kubectl exec`.
type upstreamKubelet struct {
	*kube.Node
	t  *testing.T
	c  *kube.Cluster
	ns string
}

func startUpstreamKubelet(t *testing.T) *upstreamKubelet {
	t.Helper()
	c := kube.Shared(t)
	c.Alone()
	n := &upstreamKubelet{Node: kube.StartNode(t, c, testbed.New(t), kube.NodeOptions{}), t: t, c: c, ns: c.Namespace()}
	bond(n.Node.Node)
	for name, config := range map[string]string{
		"macvlan1-config": macvlanStatic, "default-route-config": macvlanRoute, "many": macvlanMany,
	} {
		c.Apply(nadObject(n.ns+"/"+name, config))
	}
	n.Agent("--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.Name).WaitReady()
	n.WriteConf("10-kindnet.conflist", kindnet)
	n.WriteConf("00-multus.conf", metaConf(`,"auxiliaryCNIChainName":"vendor-cni-chain"`))
	n.WaitReady()
	return n
}

// make creates a pod that asks for networks, and does not wait.
func (n *upstreamKubelet) make(name, networks string) *kube.Pod {
	n.t.Helper()
	notes := ""
	if networks != "" {
		notes = fmt.Sprintf("{%q: %q}", networksKey, networks)
	}
	return n.CreatePod(kube.Shell(n.ns, name, notes, ""))
}

func (n *upstreamKubelet) exec(p *kube.Pod, script string) string {
	n.t.Helper()
	out, err := p.Exec("sh", "-c", script)
	require.NoError(n.t, err)
	return out
}

// TestKubelet_UpstreamManifests: Multus' own cases, one after the other, as
// kubelet and containerd run them.
func TestKubelet_UpstreamManifests(t *testing.T) {
	t.Parallel()
	n := startUpstreamKubelet(t)
	warm := n.make("warm", "many") // what plugins leave for good is the base line
	warm.WaitRunning()
	warm.Delete()
	before := n.Inventory()
	n.macvlan()
	n.defaultRoutes()
	n.chains()
	n.many()
	n.RequireNoLeaks(before)
}

// macvlan is simple-macvlan1.
func (n *upstreamKubelet) macvlan() {
	n.t.Helper()
	a := n.make("macvlan1-worker1", `[{"name":"macvlan1-config","ips":["10.1.1.11/24"]}]`)
	b := n.make("macvlan1-worker2", `[{"name":"macvlan1-config","ips":["10.1.1.12/24"]}]`)
	a.WaitRunning()
	b.WaitRunning()
	require.Contains(n.t, n.exec(a, "ip -o -4 addr show dev net1"), " 10.1.1.11/24 ")
	require.Contains(n.t, n.exec(b, "ip -o -4 addr show dev net1"), " 10.1.1.12/24 ")
	n.exec(a, "ping -c 1 -w 5 -I net1 10.1.1.12")
	n.exec(b, "ping -c 1 -w 5 -I net1 10.1.1.11")
	a.Delete()
	b.Delete()
}

// defaultRoutes is default-route1.
func (n *upstreamKubelet) defaultRoutes() {
	n.t.Helper()
	a := n.make("default-route-worker1", `[{"name":"default-route-config","ips":["10.1.1.21/24"],"default-route":["10.1.1.254"]}]`)
	b := n.make("default-route-worker2", `[{"name":"default-route-config","ips":["10.1.1.22/24"]}]`)
	a.WaitRunning()
	b.WaitRunning()
	require.Equal(n.t, "default via 10.1.1.254 dev net1", strings.TrimSpace(n.exec(a, "ip route | grep ^default")))
	require.Equal(n.t, "default via 10.244.1.1 dev eth0", strings.TrimSpace(n.exec(b, "ip route | grep ^default")))
	a.Delete()
	b.Delete()
}

// chains is subdirectory-chaining, first without and then with what upstream
// needs its plugin passthru for.
func (n *upstreamKubelet) chains() {
	n.t.Helper()
	for _, folder := range []string{"kindnet", "vendor-cni-chain"} {
		file := "/etc/cni/net.d/" + folder + "/sysctltwiddle.conf"
		n.Run("mkdir", "-p", "/etc/cni/net.d/"+folder)
		writeConf(n.Node.Node, folder+"/sysctltwiddle.conf", sysctlTwiddle("IFNAME"))
		p := n.make("sysctl-modified", "")
		p.WaitRunning()
		require.Equal(n.t, "1\n", n.exec(p, "cat /proc/sys/net/ipv4/conf/eth0/arp_filter"), folder)
		n.Run("rm", file)
		p.Delete()
	}
}

// many is many-pods, with upstream's 6 or, with full counts, 30. 100 at once are
// TestUpstream_ManyPods: without the containers, which take the time here.
func (n *upstreamKubelet) many() {
	n.t.Helper()
	count := 6
	if soak() {
		count = 30
	}
	pods := make([]*kube.Pod, count)
	for i := range pods {
		pods[i] = n.make(fmt.Sprintf("many-%d", i), "many")
	}
	seen := map[string]string{}
	for _, p := range pods {
		p.WaitRunning()
		ips := strings.Fields(n.exec(p, "ip -o -4 addr show | grep -v ' lo ' | awk '{print $4}'"))
		require.Len(n.t, ips, 2, p.Name)
		for _, ip := range ips {
			require.Empty(n.t, seen[ip], "%s has the address of %s", p.Name, seen[ip])
			seen[ip] = p.Name
		}
	}
	for _, p := range pods {
		p.Delete()
	}
}
