package declare_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

func subnet(t *testing.T, name, cidr string, change func(*v1.SubnetSpec)) *declare.Subnet {
	t.Helper()
	spec := v1.SubnetSpec{CIDRBlock: cidr}
	if change != nil {
		change(&spec)
	}
	s, faults := declare.ReadSubnet(name, spec)
	require.Empty(t, faults)
	return &s
}

func names(all []core.Subnet) (out []string) {
	for _, s := range all {
		if s.Default {
			s.Name += "+"
		}
		out = append(out, s.Name)
	}
	return out
}

// A changed Subnet that contradicts another keeps its last good version, and is
// then as much in force as those that did not change.
func TestTheLastGoodVersionStays(t *testing.T) {
	a, b := subnet(t, "a", "10.1.0.0/16", nil), subnet(t, "b", "10.2.0.0/16", nil)
	first, refused := declare.Book{}.Next([]*declare.Subnet{a, b}, nil)
	require.Empty(t, refused)

	moved := subnet(t, "a", "10.2.0.0/24", nil)
	intruder := subnet(t, "c", "10.1.1.0/24", nil)
	next, refused := first.Next([]*declare.Subnet{moved, b, intruder}, nil)
	require.Equal(t, "spec.cidrBlock: 10.2.0.0/24 overlaps 10.2.0.0/16 of Subnet b", refused["a"].String())
	require.Contains(t, refused["c"].Reason, "overlaps 10.1.0.0/16 of Subnet a", "what a falls back to counts")
	require.True(t, next.Has("a") && next.Has("b") && !next.Has("c"))
}

// A Subnet in force may change although another, older one waits for its addresses.
func TestWhatIsInForceMayChange(t *testing.T) {
	b := subnet(t, "b", "10.2.0.0/16", nil)
	first, refused := declare.Book{}.Next([]*declare.Subnet{b}, nil)
	require.Empty(t, refused)
	waiting := subnet(t, "a", "10.2.1.0/24", nil)
	changed := subnet(t, "b", "10.2.0.0/16", func(s *v1.SubnetSpec) { s.ExcludeIps = []string{"10.2.0.9"} })
	next, refused := first.Next([]*declare.Subnet{waiting, changed}, nil)
	require.Equal(t, changed, next.Declared("b"))
	require.Equal(t, "spec.cidrBlock: 10.2.1.0/24 overlaps 10.2.0.0/16 of Subnet b", refused["a"].String())
	require.Len(t, refused, 1)
}

// A Subnet keeps its VLAN when the Vlan object goes, and takes another id.
func TestVlans(t *testing.T) {
	s := subnet(t, "s", "10.1.0.0/16", func(spec *v1.SubnetSpec) { spec.Vlan = "v" })
	_, refused := declare.Book{}.Next([]*declare.Subnet{s}, nil)
	require.Equal(t, `spec.vlan: there is no Vlan "v"`, refused["s"].String())
	book, _ := declare.Book{}.Next([]*declare.Subnet{s}, map[string]declare.Vlan{"v": {ID: 7}})
	kept, refused := book.Next([]*declare.Subnet{s}, nil)
	require.Contains(t, refused, "s")
	all, _ := kept.Serving(true)
	require.Equal(t, 7, all[0].VLAN)
	changed, refused := kept.Next([]*declare.Subnet{s}, map[string]declare.Vlan{"v": {ID: 8}})
	require.Empty(t, refused)
	all, _ = changed.Serving(true)
	require.Equal(t, 8, all[0].VLAN)
}

func TestOneDefault(t *testing.T) {
	serving := func(withheld bool, list ...*declare.Subnet) ([]string, string) {
		book, _ := declare.Book{}.Next(list, nil)
		all, blamed := book.Serving(withheld)
		return names(all), blamed
	}
	got, blamed := serving(false)
	require.Equal(t, []string{"ovn-default+"}, got)
	require.Empty(t, blamed)
	got, _ = serving(true)
	require.Empty(t, got, "a Subnet that is wrong is meant to be the default")
	got, blamed = serving(false, subnet(t, "a", "10.16.1.0/24", nil))
	require.Equal(t, []string{"a"}, got)
	require.Equal(t, "a", blamed)
	first := func(spec *v1.SubnetSpec) { spec.Default = true }
	got, _ = serving(false, subnet(t, "a", "10.1.0.0/16", first), subnet(t, "b", "10.2.0.0/16", first))
	require.Equal(t, []string{"a+"}, got, "the second default is refused")
	got, _ = serving(false, subnet(t, "ovn-default", "10.1.0.0/16", nil))
	require.Equal(t, []string{"ovn-default+"}, got)
}

