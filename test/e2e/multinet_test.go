package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
)

// ownNetwork is a NAD of our own type with a Subnet of its own.
func ownNetwork(name, cidrs string) string {
	protocol := "IPv4"
	if strings.Contains(cidrs, ",") {
		protocol = "Dual"
	}
	return together(
		nadObject(name, fmt.Sprintf(`{"cniVersion":"1.0.0","type":"fairlead","provider":"%s.default.ovn"}`, name)),
		subnetObject(name, map[string]any{"provider": name + ".default.ovn", "protocol": protocol, "cidrBlock": cidrs}))
}

// asking is a pod that asks for networks in either form of the annotation.
func asking(name, networks string) string {
	return podObject(name, map[string]string{networksKey: networks})
}

func statuses(t *testing.T, n *testbed.Node, pod string) []agent.NetworkStatus {
	t.Helper()
	return attachment(t, n, pod).NetworkStatus
}

// TestRule1_NetworksCSV: names are generated around those that were asked for, and
// every interface works.
func TestRule1_NetworksCSV(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(
		ownNetwork("storage", "10.20.0.0/24"), ownNetwork("backup", "10.21.0.0/24"), ownNetwork("video", "10.22.0.0/24"),
		asking("p", "storage, default/backup@net1 ,video"), asking("q", "backup,video,storage"))})
	p, q := n.NewPod("p"), n.NewPod("q")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	q.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1", "net2", "net3"}, linkNames(t, p))
	for _, c := range []struct{ ifName, subnet, from string }{
		{"net2", "10.20.0.", "net3"}, {"net1", "10.21.0.", "net1"}, {"net3", "10.22.0.", "net2"},
	} {
		mine, theirs := addresses(t, p, c.ifName), addresses(t, q, c.from)
		require.True(t, strings.HasPrefix(mine[0], c.subnet), mine)
		require.True(t, strings.HasPrefix(theirs[0], c.subnet), theirs)
		require.NoError(t, q.Ping(bare(mine[0])))
		require.Equal(t, "p.default."+map[string]string{"net1": "backup", "net2": "storage", "net3": "video"}[c.ifName]+".default.ovn",
			column(n, "Interface", hostIf(p, c.ifName), "external_ids:iface-id"))
	}
	require.Equal(t, []string{"default via 10.16.0.1 dev eth0"}, trimProto(defaultRoutes(p, "-4")))

	status := statuses(t, n, "default/p")
	require.Len(t, status, 4)
	require.Equal(t, "k8s-pod-network eth0", status[0].Name+" "+status[0].Interface)
	require.True(t, status[0].Default)
	for i, want := range []string{"default/storage net2", "default/backup net1", "default/video net3"} {
		s := status[i+1]
		require.Equal(t, want, s.Name+" "+s.Interface)
		require.Equal(t, []string{bare(addresses(t, p, s.Interface)[0])}, s.IPs)
		require.Equal(t, linkOf(t, p, s.Interface)["address"], s.MAC)
		require.False(t, s.Default)
	}
	for _, pod := range []*testbed.Pod{p, q} {
		pod.CNI("CHECK", ownConf).Must()
		pod.CNI("DEL", ownConf).Must()
		require.Equal(t, []string{"lo"}, linkNames(t, pod))
	}
	n.RequireNoLeaks(before)
}

