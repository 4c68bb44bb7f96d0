package controller_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// chassis declares a node that may be a gateway.
func (w *world) chassis(name, down string) {
	now, _ := lister[object.Node]{w, object.KindNode}.Get("", name)
	notes := map[string]string{v1.AnnChassis: "c-" + name}
	for key, value := range now.Annotations {
		notes[key] = value
	}
	w.set(nodeKey(name), object.Node{Name: name, UID: "uid-" + name, Annotations: notes, Labels: map[string]string{"edge": "true"}, Down: down,
		IPs: []netip.Addr{netip.MustParseAddr("192.0.2." + strings.TrimPrefix(name, "n"))}})
}

// gateway waits until a Subnet's status names a gateway, and its condition says this.
func (w *world) gateway(t *testing.T, name, active, condition string) {
	t.Helper()
	var got string
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", name)
		i := slices.IndexFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionGateway })
		if i < 0 {
			return false
		}
		c := o.Status.Conditions[i]
		got = o.Status.ActivateGateway + " " + c.Status + " " + c.Reason + " " + c.Message
		return got == active+" "+condition
	}, patience, tick, "Subnet %s: wanted %s %s, got %s", name, active, condition, said{&got})
}

// said is a text as it is when it is printed.
type said struct{ *string }

func (s said) String() string { return *s.string }

// TestCentralized: the gateways of a Subnet are in the database in their order, which is
// that of a new leader too; a Subnet whose last gateway goes says so, and its pods do not
// leave by another node.
func TestCentralized(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	for _, n := range []string{"n1", "n2", "n3"} {
		w.chassis(n, "")
	}
	spec := v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true, GatewayType: v1.GatewayCentralized, GatewayNode: "n2,n1,n9"}
	w.subnet("plain", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	first := lead(t, "one", w, db)
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(lister[object.Node]{w, object.KindNode}.List(), func(n object.Node) bool { return n.Annotations["ovn.kubernetes.io/ip_address"] == "" })
	}, patience, tick, "the first node to come would be the gateway, and stay it")
	w.subnet("web", spec)
	w.gateway(t, "web", "n2", "True SomeNotReady spec.gatewayNode: there is no node n9")

	policies := func() string {
		return strings.TrimSpace(db.Nbctl("--bare", "--columns=action,match,nexthops", "find", "logical_router_policy", "priority=29000"))
	}
	const from = "ip4.src == 10.20.0.0/24"
	at := func(nodes ...string) (ips []string) {
		for _, name := range nodes {
			n, _ := lister[object.Node]{w, object.KindNode}.Get("", name)
			ips = append(ips, n.Annotations["ovn.kubernetes.io/ip_address"])
		}
		slices.Sort(ips)
		return ips
	}
	by := func(node string) string { return "reroute\n" + from + "\n" + at(node)[0] }
	goes := func(node string) {
		t.Helper()
		require.Eventually(t, func() bool { return policies() == by(node) }, patience, tick, node)
	}
	goes("n2")
	require.Contains(t, db.Nbctl("--bare", "--columns=external_ids", "find", "logical_router_policy", "priority=29000"), "n2=100.64.0.")

	// One that is not ready is left for the next one, which stays, under another leader too.
	w.chassis("n2", "its condition Ready is Unknown")
	w.gateway(t, "web", "n1", "True SomeNotReady spec.gatewayNode: there is no node n9; node n2: its condition Ready is Unknown")
	goes("n1")
	w.warns(t, "web", `SubnetGatewayNodeChanged: gateway node changes from "n2" to "n1"`)
	w.chassis("n2", "")
	w.gateway(t, "web", "n1", "True SomeNotReady spec.gatewayNode: there is no node n9")

	// One that does not answer is left as well, whatever its Node says; what is told
	// follows the rows.
	const back = `SubnetGatewayNodeChanged: gateway node changes from "n1" to "n2"`
	first.stuck.Store(true)
	w.silent.Store("n1", true)
	first.Heard()
	require.Eventually(t, func() bool { _, did := first.failed.Load("gateways' rows are refused"); return did }, patience, tick)
	require.NotContains(t, w.warned(subnetKey("web")), back)
	first.stuck.Store(false)
	first.Heard()
	w.gateway(t, "web", "n2", "True SomeNotReady spec.gatewayNode: there is no node n9; node n1: it does not answer")
	goes("n2")
	w.warns(t, "web", back)
	w.silent.Delete("n1")
	first.Heard()
	w.gateway(t, "web", "n2", "True SomeNotReady spec.gatewayNode: there is no node n9")
	w.silent.Store("n2", true)
	first.Heard()
	w.gateway(t, "web", "n1", "True SomeNotReady spec.gatewayNode: there is no node n9; node n2: it does not answer")
	w.silent.Delete("n2")
	first.stop()
	lead(t, "two", w, db)
	w.chassis("n3", "its condition Ready is Unknown")
	w.gateway(t, "web", "n1", "True SomeNotReady spec.gatewayNode: there is no node n9")
	goes("n1")
	w.chassis("n3", "")
	w.chassis("n1", "its condition Ready is Unknown")
	goes("n2")

	// None that is ready, and none at all.
	w.chassis("n2", "its condition NetworkUnavailable is True")
	w.gateway(t, "web", "", "False NoGatewayNode pods do not get out of the cluster, since no gateway is ready: spec.gatewayNode: there is no node n9; "+
		"node n2: its condition NetworkUnavailable is True; node n1: its condition Ready is Unknown")
	require.Contains(t, policies(), "reroute\n"+from, "it may be that they are only said to be down")
	w.set(nodeKey("n1"), nil)
	w.set(nodeKey("n2"), nil)
	require.Eventually(t, func() bool { return policies() == "drop\n"+from }, patience, tick)
	w.warns(t, "web", "NoGatewayNode: pods do not get out")
	w.pod("a", "1")
	require.NotEmpty(t, w.ip(t, "a"))

	// By labels, with ECMP; and distributed again.
	spec.GatewayNode, spec.EnableEcmp = "", true
	spec.GatewayNodeSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"edge": "true"}}}
	w.respec("web", spec)
	w.chassis("n1", "")
	w.gateway(t, "web", "", "True CarriedOut ")
	require.Eventually(t, func() bool { // each with a part of its own
		hops := strings.Fields(db.Nbctl("--bare", "--columns=nexthops", "find", "logical_router_policy", "priority=29000"))
		slices.Sort(hops)
		return slices.Equal(hops, at("n1", "n3")) && strings.Count(policies(), from+" && (") == 2
	}, patience, tick)
	w.respec("web", v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true})
	w.gateway(t, "web", "", "True Distributed pods leave by their own node")
	w.warns(t, "web", `SubnetGatewayTypeChanged: subnet gateway type changes from "centralized" to "distributed"`)
	require.Eventually(t, func() bool { return policies() == "" }, patience, tick)
}