// TestVpcs: addresses and defaults are each Vpc's own, and only the default Vpc's
// Subnet serves pods that choose none.
func TestVpcs(t *testing.T) {
	in := func(vpc string, isDefault bool) func(*v1.SubnetSpec) {
		return func(s *v1.SubnetSpec) { s.Vpc, s.Default = vpc, isDefault }
	}
	book, refused := declare.Book{}.Next([]*declare.Subnet{
		subnet(t, "red", "10.1.0.0/16", in("red", true)), subnet(t, "blue", "10.1.0.0/16", in("blue", true)),
		subnet(t, "all", "10.1.0.0/16", in("", true)), subnet(t, "again", "10.1.0.0/24", in("blue", false)),
		subnet(t, "builtin", "10.16.0.0/16", in("red", false)),
	}, nil)
	require.Len(t, refused, 1)
	require.Equal(t, "spec.cidrBlock: 10.1.0.0/24 overlaps 10.1.0.0/16 of Subnet blue", refused["again"].String())
	all, blamed := book.Serving(false)
	require.Empty(t, blamed)
	require.Equal(t, []string{"all+", "blue", "builtin", "red"}, names(all))
	require.Equal(t, "red", book.Declared("builtin").Vpc)
	require.Equal(t, v1.DefaultVpc, book.Declared("all").Vpc)

	alone, _ := declare.Book{}.Next([]*declare.Subnet{subnet(t, "red", "10.16.0.0/16", in("red", true))}, nil)
	all, blamed = alone.Serving(false)
	require.Empty(t, blamed, "the built-in Subnet is of another Vpc")
	require.Equal(t, []string{"ovn-default+", "red"}, names(all))
}

// TestNeedsOVN: what only OVN carries out is refused where there is none, and each
// rule is looked at where there is.
func TestNeedsOVN(t *testing.T) {
	spec := v1.SubnetSpec{
		CIDRBlock: "10.1.0.0/16", Private: true, Vpc: "red", AllowSubnets: []string{" 10.2.0.7/16 "}, AllowEWTraffic: true,
		Acls: []v1.ACL{{Direction: v1.ToPort, Priority: 7, Match: " ip4 ", Action: "drop"}},
	}
	s, faults := declare.ReadSubnet("s", spec)
	require.Empty(t, faults)
	require.Equal(t, declare.Access{
		Private: true, Allow: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, EastWest: true,
		Rules: []declare.Rule{{Direction: v1.ToPort, Priority: 7, Match: "ip4", Action: "drop"}},
	}, s.Access)
	var paths []string
	for _, f := range declare.NeedsOVN(spec) {
		paths = append(paths, f.Path)
	}
	require.Equal(t, []string{"spec.private", "spec.acls", "spec.vpc"}, paths)
	require.Empty(t, declare.NeedsOVN(v1.SubnetSpec{Vpc: v1.DefaultVpc, AllowSubnets: []string{"10.2.0.0/16"}}))

	good := spec.Acls[0]
	for path, change := range map[string]func(*v1.ACL){
		"spec.acls[0].direction": func(a *v1.ACL) { a.Direction = "" },
		"spec.acls[0].priority":  func(a *v1.ACL) { a.Priority = 40000 },
		"spec.acls[0].match":     func(a *v1.ACL) { a.Match = " " },
		"spec.acls[0].action":    func(a *v1.ACL) { a.Action = "" },
	} {
		bad := good
		change(&bad)
		spec.Acls = []v1.ACL{bad}
		_, faults := declare.ReadSubnet("s", spec)
		require.Len(t, faults, 1)
		require.Equal(t, path, faults[0].Path)
	}
}

