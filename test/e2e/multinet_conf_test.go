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

func status(n *testbed.Node, conf string) testbed.Answer {
	return n.CNI(cni.Request{Command: "STATUS", Config: []byte(conf)})
}

// TestClusterNetworkForms: the default network by NAD, by name, by directory and
// by file, with defaultNetworks behind it, which system namespaces lack.
func TestClusterNetworkForms(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	r := installRecorders(t, n, "bynad", "byname", "byfile", "side")
	n.Run("mkdir", "-p", "/etc/cni/net.d/own")
	writeConf(n, "05-broken.conf", "{")
	writeConf(n, "10-name.conf", `{"cniVersion":"0.3.1","name":"named","type":"byname"}`)
	writeConf(n, "20-side.conflist", `{"cniVersion":"1.0.0","name":"side","plugins":[{"type":"side"}]}`)
	writeConf(n, "own/10-file.conflist", `{"cniVersion":"1.1.0","name":"filed","plugins":[{"type":"byfile"}]}`)
	n.WriteObjects("all.yaml", together(
		nadObject("kube-system/named-nad", `{"cniVersion":"1.0.0","type":"bynad"}`),
		podObject("p", nil), podObject("kube-system/p", nil)))
	n.Agent(r.args()...).WaitReady()
	awaitGateways(t, n)
	before := n.Inventory()
	for _, c := range []struct{ value, plugin, network string }{
		{"named-nad", "bynad", "kube-system/named-nad"},
		{"named", "byname", "named"},
		{"/etc/cni/net.d/own", "byfile", "filed"},
		{"/etc/cni/net.d/own/10-file.conflist", "byfile", "filed"},
	} {
		conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"meta","type":"multus","clusterNetwork":%q,"defaultNetworks":["side"]}`, c.value)
		for _, pod := range []string{"default/p", "kube-system/p"} {
			p := n.NewPod(pod)
			p.CNI("ADD", conf).Must()
			want := []string{"ADD " + c.plugin, "ADD side"}
			if p.Namespace == "kube-system" {
				want = want[:1]
			}
			require.Equal(t, want, verbs(r.take()), c.value)
			require.Equal(t, c.network, statuses(t, n, pod)[0].Name)
			p.CNI("DEL", conf).Must()
			require.Len(t, r.take(), len(want))
			p.Delete()
		}
	}
	n.RequireNoLeaks(before)
}

// TestClusterNetworkIsOurs: Kube-OVN's own list as Multus' cluster network is
// served in process, with the plugins behind it.
func TestClusterNetworkIsOurs(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(ownNetwork("storage", "10.20.0.0/24"), asking("p", "storage"))})
	writeConf(n, "01-kube-ovn.conflist", seed(t, "01-kube-ovn.conflist"))
	conf := `{"cniVersion":"1.1.0","name":"meta","type":"multus","clusterNetwork":"/etc/cni/net.d/01-kube-ovn.conflist"}`
	status(n, conf).Must()
	p := n.NewPod("p")
	added := p.CNI("ADD", conf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	require.Equal(t, addresses(t, p, "eth0"), added.IPs())
	require.Contains(t, defaultRoutes(p, "-4")[0], "default via 10.16.0.1 dev eth0")
	a := attachment(t, n, "default/p")
	require.Equal(t, "kube-ovn portmap", a.Interfaces[0].Network+" "+strings.Join(a.Interfaces[0].Plugins, " "))
	p.CNI("CHECK", withPrev(conf, added.Stdout)).Must()
	n.Run("rm", "/etc/cni/net.d/01-kube-ovn.conflist")
	e := status(n, conf).MustCode(50)
	require.Contains(t, e.Msg+e.Details, "01-kube-ovn.conflist")
	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"lo"}, linkNames(t, p))
}

// TestRule6_StatusAsksTheDefaultNetwork: not ready until its configuration is
// there, until its plugin is installed and until that says so; a node whose
// default network is not ours needs no switch.
func TestRule6_StatusAsksTheDefaultNetwork(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	r := installRecorders(t, n, "main", "side", "aux")
	n.Agent(r.args()...).WaitReady()
	awaitGateways(t, n)
	conf := `{"cniVersion":"1.1.0","name":"meta","type":"multus","clusterNetwork":"/etc/cni/net.d/10-main.conflist",
		"defaultNetworks":["side"],"auxiliaryCNIChainName":"vendor"}`
	says := func(what string) {
		t.Helper()
		e := status(n, conf).MustCode(50)
		require.Contains(t, e.Msg+e.Details, what)
	}
	says("/etc/cni/net.d/10-main.conflist does not exist")
	writeConf(n, "10-main.conflist", `{"cniVersion":"1.1.0","name":"main","plugins":[{"type":"main"}]}`)
	says("network side does not exist")
	writeConf(n, "20-side.conf", `{"cniVersion":"0.4.0","name":"side","type":"nowhere"}`)
	says(`"nowhere" is in none of`)
	writeConf(n, "20-side.conf", `{"cniVersion":"1.1.0","name":"side","type":"side"}`)
	r.order("side", "STATUS", "fail 50 not yet")
	says("not yet")
	r.order("side", "STATUS", "")
	n.Run("mkdir", "/etc/cni/net.d/vendor")
	writeConf(n, "vendor/a.conf", `{"type":"aux"}`)
	r.order("aux", "STATUS", "fail 50 nor this")
	says("nor this")
	r.order("aux", "STATUS", "")
	r.take()
	status(n, conf).Must()
	require.ElementsMatch(t, []string{"STATUS main", "STATUS side", "STATUS aux"}, verbs(r.take()))

	n.OVS.KillVswitchd()
	status(n, conf).Must()
	status(n, ownConf).MustCode(50)
	n.OVS.StartVswitchd()
}

// TestReadinessIndicator: ADDs wait for the file, whose folders come later, and
// go on when it is there; CHECK and STATUS say 50 while it is away; DEL goes by.
func TestReadinessIndicator(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	const file = "/run/flannel/deep/subnet.env"
	conf := `{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"multus","readinessindicatorfile":"` + file + `"}`
	before := n.Inventory()
	require.Contains(t, status(n, conf).MustCode(50).Details, file)

	there := n.NewPod("there")
	there.CNI("ADD", ownConf).Must()
	there.CNI("DEL", conf).Must()

	pods := []*testbed.Pod{n.NewPod("p"), n.NewPod("q"), n.NewPod("r")}
	answers := make([]testbed.Answer, len(pods))
	var wg sync.WaitGroup
	for i, p := range pods {
		wg.Go(func() { answers[i] = p.CNI("ADD", conf) })
	}
	n.Run("mkdir", "-p", "/run/flannel")
	n.Run("mkdir", "/run/flannel/other")
	n.Run("mkdir", "/run/flannel/deep")
	n.Run("touch", "/run/flannel/deep/x")
	n.Run("touch", file)
	wg.Wait()
	requireAll(t, answers)
	status(n, conf).Must()
	pods[0].CNI("CHECK", withPrev(conf, answers[0].Stdout)).Must()
	n.Run("rm", "-r", "/run/flannel")
	require.Contains(t, pods[0].CNI("CHECK", withPrev(conf, answers[0].Stdout)).MustCode(50).Details, file)
	for _, p := range append(pods, there) {
		p.CNI("DEL", conf).Must()
		p.Delete()
	}
	n.RequireNoLeaks(before)
}