// TestRule1_NetworksJSON: requested name, address, MAC and rates on a NIC of ours.
func TestRule1_NetworksJSON(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(
		ownNetwork("storage", "10.20.0.0/24,fd00:20::/112"),
		asking("p", `[{"name":"storage","namespace":"default","interface":"data0","ips":["10.20.0.77/24","fd00:20::77"],
			"mac":"02:00:00:00:00:77","bandwidth":{"ingressRate":5000000,"ingressBurst":2000000,"egressRate":7000000,"egressBurst":1000000}}]`))})
	p := n.NewPod("p")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.20.0.77/24", "fd00:20::77/112"}, addresses(t, p, "data0"))
	require.Equal(t, "02:00:00:00:00:77", linkOf(t, p, "data0")["address"])
	host := n.OVS.Vsctl("--bare", "--columns=name", "find", "Interface", "external_ids:iface-id=p.default.storage.default.ovn")
	require.Equal(t, "7000", column(n, "Interface", host, "ingress_policing_rate"))
	require.Equal(t, "1000", column(n, "Interface", host, "ingress_policing_burst"))
	qos := column(n, "Port", host, "qos")
	queue := column(n, "QoS", qos, "queues:0")
	require.Equal(t, "5000000", column(n, "Queue", queue, "other_config:max-rate"))
	require.Equal(t, "2000000", column(n, "Queue", queue, "other_config:burst"), "bits")
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// TestRule1_SameNetworkTwice: two NICs of one NAD have ports, addresses and
// annotations of their own.
func TestRule1_SameNetworkTwice(t *testing.T) {
	t.Parallel()
	n := startNode(t, map[string]string{"all.yaml": together(ownNetwork("storage", "10.20.0.0/24"),
		podObject("p", map[string]string{
			networksKey: "storage,storage",
			"storage.default.ovn.net2.kubernetes.io/ip_address": "10.20.0.99",
		}))})
	p := n.NewPod("p")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"10.20.0.99/24"}, addresses(t, p, "net2"))
	require.NotEqual(t, addresses(t, p, "net1"), addresses(t, p, "net2"))
	for _, ifName := range []string{"net1", "net2"} {
		require.Equal(t, "p.default.storage.default.ovn."+ifName,
			column(n, "Interface", hostIf(p, ifName), "external_ids:iface-id"))
	}
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// TestRule7_DefaultRoute: `default-route` moves the pod's default route of that
// family, and only that, whoever made the NICs; what was asked for is read back
// with ip, and CHECK agrees.
func TestRule7_DefaultRoute(t *testing.T) {
	t.Parallel()
	mac := `{"cniVersion":"1.0.0","name":"mac","type":"macvlan","master":"bond0",
		"ipam":{"type":"static","addresses":[{"address":"10.62.0.7/24","gateway":"10.62.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}}`
	pods := []struct {
		name, networks string
		v4, v6         []string
		owner          string // interface of the IPv4 default route
	}{
		{"plain", `[{"name":"storage"}]`,
			[]string{"default via 10.16.0.1 dev eth0"}, []string{"default via fd00:10:16::1 dev eth0"}, "eth0"},
		{"own", `[{"name":"storage","default-route":["10.20.0.1"]}]`,
			[]string{"default via 10.20.0.1 dev net1"}, []string{"default via fd00:10:16::1 dev eth0"}, "net1"},
		{"both", `[{"name":"storage","default-route":["10.20.0.1","fd00:20::1"]}]`,
			[]string{"default via 10.20.0.1 dev net1"}, []string{"default via fd00:20::1 dev net1"}, "net1"},
		{"foreign", `[{"name":"storage"},{"name":"mac","default-route":["10.62.0.1"]}]`,
			[]string{"default via 10.62.0.1 dev net2"}, []string{"default via fd00:10:16::1 dev eth0"}, "net2"},
		{"split", `[{"name":"storage","default-route":["fd00:20::1"]},{"name":"mac","default-route":["10.62.0.1"]}]`,
			[]string{"default via 10.62.0.1 dev net2"}, []string{"default via fd00:20::1 dev net1"}, "net2"},
		{"overruled", `[{"name":"mac"},{"name":"storage","default-route":["10.20.0.1"]}]`,
			[]string{"default via 10.20.0.1 dev net2"}, []string{"default via fd00:10:16::1 dev eth0"}, "net2"},
		{"several", `[{"name":"storage","default-route":["10.20.0.2","10.20.0.1"]}]`,
			[]string{"default", "nexthop via 10.20.0.1 dev net1", "nexthop via 10.20.0.2 dev net1"}, []string{"default via fd00:10:16::1 dev eth0"}, "net1"},
		{"severalforeign", `[{"name":"mac","default-route":["10.62.0.1","10.62.0.2"]}]`,
			[]string{"default", "nexthop via 10.62.0.1 dev net1", "nexthop via 10.62.0.2 dev net1"}, []string{"default via fd00:10:16::1 dev eth0"}, "net1"},
	}
	objects := []string{
		subnetObject("dual", map[string]any{"default": true, "protocol": "Dual", "cidrBlock": "10.16.0.0/16,fd00:10:16::/112"}),
		ownNetwork("storage", "10.20.0.0/24,fd00:20::/112"), nadObject("mac", mac),
	}
	for _, p := range pods {
		objects = append(objects, asking(p.name, p.networks))
	}
	n := testbed.New(t)
	bond(n)
	n.WriteObjects("all.yaml", together(objects...))
	n.Agent().WaitReady()
	awaitGateways(t, n)
	for _, c := range pods {
		t.Log(c.name, c.networks)
		p := n.NewPod(c.name)
		before := n.Inventory()
		added := p.CNI("ADD", ownConf).Must()
		require.Equal(t, c.v4, routesOf(p, "-4"))
		require.Equal(t, c.v6, routesOf(p, "-6"))
		require.Equal(t, c.owner == "eth0", hasDefault(t, added), "the result tells who has the default route: %s", added.Stdout)
		for _, s := range statuses(t, n, "default/"+c.name) {
			require.Equal(t, s.Interface == c.owner, hasV4(s.Gateway), "status of %s: %v", s.Interface, s.Gateway)
		}
		p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
		p.Run("ip", "-4", "route", "del", "default")
		p.CNI("CHECK", withPrev(ownConf, added.Stdout)).MustCode(106)
		p.CNI("DEL", ownConf).Must()
		require.Equal(t, []string{"lo"}, linkNames(t, p))
		n.RequireNoLeaks(before)
		p.Delete()
	}
}