// TestNATRules: which packets get the node's address is read in order; a rule that is not
// clear is named.
func TestNATRules(t *testing.T) {
	read := func(rules ...v1.NatPolicyRule) ([]core.NATRule, []declare.Fault) {
		s, faults := declare.ReadSubnet("s", v1.SubnetSpec{CIDRBlock: "10.1.0.0/16,fd00:1::/64", NatOutgoing: true, NatOutgoingPolicy: rules})
		return s.NATRules, faults
	}
	match := func(src, dst string) v1.NatPolicyRule {
		return v1.NatPolicyRule{Action: v1.NATForward, Match: v1.NatPolicyMatch{SrcIPs: src, DstIPs: dst}}
	}
	p := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	got, faults := read(match("10.1.0.7/24, 10.1.1.1", ""), match("", "fd00:9::/64,::/0"), v1.NatPolicyRule{Action: v1.NATTranslate})
	require.Empty(t, faults)
	require.Equal(t, []core.NATRule{
		{Src: []netip.Prefix{p("10.1.0.0/24"), p("10.1.1.1/32")}, Keep: true}, {Dst: []netip.Prefix{p("fd00:9::/64"), p("::/0")}, Keep: true}, {},
	}, got)
	good := match("10.1.0.1", "")
	for path, bad := range map[string]v1.NatPolicyRule{
		"spec.natOutgoingPolicyRules[1].match.srcIPs": match("10.1.0.300", ""),
		"spec.natOutgoingPolicyRules[1].match.dstIPs": match("10.1.0.1", "10.2.0.0/33"),
		"spec.natOutgoingPolicyRules[1].match":        match("10.1.0.1", "fd00::/64"),
		"spec.natOutgoingPolicyRules[1].action":       {Action: "snat"},
	} {
		_, faults := read(good, bad)
		require.Len(t, faults, 1, path)
		require.Equal(t, path, faults[0].Path)
	}
	_, faults = read(match("10.1.0.1,fd00::1", ""))
	require.Contains(t, faults[0].String(), "both families")
	_, faults = read(make([]v1.NatPolicyRule, 1001)...)
	require.Contains(t, faults[0].String(), "1000 may be")
}

// One table of routes has one gateway: of Subnets that contradict each other in that the
// first is in force.
func TestOneGatewayInATable(t *testing.T) {
	by := func(gateways string, table uint32, nat bool) func(*v1.SubnetSpec) {
		return func(s *v1.SubnetSpec) {
			s.ExternalEgressGateway, s.PolicyRoutingTableID, s.PolicyRoutingPriority, s.NatOutgoing = gateways, table, 100, nat
		}
	}
	a, b := subnet(t, "a", "10.1.0.0/16,fd01::/64", by("192.0.2.1,fd00::1", 1000, false)), subnet(t, "b", "10.2.0.0/16", by("192.0.2.1", 1000, false))
	other, third := subnet(t, "c", "fd03::/64", by("fd00::2", 1000, false)), subnet(t, "d", "fd04::/64", by("fd00::2", 1001, false))
	masked := subnet(t, "e", "10.5.0.0/16", by("192.0.2.9", 1000, true))
	next, refused := declare.Book{}.Next([]*declare.Subnet{a, b, other, third, masked}, nil)
	require.Len(t, refused, 1)
	require.Equal(t, "spec.policyRoutingTableID: table 1000 leads to fd00::1 for Subnet a", refused["c"].String())
	require.Equal(t, &core.Egress{Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Table: 1000, Priority: 100}, next.Declared("b").Egress)
	require.Nil(t, next.Declared("e").Egress, "its pods leave as their node does")
	require.Equal(t, &core.Egress{
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Table: 1000, Priority: 100, By: []string{"n1", "n2"}, Where: []string{"edge=true,zone in (a,b)"},
	}, subnet(t, "f", "10.6.0.0/16", func(s *v1.SubnetSpec) {
		by("192.0.2.1", 1000, false)(s)
		s.GatewayType, s.GatewayNode = v1.GatewayCentralized, "n1, n2:192.0.2.7, -"
		s.GatewayNodeSelectors = []metav1.LabelSelector{{}, {MatchLabels: map[string]string{"edge": "true"}, MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "zone", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}},
		}}, {MatchLabels: map[string]string{"-": "-"}}}
	}).Egress, "of its gateway nodes")
}

