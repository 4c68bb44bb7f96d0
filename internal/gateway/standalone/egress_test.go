package standalone_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// firewall is a machine beyond the node on a link of its own, which knows the way back
// to pods by the node.
func (b *bed) firewall(pods ...netip.Prefix) {
	t := b.t
	t.Helper()
	w := b.wire(rtnl.Veth{Name: "egress"})
	require.NoError(t, w.in.SetUp(w.far))
	for _, a := range []string{"198.51.100.1/24", "2001:db8:51::1/64"} {
		require.NoError(t, w.host.AddAddr(w.near, netip.MustParsePrefix(a), true))
	}
	for _, a := range []string{"198.51.100.2/24", "2001:db8:51::2/64"} {
		require.NoError(t, w.in.AddAddr(w.far, netip.MustParsePrefix(a), true))
	}
	lo, err := w.in.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, w.in.SetUp(lo.Index))
	for _, a := range []string{"203.0.113.9/32", "2001:db8:113::9/128"} { // what lies behind it
		require.NoError(t, w.in.AddAddr(lo.Index, netip.MustParsePrefix(a), true))
	}
	for _, p := range pods {
		node := "198.51.100.1"
		if p.Addr().Is6() {
			node = "2001:db8:51::1"
		}
		require.NoError(t, w.in.ReplaceRoute(rtnl.Route{Dst: p, GW: netip.MustParseAddr(node), Index: w.far}))
	}
}

// TestEgress: what pods of a Subnet send out of the cluster goes by the gateway that it
// names, and nowhere without it; two Subnets may have one table and priority, other pods
// go as before, and others' rules and routes stay.
func TestEgress(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	plain, red, blue := subnet(), vlanSubnet(), vlanSubnet()
	red.CIDRs, red.Gateways = append(red.CIDRs, netip.MustParsePrefix("fd00:100::/64")), append(red.Gateways, netip.MustParseAddr("fd00:100::1"))
	red.Egress = &core.Egress{
		Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8:51::2")}, Table: 1000, Priority: 100,
	}
	blue.Name, blue.VLAN, blue.Egress = "blue", 0, red.Egress
	blue.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.99.0.0/24"), netip.MustParsePrefix("fd99::/64")}
	blue.Gateways = []netip.Addr{netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd99::1")}
	out := b.outside()
	b.firewall(append(red.CIDRs, blue.CIDRs...)...)
	b.sw.In("ip", "route", "add", "default", "via", "192.0.2.2")
	b.sw.In("ip", "rule", "add", "from", "192.0.2.77", "lookup", "1000", "priority", "100")
	b.sw.In("ip", "route", "add", "10.200.0.0/16", "via", "198.51.100.2", "table", "1000")
	b.set(plain, red, blue)
	others := func() (out []string) {
		for _, q := range []string{"rule", "-6 rule", "route show table all", "-6 route show table all"} {
			for line := range strings.Lines(b.sw.In("ip", strings.Fields(q)...)) {
				if !strings.Contains(line, "proto 70") {
					out = append(out, strings.TrimSpace(line))
				}
			}
		}
		return out
	}

	common := b.pod("plain", plain, "10.16.0.10/16", "fd00:10:16::10/112")
	pods := map[string]*netns.Handle{
		"red": b.pod("red", red, "10.100.0.10/24", "fd00:100::10/64"), "blue": b.pod("blue", blue, "10.99.0.10/24", "fd99::10/64"),
	}
	for _, p := range pods {
		b.reaches(p, "203.0.113.9")
		b.reaches(p, "2001:db8:113::9")
		b.reaches(p, "10.16.0.10") // another Subnet's pod
	}
	b.reaches(pods["red"], "10.99.0.10")
	b.reaches(common, "192.0.2.2")
	before := others()

	// The gateway's link goes: nothing leaves by the node's own default route.
	got := make(chan struct{}, 100)
	watch, err := rtnl.NewWatch(b.sw.NS)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = watch.Run(ctx, func() { got <- struct{}{} }); close(done) }()
	defer func() { stop(); <-done }()
	links, err := b.gw.Links(standalone.Wanted{Subnets: []core.Subnet{red}})
	require.NoError(t, err)
	require.Len(t, links.Links, 2)
	require.NoError(t, watch.Aim(links))
	netnstest.Do(t, out, func() error {
		c, err := rtnl.Open(nil)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		lo, err := c.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := c.SetUp(lo.Index); err != nil {
			return err
		}
		return c.AddAddr(lo.Index, netip.MustParsePrefix("203.0.113.9/32"), true)
	})
	b.sw.In("ip", "link", "set", "egress", "down")
	select {
	case <-got:
	case <-time.After(patient):
		t.Fatal("the link's end is not heard")
	}
	b.cutOff(pods["red"], "203.0.113.9")
	require.ErrorIs(t, b.gw.Check(t.Context(), red), core.ErrDrift)
	require.ErrorContains(t, b.gw.Set(t.Context(), standalone.Wanted{Subnets: []core.Subnet{plain, red, blue}}), "externalEgressGateway 198.51.100.2 do not leave by this node")
	b.sw.In("ip", "link", "set", "egress", "up")
	b.sw.In("ip", "addr", "replace", "2001:db8:51::1/64", "dev", "egress", "nodad")
	b.sw.In("ip", "route", "replace", "10.200.0.0/16", "via", "198.51.100.2", "table", "1000")
	b.set(plain, red, blue)
	b.reaches(pods["red"], "203.0.113.9")

	// A rule that somebody removes is heard, and is drift.
	for len(got) > 0 {
		<-got
	}
	b.sw.In("ip", "-6", "rule", "del", "priority", "100", "from", "fd99::/64")
	select {
	case <-got:
	case <-time.After(patient):
		t.Fatal("a rule's end is not heard")
	}
	require.Contains(t, b.gw.Drift(t.Context()), "blue")
	require.NotContains(t, b.gw.Drift(t.Context()), plain.Name)

	// One goes, and then the other: a new process leaves what is not ours.
	b.gw = b.restarted()
	b.set(plain, blue)
	require.NotContains(t, b.sw.In("ip", "rule"), "10.100.0.0")
	b.reaches(pods["blue"], "203.0.113.9")
	b.reaches(pods["blue"], "2001:db8:113::9")
	moved := blue
	moved.Egress = &core.Egress{Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, Table: 1001, Priority: 100}
	b.set(plain, moved)
	require.NotContains(t, b.sw.In("ip", "route", "show", "table", "1000"), "proto 70")
	require.NotContains(t, b.sw.In("ip", "-6", "rule"), "fd99::")
	b.set(plain)
	for _, q := range []string{"rule", "-6 rule", "route show table all", "-6 route show table all"} {
		require.NotContains(t, b.sw.In("ip", strings.Fields(q)...), "proto 70", q)
	}
	for _, foreign := range []string{"100:	from 192.0.2.77 lookup 1000", "10.200.0.0/16 via 198.51.100.2 dev egress table 1000"} {
		require.Contains(t, before, foreign)
		require.Contains(t, others(), foreign)
	}
}

