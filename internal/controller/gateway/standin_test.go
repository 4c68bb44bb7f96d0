package gateway_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/ovn"
)

func subnet(name string, spec v1.SubnetSpec) *v1.Subnet {
	return &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// routeBy is a route of IPv4 by nodes, whose addresses end with their numbers.
func routeBy(nodes ...string) ovn.Policy {
	p := ovn.Policy{Match: "ip4.src == 10.0.0.0/24", Action: v1.RouteReroute, ExternalIDs: map[string]string{"vendor": "kube-ovn"}}
	for _, n := range nodes {
		p.Nexthops = append(p.Nexthops, "100.64.0."+n[1:])
		p.ExternalIDs[n] = "100.64.0." + n[1:]
	}
	return p
}

// TestReroute: routes lead away from dead nodes, to the others that they have or to the one
// that a leader would take; where nobody answers, or nobody knows better, they stay.
func TestReroute(t *testing.T) {
	t.Parallel()
	nodes := objecttest.Shelf[object.Node]{}
	for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
		n := object.Node{Name: name, Annotations: map[string]string{v1.AnnChassis: "c-" + name}}
		if name == "n4" {
			n.Down = "its condition Ready is False"
		}
		nodes["/"+name] = n
	}
	at := func(port string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("fd00::" + port[len(port)-1:]), netip.MustParseAddr("100.64.0." + port[len(port)-1:])}
	}
	ecmp := centralized("n1,n2,n3")
	ecmp.EnableEcmp = true
	four := centralized("n1,n2,n3,n5")
	four.EnableEcmp = true
	from := object.Readers{Nodes: nodes, Subnets: objecttest.Shelf[*v1.Subnet]{
		"/one": subnet("one", centralized("n2,n4,n1,n3")), "/all": subnet("all", ecmp), "/bad": subnet("bad", centralized("n2,n4")), "/alone": subnet("alone", centralized("n2")), "/four": subnet("four", four),
	}}
	key := func(subnet string) string { return "subnet/" + subnet + "/29000/ip4.src == 10.0.0.0/24" }
	for name, c := range map[string]struct {
		subnet string
		was    ovn.Policy
		dead   []string // n3 is silent too, and somebody led routes there
		want   ovn.Policy
	}{
		"it leads to others":                {"one", routeBy("n1"), []string{"n2"}, ovn.Policy{}},
		"the first good one comes":          {"one", routeBy("n2"), []string{"n2"}, routeBy("n1")},
		"those that are left stay":          {"all", routeBy("n1", "n2"), []string{"n2"}, routeBy("n1")},
		"all are dead":                      {"all", routeBy("n2"), []string{"n2"}, routeBy("n1")},
		"the others share its part":         {"four", routeBy("n2"), []string{"n2"}, routeBy("n1", "n5")},
		"one that is bad and answers comes": {"bad", routeBy("n2"), []string{"n2"}, routeBy("n4")},
		"nobody answers":                    {"alone", routeBy("n2"), []string{"n2"}, ovn.Policy{}},
		"the Subnet is gone":                {"gone", routeBy("n2"), []string{"n2"}, ovn.Policy{}},
		"it leads nowhere":                  {"one", ovn.Policy{Match: "ip4.src == 10.0.0.0/24", Action: v1.RouteDrop}, []string{"n2"}, ovn.Policy{}},
	} {
		was := map[string]ovn.Policy{key(c.subnet): c.was}
		silent := func(node string) bool { return node == "n2" || node == "n3" }
		got := gateway.Reroute(from, was, c.dead, at, silent)
		if c.want.Match == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Equal(t, map[string]ovn.Policy{key(c.subnet): c.want}, got, name)
	}
	require.Equal(t, []string{"n1", "n2"}, gateway.Used(map[string]ovn.Policy{"a": routeBy("n2"), "b": routeBy("n1", "n2")}))

	six := routeBy("n2")
	six.Match, six.Nexthops, six.ExternalIDs["n2"] = "ip6.src == fd00:10::/112", []string{"fd00::2"}, "fd00::2"
	got := gateway.Reroute(from, map[string]ovn.Policy{key("one"): six}, []string{"n2"}, at, func(node string) bool { return node == "n2" })
	require.Equal(t, []string{"fd00::1"}, got[key("one")].Nexthops)
	require.Equal(t, map[string]string{"vendor": "kube-ovn", "n1": "fd00::1"}, got[key("one")].ExternalIDs)
}

// TestWhatOthersWrote: a leader keeps the gateway to which somebody led pods in its place,
// and tells of it, also if it is a new one; one that is not good it does not keep.
func TestWhatOthersWrote(t *testing.T) {
	t.Parallel()
	p := newPlans(centralized("n2,n1,n3"))
	require.Equal(t, "n2", p.look().Active)
	p.subnet.Now = "n3"
	require.Equal(t, "n3", p.look().Active)
	require.Equal(t, []string{gateway.ReasonNode}, p.reasons())

	p.Keeper = gateway.New()
	p.subnet.Was, p.subnet.Now = "n2", "n1"
	require.Equal(t, "n1", p.look().Active)
	require.Equal(t, []string{gateway.ReasonNode}, p.reasons())
	p.nodes[0].Down = gateway.Silence
	require.Equal(t, "n2", p.look().Active)
	p.subnet.Was, p.subnet.Now = "n2", "n2"
	p.Keeper = gateway.New()
	require.Equal(t, "n2", p.look().Active)
	require.Empty(t, p.reasons())
}