// TestExits: of a centralized Subnet's gateway nodes those have addresses for its pods
// whose families these have; a bad one costs nothing.
func TestExits(t *testing.T) {
	of := func(cidr string, change func(*v1.SubnetSpec)) *declare.Subnet {
		return subnet(t, "web", cidr, func(s *v1.SubnetSpec) {
			s.NatOutgoing, s.GatewayType, s.GatewayNode = true, v1.GatewayCentralized, "n1:192.0.2.1, n2, n3:fd00::3,n1:fd00::1,n4:x"
			if change != nil {
				change(s)
			}
		})
	}
	exit := func(node string, ips ...string) core.Exit {
		e := core.Exit{Node: node}
		for _, ip := range ips {
			e.IPs = append(e.IPs, netip.MustParseAddr(ip))
		}
		return e
	}
	both := of("10.1.0.0/16,fd01::/64", nil)
	require.True(t, both.Centralized)
	require.Equal(t, []core.Exit{exit("n1", "192.0.2.1", "fd00::1"), exit("n3", "fd00::3")}, both.Exits)
	require.Equal(t, []core.Exit{exit("n1", "192.0.2.1")}, of("10.1.0.0/16", nil).Exits)
	for _, change := range []func(*v1.SubnetSpec){
		func(s *v1.SubnetSpec) { s.Vpc = "another" }, func(s *v1.SubnetSpec) { s.GatewayType = "" },
		func(s *v1.SubnetSpec) { s.Provider = "net.default" }, func(s *v1.SubnetSpec) { s.NatOutgoing = false },
	} {
		require.Empty(t, of("10.1.0.0/16", change).Exits)
	}
}

// TestReadExternal: what is wrong with the external gateway is named by its key.
func TestReadExternal(t *testing.T) {
	good := map[string]string{
		"enable-external-gw": "true", "type": "centralized", "external-gw-nodes": "n2, n1,n2", "external-gw-nic": "eth1",
		"external-gw-addr": "172.56.0.1/16,fd00:56::1", "nic-ip": "172.56.0.254/16,fd00:56::fe/64", "nic-mac": "16:52:f3:13:6a:25",
	}
	e, faults := declare.ReadExternal(good)
	require.Empty(t, faults)
	require.Equal(t, []string{"n2", "n1"}, e.Nodes)
	require.Equal(t, "172.56.0.1 fd00:56::1 172.56.0.254/16 eth1 16:52:f3:13:6a:25", fmt.Sprint(e.Gateways[0], " ", e.Gateways[1], " ", e.Networks[0], " ", e.NIC, " ", e.MAC))
	require.True(t, e.IsGateway("n1", nil))
	require.True(t, e.IsGateway("n9", map[string]string{"ovn.kubernetes.io/external-gw": "true"}))
	require.False(t, e.IsGateway("n9", map[string]string{"ovn.kubernetes.io/external-gw": "false"}))
	for key, bad := range map[string][]string{
		"enable-external-gw": {"yes"}, "type": {"distributed"}, "external-gw-nodes": {"n1,-"}, "external-gw-nic": {"", "a b", "sixteencharacters"},
		"external-gw-addr": {"", "x", "172.57.0.1", "172.56.0.254", "172.56.0.1,172.56.0.2"},
		"nic-ip":           {"", "172.56.0.254", "172.56.0.0/16", "172.56.0.254/16,172.57.0.254/16"}, "nic-mac": {"x", "01:52:f3:13:6a:25", "16:52:f3:13:6a:25:00:00"},
	} {
		for _, value := range bad {
			data := maps.Clone(good)
			data[key] = value
			_, faults := declare.ReadExternal(data)
			require.NotEmpty(t, faults, "%s: %q", key, value)
			require.True(t, slices.ContainsFunc(faults, func(f declare.Fault) bool { return f.Path == "data."+key }), "%s: %q: %v", key, value, faults)
		}
	}
	for _, off := range []string{"", "false"} {
		e, faults = declare.ReadExternal(map[string]string{"enable-external-gw": off, "nic-ip": "x"})
		require.Nil(t, e)
		require.Empty(t, faults)
	}
}