// routesOf lists default routes and hops without attributes, hops sorted.
func routesOf(from runner, family string) []string {
	var out []string
	for _, r := range trimProto(defaultRoutes(from, family)) {
		if strings.HasPrefix(r, "default proto") {
			r = "default"
		}
		if n := len(out); n > 1 && strings.HasPrefix(r, "nexthop") && r < out[n-1] {
			out = append(out[:n-1], r, out[n-1])
			continue
		}
		out = append(out, r)
	}
	return out
}

func hasV4(gateways []string) bool {
	for _, gw := range gateways {
		if strings.Contains(gw, ".") {
			return true
		}
	}
	return false
}

// hasDefault tells that the CNI result has an IPv4 default route.
func hasDefault(t *testing.T, a testbed.Answer) bool {
	t.Helper()
	var r struct {
		Routes []struct {
			Dst string `json:"dst"`
		} `json:"routes"`
	}
	require.NoError(t, json.Unmarshal(a.Stdout, &r))
	for _, route := range r.Routes {
		if route.Dst == "0.0.0.0/0" {
			return true
		}
	}
	return false
}

// TestRule7_UnreachableGateway: a gateway that the NIC cannot reach is an error
// before anything stays.
func TestRule7_UnreachableGateway(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	bond(n)
	n.WriteObjects("all.yaml", together(
		nadObject("mac", `{"cniVersion":"1.0.0","name":"mac","type":"macvlan","master":"bond0",
			"ipam":{"type":"static","addresses":[{"address":"10.62.0.7/24"}]}}`),
		asking("p", `[{"name":"mac","default-route":["172.16.0.1"]}]`)))
	n.Agent().WaitReady()
	awaitGateways(t, n)
	p := n.NewPod("p")
	before := n.Inventory()
	e := p.CNI("ADD", ownConf).MustCode(102)
	require.Contains(t, e.Msg+e.Details, "172.16.0.1")
	require.Equal(t, []string{"lo"}, linkNames(t, p))
	n.RequireNoLeaks(before)
}