// TestForeignRoutes: a route that somebody else has where ours is to be stays as it is,
// and is named; when it goes ours comes, and another gateway takes its place.
func TestForeignRoutes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	plain, red := subnet(), vlanSubnet()
	red.CIDRs, red.Gateways = append(red.CIDRs, netip.MustParsePrefix("fd00:100::/64")), append(red.Gateways, netip.MustParseAddr("fd00:100::1"))
	red.Egress = &core.Egress{Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8:51::2")}, Table: 1000, Priority: 100}
	b.firewall()
	theirs := [][]string{
		{"-4", "default", "via", "198.51.100.9", "dev", "egress", "proto", "static"}, {"-6", "default", "via", "2001:db8:51::9", "dev", "egress", "proto", "static", "metric", "1024"},
		{"-4", "10.16.0.0/16", "via", "198.51.100.8", "dev", "egress", "proto", "static"},
	}
	for _, r := range theirs {
		b.sw.In("ip", append([]string{r[0], "route", "add", "table", "1000"}, r[1:]...)...)
	}
	stay := func() {
		t.Helper()
		for _, r := range theirs {
			require.Contains(t, b.sw.In("ip", r[0], "route", "show", "table", "1000"), strings.Join(r[1:], " "))
		}
	}
	want := standalone.Wanted{Subnets: []core.Subnet{plain, red}}
	for range 2 {
		err := b.gw.Set(t.Context(), want)
		require.ErrorContains(t, err, "externalEgressGateway 198.51.100.2 do not leave by this node: table 1000 has a route of another program to 0.0.0.0/0 via 198.51.100.9 (protocol 4)")
		require.ErrorContains(t, err, "externalEgressGateway 2001:db8:51::2 do not leave by this node: table 1000 has a route of another program to ::/0 via 2001:db8:51::9")
		require.ErrorContains(t, err, "to 10.16.0.0/16 via 198.51.100.8")
		stay()
	}
	require.ErrorContains(t, b.gw.Drift(t.Context())[red.Name], "of another program to 0.0.0.0/0")
	b.set(plain)
	stay()
	for _, r := range theirs {
		b.sw.In("ip", append([]string{r[0], "route", "del", "table", "1000"}, r[1:]...)...)
	}
	// A network that two Subnets have is one route.
	one, two := inVpc("one", v1.DefaultVpc, "ovn", "10.77.0.0/16"), inVpc("two", v1.DefaultVpc, "ovn", "10.77.0.0/16")
	require.NoError(t, b.gw.Set(t.Context(), standalone.Wanted{Subnets: want.Subnets, Join: &standalone.Join{Join: joined(), Subnets: []core.Subnet{one, two}}}))
	b.set(plain, red)
	require.Contains(t, b.sw.In("ip", "route", "show", "table", "1000"), "default via 198.51.100.2")
	red.Egress = &core.Egress{Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8:51::9")}, Table: 1000, Priority: 100}
	b.set(plain, red)
	require.Contains(t, b.sw.In("ip", "route", "show", "table", "1000"), "default via 198.51.100.9")
	require.Contains(t, b.sw.In("ip", "-6", "route", "show", "table", "1000"), "default via 2001:db8:51::9")
	require.NoError(t, b.gw.Check(t.Context(), red))
}

// TestEgressOfGatewayNodes: of a centralized Subnet the nodes that are its gateways, by name
// or by labels, lead pods to its gateway outside, each as long as it is one; others do not.
func TestEgressOfGatewayNodes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.firewall()
	web := inVpc("web", v1.DefaultVpc, "ovn", "10.16.0.0/16")
	web.Centralized = true
	for _, c := range []struct {
		by, where []string
		labels    map[string]string
		leads     bool
	}{
		{by: []string{"n2"}},
		{by: []string{"n2", "n1"}, leads: true},
		{where: []string{"edge=true"}, labels: map[string]string{"edge": "false"}},
		{where: []string{"zone=a", "edge=true"}, labels: map[string]string{"edge": "true"}, leads: true},
		{},
	} {
		web.Egress = &core.Egress{Gateways: []netip.Addr{netip.MustParseAddr("198.51.100.2")}, Table: 1000, Priority: 100, By: c.by, Where: c.where}
		j := joined()
		j.Labels = c.labels
		require.NoError(t, b.gw.Set(t.Context(), standalone.Wanted{Join: standalone.Behind("n1", j, []core.Subnet{web}, nil)}))
		rules, routes := b.sw.In("ip", "rule"), b.sw.In("ip", "route", "show", "table", "all")
		require.Equal(t, c.leads, strings.Contains(rules, "from 10.16.0.0/16 lookup 1000"), "%+v: %s", c, rules)
		require.Equal(t, c.leads, strings.Contains(routes, "default via 198.51.100.2"), "%+v: %s", c, routes)
	}
}

// stuck is a switch that takes no port before it is let go.
type stuck struct {
	standalone.PortMaker
	waits, goOn chan struct{}
}

func (s *stuck) WaitPort(ctx context.Context, name string) (int, error) {
	select {
	case s.waits <- struct{}{}:
	default:
	}
	<-s.goOn
	return s.PortMaker.WaitPort(ctx, name)
}

// TestLooksDoNotWaitForTheSwitch: while a Set waits for Open vSwitch a scrape of the
// metrics is answered.
func TestLooksDoNotWaitForTheSwitch(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ports := &stuck{PortMaker: b.ovs, waits: make(chan struct{}, 1), goOn: make(chan struct{})}
	gw := standalone.New(b.config(ports))
	set, looked := make(chan error, 1), make(chan error, 1)
	go func() { set <- gw.Set(t.Context(), standalone.Wanted{Subnets: []core.Subnet{subnet()}}) }()
	<-ports.waits
	go func() {
		_, err := gw.Traffic(t.Context())
		looked <- err
	}()
	select {
	case err := <-looked:
		require.NoError(t, err)
	case <-time.After(patient):
		t.Error("the metrics wait for the switch")
	}
	close(ports.goOn)
	require.NoError(t, <-set)
}