// warns waits for an event of a Subnet.
func (w *world) warns(t *testing.T, name, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(w.warned(subnetKey(name)), func(e string) bool { return strings.HasPrefix(e, text) })
	}, patience, tick, "%s: %s", name, text)
}

// respec changes a Subnet's spec.
func (w *world) respec(name string, spec v1.SubnetSpec) {
	now, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", name)
	o := now.DeepCopy()
	o.Spec = spec
	w.set(subnetKey(name), o)
}

// TestRefusedGateway: a change of a Subnet that is refused changes nothing of its way out
// either.
func TestRefusedGateway(t *testing.T) {
	t.Parallel()
	w, db := newWorld(), database(t)
	w.chassis("n1", "")
	spec := v1.SubnetSpec{CIDRBlock: "10.20.0.0/24", Default: true}
	w.subnet("web", spec)
	w.subnet("taken", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24"})
	lead(t, "one", w, db)
	w.pod("a", "1")
	w.ip(t, "a")
	spec.GatewayType, spec.GatewayNode, spec.CIDRBlock = v1.GatewayCentralized, "nowhere", "10.20.0.0/24,fd20::/120"
	spec.ExcludeIps = []string{"10.99.0.1"}
	w.subnet("web", spec)
	require.Eventually(t, func() bool {
		o, _ := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", "web")
		return slices.ContainsFunc(o.Status.Conditions, func(c v1.Condition) bool { return c.Type == v1.ConditionReady && c.Status == "False" })
	}, patience, tick)
	exits := func() string {
		return db.Nbctl("--bare", "--columns=action", "find", "Logical_Router_Policy", "priority=29000")
	}
	w.chassis("n2", "") // has the ways out looked at
	w.subnet("taken", v1.SubnetSpec{CIDRBlock: "10.21.0.0/24", GatewayType: v1.GatewayCentralized, GatewayNode: "nowhere"})
	require.Eventually(t, func() bool { return strings.Contains(exits(), "drop") }, patience, tick)
	require.Equal(t, 1, strings.Count(exits(), "drop"), "of the other Subnet alone")
	spec.ExcludeIps = nil
	w.subnet("web", spec)
	require.Eventually(t, func() bool { return strings.Count(exits(), "drop") >= 2 }, patience, tick)
}