// TestNamespaceIsolation: with it a pod may use NADs of its own namespace and
// of the global ones, nothing else; that holds for its default network too.
func TestNamespaceIsolation(t *testing.T) {
	t.Parallel()
	nad := func(name string) string {
		return nadObject(name, `{"cniVersion":"1.0.0","name":"x","type":"silent"}`)
	}
	n := testbed.New(t)
	r := installRecorders(t, n, "silent")
	n.WriteObjects("all.yaml", together(nad("a/net"), nad("b/net"), nad("default/net"), nad("shared/net"),
		asking("a/own", "net"), asking("a/other", "b/net"), asking("a/global", "default/net"), asking("a/shared", "shared/net"),
		podObject("a/main", map[string]string{"v1.multus-cni.io/default-network": "b/net"})))
	n.Agent(r.args()...).WaitReady()
	awaitGateways(t, n)
	const (
		open   = `{"cniVersion":"1.0.0","name":"k","type":"multus"}`
		closed = `{"cniVersion":"1.0.0","name":"k","type":"multus","namespaceIsolation":true}`
		listed = `{"cniVersion":"1.0.0","name":"k","type":"multus","namespaceIsolation":true,"globalNamespaces":"shared, kube-system"}`
	)
	before := n.Inventory()
	for _, c := range []struct {
		pod, conf string
		denied    bool
	}{
		{"a/own", open, false}, {"a/other", open, false}, {"a/main", open, false},
		{"a/own", closed, false}, {"a/other", closed, true}, {"a/global", closed, false}, {"a/shared", closed, true}, {"a/main", closed, true},
		{"a/own", listed, false}, {"a/other", listed, true}, {"a/global", listed, true}, {"a/shared", listed, false},
	} {
		p := n.NewPod(c.pod)
		answer := p.CNI("ADD", c.conf)
		if c.denied {
			require.Contains(t, answer.MustCode(101).Msg, "namespaceIsolation")
			require.Empty(t, r.take(), "%s: a plugin ran", c.pod)
		} else {
			answer.Must()
			p.CNI("DEL", c.conf).Must()
			require.Equal(t, []string{"ADD silent", "DEL silent"}, verbs(r.take()), c.pod)
		}
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestRule4_DelReverses: three further NICs, ours and foreign, go in reverse.
func TestRule4_DelReverses(t *testing.T) {
	t.Parallel()
	chain := func(name, recorder string) string {
		return together(
			nadObject(name, fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[{"type":"fairlead","provider":"%s.default.ovn"},{"type":%q}]}`, name, name, recorder)),
			subnetObject(name, map[string]any{"provider": name + ".default.ovn", "protocol": "IPv4", "cidrBlock": "10.4" + recorder[3:] + ".0.0/24"}))
	}
	n, r := recorderNode(t, together(chain("x", "rec1"), chain("y", "rec2"), chain("z", "rec3"), asking("p", "x,y,z")), "rec1", "rec2", "rec3")
	p := n.NewPod("p")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1", "net2", "net3"}, linkNames(t, p))
	require.Equal(t, []string{"ADD rec1", "ADD rec2", "ADD rec3"}, verbs(r.take()))
	p.CNI("CHECK", ownConf).Must()
	require.Equal(t, []string{"CHECK rec1", "CHECK rec2", "CHECK rec3"}, verbs(r.take()))
	p.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"DEL rec3", "DEL rec2", "DEL rec1"}, verbs(r.take()))
	n.RequireNoLeaks(before)
}

// TestNADWithoutConfig takes its network from the configuration folder: a list
// before a single configuration, whatever stands first; a broken file beside
// them is nobody's concern.
func TestNADWithoutConfig(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	r := installRecorders(t, n, "single", "listed")
	writeConf(n, "00-broken.conflist", `{"name":"files","plugins":[`)
	writeConf(n, "01-files.conf", `{"cniVersion":"1.0.0","name":"files","type":"single"}`)
	writeConf(n, "02-files.conflist", `{"cniVersion":"1.0.0","name":"files","plugins":[{"type":"listed"}]}`)
	n.WriteObjects("all.yaml", together(
		object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "files", nil, map[string]any{}),
		object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "missing", nil, map[string]any{}),
		asking("p", "files"), asking("q", "missing")))
	n.Agent(r.args()...).WaitReady()
	awaitGateways(t, n)
	p, q := n.NewPod("p"), n.NewPod("q")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	require.Contains(t, q.CNI("ADD", ownConf).MustCode(7).Msg, "default/missing")
	n.Run("rm", "/etc/cni/net.d/02-files.conflist")
	p.CNI("DEL", ownConf).Must()
	require.Equal(t, []string{"ADD listed", "DEL listed"}, verbs(r.take()))
	writeConf(n, "02-files.conflist", `{"cniVersion":"1.0.0","name":"files","plugins":[{"type":"listed"}]}`)
	n.RequireNoLeaks(before)
}

// TestDefaultNetworkAnnotation replaces a pod's default network by a NAD.
func TestDefaultNetworkAnnotation(t *testing.T) {
	t.Parallel()
	const key = "v1.multus-cni.io/default-network"
	n := testbed.New(t)
	bond(n)
	n.WriteObjects("all.yaml", together(
		nadObject("kube-system/mac", `{"cniVersion":"1.0.0","name":"mac","type":"macvlan","master":"bond0",
			"ipam":{"type":"static","addresses":[{"address":"10.62.0.7/24","gateway":"10.62.0.1"}],"routes":[{"dst":"0.0.0.0/0"}]}}`),
		nadObject("storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.default.ovn"}`),
		subnetObject("storage", map[string]any{"provider": "storage.default.ovn", "protocol": "IPv4", "cidrBlock": "10.20.0.0/24"}),
		podObject("foreign", map[string]string{key: "mac", networksKey: "storage"}),
		podObject("own", map[string]string{key: "default/storage"})))
	n.Agent().WaitReady()
	awaitGateways(t, n)
	before := n.Inventory()
	for _, c := range []struct{ pod, network, route string }{
		{"foreign", "kube-system/mac", "default via 10.62.0.1 dev eth0"},
		{"own", "default/storage", "default via 10.20.0.1 dev eth0"},
	} {
		p := n.NewPod(c.pod)
		added := p.CNI("ADD", ownConf).Must()
		require.Equal(t, addresses(t, p, "eth0"), added.IPs())
		require.Equal(t, []string{c.route}, trimProto(defaultRoutes(p, "-4")), c.pod)
		status := statuses(t, n, "default/"+c.pod)
		require.Equal(t, c.network, status[0].Name)
		require.True(t, status[0].Default)
		p.CNI("CHECK", withPrev(ownConf, added.Stdout)).Must()
		p.CNI("DEL", ownConf).Must()
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestSeveralDelegates: further delegates of the configuration are attached
// before the pod's own networks, and what the runtime asks is for the first.
func TestSeveralDelegates(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("asked", `{"cniVersion":"1.0.0","name":"asked","type":"third"}`), asking("p", "asked")), "first", "second", "third")
	conf := `{"cniVersion":"1.0.0","name":"meta","type":"multus","capabilities":{"bandwidth":true},
		"runtimeConfig":{"bandwidth":{"ingressRate":1000}},"delegates":[
		{"cniVersion":"1.0.0","name":"main","plugins":[{"type":"kube-ovn"},{"type":"first","capabilities":{"bandwidth":true}}]},
		{"cniVersion":"0.4.0","name":"more","type":"second","capabilities":{"bandwidth":true}}]}`
	p := n.NewPod("p")
	before := n.Inventory()
	p.CNI("ADD", conf).Must()
	calls := r.take()
	require.Equal(t, []string{"ADD first", "ADD second", "ADD third"}, verbs(calls))
	for i, ifName := range []string{"eth0", "net1", "net2"} {
		require.Equal(t, ifName, calls[i].Env["CNI_IFNAME"])
		require.Equal(t, i == 0, strings.Contains(string(calls[i].Stdin), "ingressRate"), calls[i].Type)
	}
	p.CNI("DEL", conf).Must()
	require.Equal(t, []string{"DEL third", "DEL second", "DEL first"}, verbs(r.take()))
	n.RequireNoLeaks(before)
}
