package standalone_test

import (
	"context"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// joined is what a controller gave node n1.
func joined() core.Join {
	return core.Join{
		MAC:      core.MAC{0x02, 0, 0, 0, 0x64, 7},
		Addrs:    []netip.Prefix{netip.MustParsePrefix("100.64.0.7/16"), netip.MustParsePrefix("fd00:100:64::7/112")},
		Gateways: []netip.Addr{netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("fd00:100:64::1")},
	}
}

func inVpc(name, vpc, provider string, cidrs ...string) core.Subnet {
	s := core.Subnet{Name: name, Vpc: vpc, Provider: provider}
	for _, c := range cidrs {
		s.CIDRs = append(s.CIDRs, netip.MustParsePrefix(c))
	}
	return s
}

// TestBehind: the join port leads to what OVN carries in the default Vpc.
func TestBehind(t *testing.T) {
	require.Nil(t, standalone.Behind("n1", core.Join{}, []core.Subnet{inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16")}, nil))
	node := joined()
	node.Nodes = []netip.Addr{netip.MustParseAddr("198.51.100.3")}
	j := standalone.Behind("n1", node, []core.Subnet{
		inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16", "fd16::/64"), inVpc("red", "red", "ovn", "10.17.0.0/16"),
		inVpc("lent", v1.DefaultVpc, "lan.default", "10.18.0.0/16"), inVpc("join", v1.DefaultVpc, "ovn", "100.64.0.0/16", "fd00:100:64::/112"),
		inVpc("more", v1.DefaultVpc, "more.default.ovn", "10.19.0.0/16"),
		inVpc("over", v1.DefaultVpc, "ovn", "10.20.0.0/16", "fd20::/64"), inVpc("whole", v1.DefaultVpc, "ovn", "192.0.2.0/24"),
		inVpc("others", v1.DefaultVpc, "ovn", "198.51.100.0/24"),
	}, []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fd20::7"), netip.MustParseAddr("10.17.0.1")})
	var networks []string
	for _, s := range j.Subnets {
		for _, c := range s.CIDRs {
			networks = append(networks, s.Name+" "+c.String())
		}
	}
	require.Equal(t, []string{"web 10.16.0.0/16", "web fd16::/64", "more 10.19.0.0/16", "over 10.20.0.0/16"}, networks)
	require.Equal(t, []string{"Subnet over: fd20::/64 holds fd20::7, an address of a node", "Subnet whole: 192.0.2.0/24 holds 192.0.2.7, an address of a node", "Subnet others: 198.51.100.0/24 holds 198.51.100.3, an address of a node"}, j.Left)
}

// TestJoin: the port that OVN binds to the node, its addresses and routes; what
// somebody changes is found and put right, and it goes when there is nothing to join.
func TestJoin(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	web := inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16", "fd16::/64")
	more := inVpc("more", v1.DefaultVpc, "ovn", "10.17.0.0/16")
	want := standalone.Wanted{Join: standalone.Behind("n1", joined(), []core.Subnet{web, more}, nil)}
	set := func() {
		t.Helper()
		require.NoError(t, b.gw.Set(t.Context(), want))
		require.Empty(t, b.gw.Drift(t.Context()))
	}
	routes := func() string { return b.sw.In("ip", "route") + b.sw.In("ip", "-6", "route") }
	set()
	require.Equal(t, "node-n1", b.sw.Get("Interface", "ovn0", "external_ids:iface-id"))
	require.Equal(t, "02:00:00:00:64:07", strings.Trim(b.sw.Get("Interface", "ovn0", "mac_in_use"), `"`))
	require.Contains(t, b.sw.In("ip", "addr", "show", "ovn0"), "inet 100.64.0.7/16 ")
	for _, r := range []string{"10.16.0.0/16 via 100.64.0.1 dev ovn0 proto static", "10.17.0.0/16 via 100.64.0.1 dev ovn0 proto static", "fd16::/64 via fd00:100:64::1 dev ovn0 proto static"} {
		require.Contains(t, routes(), r)
	}
	links, err := b.gw.Links(want)
	require.NoError(t, err)
	require.Len(t, links.Links, 1)
	require.Equal(t, links.Links, links.Routes, "news of routes over it are heard")

	for what, change := range map[string]func(){
		"lacks route 10.17.0.0/16":         func() { b.sw.In("ip", "route", "del", "10.17.0.0/16") },
		"route 10.99.0.0/16 too much":      func() { b.sw.In("ip", "route", "add", "10.99.0.0/16", "via", "100.64.0.1", "dev", "ovn0") },
		"lacks address fd00:100:64::7/112": func() { b.sw.In("ip", "addr", "del", "fd00:100:64::7/112", "dev", "ovn0") },
	} {
		change()
		drift := b.gw.Drift(t.Context())
		require.ErrorIs(t, drift[standalone.JoinPort], core.ErrDrift)
		require.ErrorContains(t, drift[standalone.JoinPort], what)
		set()
	}

	// A Subnet goes, and the node has another address.
	j := joined()
	j.Addrs[0] = netip.MustParsePrefix("100.64.0.8/16")
	want.Join = standalone.Behind("n1", j, []core.Subnet{web}, nil)
	set()
	require.NotContains(t, routes(), "10.17.0.0/16")
	require.NotContains(t, b.sw.In("ip", "addr", "show", "ovn0"), "100.64.0.7")

	// natOutgoing is masqueraded, and what goes to pods and nodes is not.
	require.NotContains(t, b.sw.In("ipset", "save", "ovn40subnets-nat"), "add")
	web.NATOutgoing = true
	j.Nodes = []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("fd00:2::9")}
	want.Join = standalone.Behind("n1", j, []core.Subnet{web, more}, nil)
	require.Empty(t, b.gw.Drift(t.Context()), "what is wanted and not made yet nobody has changed")
	set()
	b.sw.In("ipset", "flush", "ovn60other-node")
	b.sw.In("ipset", "flush", "ovn60subnets-nat")
	drift := b.gw.Drift(t.Context())
	require.ErrorContains(t, drift[standalone.Filtered], "set ovn60other-node lacks fd00:2::9/128")
	require.ErrorContains(t, drift[standalone.Filtered], "set ovn60subnets-nat lacks fd16::/64")
	set()
	for set, networks := range map[string][]string{
		"ovn40subnets-nat": {"10.16.0.0/16"}, "ovn60subnets-nat": {"fd16::/64"},
		"ovn40other-node": {"192.0.2.9"}, "ovn60other-node": {"fd00:2::9"},
		"ovn40subnets": {"10.16.0.0/16", "10.17.0.0/16", "100.64.0.0/16"}, "ovn60subnets": {"fd00:100:64::/112", "fd16::/64"},
	} {
		var has []string
		for line := range strings.Lines(b.sw.In("ipset", "save", set)) {
			if f := strings.Fields(line); f[0] == "add" {
				has = append(has, f[2])
			}
		}
		require.ElementsMatch(t, networks, has, set)
	}
	b.sw.In("iptables", "-t", "nat", "-F")
	require.ErrorIs(t, b.gw.Drift(t.Context())[standalone.Filtered], core.ErrDrift)
	set()

	want.Join = nil
	set()
	require.Eventually(t, func() bool { return !strings.Contains(b.sw.In("ip", "-o", "link"), "ovn0") }, time.Minute, 10*time.Millisecond,
		"ovs-vswitchd removes it after its row")
	require.NotContains(t, routes(), "10.16.0.0/16")
}

// TestJoinKept: routes to Subnets that somebody deletes, or adds over the node's port, are
// heard of and put right, whatever protocol they have.
func TestJoinKept(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	want := standalone.Wanted{Join: standalone.Behind("n1", joined(), []core.Subnet{inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16", "fd16::/64")}, nil)}
	require.NoError(t, b.gw.Set(t.Context(), want))

	watch, err := rtnl.NewWatch(b.sw.NS)
	require.NoError(t, err)
	links, err := b.gw.Links(want)
	require.NoError(t, err)
	require.NoError(t, watch.Aim(links))
	ctx, stop := context.WithCancel(t.Context())
	heard, done := make(chan struct{}, 1000), make(chan struct{})
	go func() { _ = watch.Run(ctx, func() { heard <- struct{}{} }); close(done) }()
	defer func() { stop(); <-done }()
	routes := func() string { return b.sw.In("ip", "route") + b.sw.In("ip", "-6", "route") }
	was := routes()
	for _, harm := range [][]string{
		{"route", "del", "10.16.0.0/16"}, {"-6", "route", "del", "fd16::/64"}, {"route", "add", "10.99.0.0/16", "via", "100.64.0.1", "dev", "ovn0"}, {"route", "flush", "proto", "static"},
	} {
		b.sw.In("ip", harm...)
		require.Eventually(t, func() bool {
			select {
			case <-heard:
				require.NoError(t, b.gw.Set(t.Context(), want))
			default:
			}
			return routes() == was
		}, patient, 10*time.Millisecond, "after %v:\n%s", harm, routes())
	}
}

// TestRatesOfANode: the join port has the rates of the Node, as they are now; what somebody
// changes of them is found, they are there after a restart of the switch or without its
// database, and go without a row left.
func TestRatesOfANode(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	set := func(q core.QoS) {
		t.Helper()
		j := joined()
		j.QoS = q
		require.NoError(t, b.gw.Set(t.Context(), standalone.Wanted{Join: standalone.Behind("n1", j, nil, nil)}))
		require.Empty(t, b.gw.Drift(t.Context()))
	}
	shaped := func(ceil string) {
		t.Helper()
		require.Eventually(t, func() bool {
			return strings.Contains(b.sw.In("tc", "class", "show", "dev", "ovn0"), "ceil "+ceil+" ")
		}, patient, 10*time.Millisecond)
	}
	set(core.QoS{IngressMbps: 30, EgressMbps: 20, EgressBurstMbit: 5})
	require.Equal(t, []string{"20000", "5000"}, []string{b.sw.Get("Interface", "ovn0", "ingress_policing_rate"), b.sw.Get("Interface", "ovn0", "ingress_policing_burst")})
	require.Equal(t, "node-n1", b.sw.Get("QoS", b.sw.Get("Port", "ovn0", "qos"), "external_ids:iface-id"))
	shaped("30Mbit")
	set(core.QoS{IngressMbps: 40})
	require.Equal(t, "0", b.sw.Get("Interface", "ovn0", "ingress_policing_rate"))
	shaped("40Mbit")

	b.sw.Vsctl("clear", "Port", "ovn0", "qos")
	require.Eventually(t, func() bool { return b.gw.Drift(t.Context())[standalone.JoinPort] != nil }, patient, 10*time.Millisecond)
	require.ErrorContains(t, b.gw.Drift(t.Context())[standalone.JoinPort], "port ovn0: QoS is none")
	set(core.QoS{IngressMbps: 40})
	for _, lost := range []bool{false, true} {
		b.sw.ExitSwitchd()
		if lost {
			b.sw.KillServer()
			require.Eventually(t, func() bool { return b.ovs.Connected() != nil }, patient, 10*time.Millisecond)
			b.sw.CreateDB()
			b.sw.StartServer()
		}
		b.sw.StartSwitchd()
		b.ready()
		require.Eventually(t, func() bool {
			j := joined()
			j.QoS = core.QoS{IngressMbps: 40}
			return b.gw.Set(t.Context(), standalone.Wanted{Join: standalone.Behind("n1", j, nil, nil)}) == nil
		}, patient, 10*time.Millisecond)
		shaped("40Mbit")
	}
	set(core.QoS{})
	require.Zero(t, b.sw.Count("QoS")+b.sw.Count("Queue"))
	require.Eventually(t, func() bool { return b.sw.In("tc", "class", "show", "dev", "ovn0") == "" }, patient, 10*time.Millisecond)
}

// TestAliases: pods leave as an address that gatewayNode gives the node as soon as it has
// it, and as the node without it; addresses for other nodes are none of ours.
func TestAliases(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.sw.In("ip", "link", "add", "nic0", "up", "type", "veth", "peer", "name", "nic1")
	b.sw.In("ip", "addr", "add", "192.0.2.7/24", "dev", "nic0")
	web := inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16", "fd16::/64")
	web.NATOutgoing, web.Centralized = true, true
	web.Exits = []core.Exit{{Node: "n2", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}, {Node: "n1", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.50"), netip.MustParseAddr("fd02::50")}}}
	var want standalone.Wanted
	set := func() string {
		t.Helper()
		own, err := b.gw.Own()
		require.NoError(t, err)
		want.Join = standalone.Behind("n1", joined(), []core.Subnet{web}, own)
		require.NoError(t, b.gw.Set(t.Context(), want))
		require.Empty(t, b.gw.Drift(t.Context()))
		return b.sw.In("iptables-save", "-t", "nat") + b.sw.In("ip6tables-save", "-t", "nat")
	}
	require.NotContains(t, set(), "to-source")
	links, err := b.gw.Links(want)
	require.NoError(t, err)
	number, _, _ := strings.Cut(b.sw.In("ip", "-o", "link", "show", "nic0"), ":")
	index, err := strconv.Atoi(number)
	require.NoError(t, err)
	require.Contains(t, links.Links, index, "news of the device are heard")
	for _, step := range []struct {
		do   []string
		says string
		as   []string
	}{
		{[]string{"add", "192.0.2.50/24"}, "node has 192.0.2.50, as which pods of Subnet web leave is true, want false", []string{"192.0.2.50"}},
		{[]string{"add", "fd02::50/64", "nodad"}, "node has fd02::50", []string{"192.0.2.50", "fd02::50"}},
		{[]string{"del", "192.0.2.50/24"}, "node has 192.0.2.50, as which pods of Subnet web leave is false, want true", []string{"fd02::50"}},
	} {
		b.sw.In("ip", append(append([]string{"addr"}, step.do...), "dev", "nic0")...)
		require.ErrorContains(t, b.gw.Drift(t.Context())[standalone.Filtered], step.says)
		rules := set()
		require.Equal(t, len(step.as), strings.Count(rules, "to-source"), rules)
		for _, as := range step.as {
			require.Contains(t, rules, "--to-source "+as+" --random-fully")
		}
	}
}

// TestJoinLeavesNodeAlone: a Subnet that covers the node's addresses takes no route from
// it, and one that was routed is no more when the node gets an address in it.
func TestJoinLeavesNodeAlone(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.sw.In("ip", "link", "add", "nic0", "up", "type", "veth", "peer", "name", "nic1")
	b.sw.In("ip", "link", "set", "nic1", "up")
	for _, a := range []string{"10.0.0.5/24", "fd00:a::5/64"} {
		b.sw.In("ip", "addr", "add", a, "dev", "nic0", "nodad")
	}
	b.sw.In("ip", "route", "add", "default", "via", "10.0.0.1")
	subnets := []core.Subnet{
		inVpc("nodes", v1.DefaultVpc, "ovn", "10.0.0.0/24", "fd00:a::/64"), inVpc("wide", v1.DefaultVpc, "ovn", "10.0.0.0/8"),
		inVpc("web", v1.DefaultVpc, "ovn", "172.16.0.0/16"),
	}
	set := func() string {
		t.Helper()
		own, err := b.gw.Own()
		require.NoError(t, err)
		want := standalone.Wanted{Join: standalone.Behind("n1", joined(), subnets, own)}
		require.NoError(t, b.gw.Set(t.Context(), want))
		require.Empty(t, b.gw.Drift(t.Context()))
		return b.sw.In("ip", "route") + b.sw.In("ip", "-6", "route")
	}
	for range 2 { // the join port's own addresses are none of the node's the second time
		routes := set()
		require.Contains(t, routes, "172.16.0.0/16 via 100.64.0.1 dev ovn0")
		require.Contains(t, routes, "10.0.0.0/24 dev nic0")
		require.Contains(t, routes, "fd00:a::/64 dev nic0")
		require.Contains(t, b.sw.In("ip", "route", "get", "10.0.0.9"), "dev nic0")
		require.NotContains(t, routes, "10.0.0.0/8")
	}
	b.sw.In("ip", "addr", "add", "172.16.3.4/24", "dev", "nic0")
	require.NotContains(t, set(), "172.16.0.0/16")
}
