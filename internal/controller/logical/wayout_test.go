package logical_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/inside"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestWayOut: what a pod sends to a node's own address gets to that node, and what
// it sends to anything that no Subnet has leaves by its own node and by no other.
func TestWayOut(t *testing.T) {
	t.Parallel()
	under, world := testbed.NewUnderlay(t), testbed.Bare(t)
	at := under.Join(world)
	central := bed.New(t, world, at.IP4)
	a, b := newMachine(t, under, central, 1), newMachine(t, under, central, 2)
	c := leader(t, central.NB())
	join := subnet(logical.JoinSubnet, "100.64.0.0/16", "fd00:100:64::/112")
	for _, s := range []*ovn.Set{
		logical.Router(logical.Vpc{Name: v1.DefaultVpc, Routes: logical.DefaultRoutes(join.Subnet)}),
		logical.Switch(join), logical.Switch(a.net), logical.Switch(b.net),
		logical.Host(a.host), logical.Host(b.host), logical.Ports(a.rows), logical.Ports(b.rows),
	} {
		require.NoError(t, c.Apply(t.Context(), s))
	}
	// The world knows the way back to each node's pods.
	serve(t, world, "world")
	for _, m := range []*machine{a, b} {
		m.bind()
		m.bindHost()
		serve(t, m.node, m.host.Name)
		for i, cidr := range m.net.CIDRs {
			world.Run("ip", "route", "add", cidr.String(), "via", m.host.Own[i].String())
		}
	}
	central.Sync()
	asks := func(from *machine, to string) string {
		return inside.Query(inside.Open(t, from.pod.NetnsPath()), inside.Peer{Network: "tcp", Host: to, Port: 8080, Limit: time.Second})
	}
	sees := func(from *machine, name, four, six string) {
		t.Helper()
		for to, from4 := range map[string]string{four: from.v4, six: from.v6} {
			require.Eventually(t, func() bool { return asks(from, to) == name+" sees "+from4 }, time.Minute, 10*time.Millisecond, "%s at %s", name, to)
		}
	}
	for _, to := range []*machine{a, b} {
		sees(a, to.host.Name, to.host.Own[0].String(), to.host.Own[1].String())
	}
	// Node b hands nothing on: what gets through went by a.
	forwards(a.node, "1")
	forwards(b.node, "0")
	sees(a, "world", at.IP4, at.IP6)
	require.NotContains(t, asks(b, at.IP4), "world")
	require.NotContains(t, asks(b, at.IP6), "world")
	forwards(b.node, "1")
	forwards(a.node, "0")
	sees(b, "world", at.IP4, at.IP6)
	require.NotContains(t, asks(a, at.IP4), "world")

	// Pods reach each other as before, and a node that goes takes its rows along.
	require.NoError(t, a.pod.Ping(b.v6))
	const table = "Logical_Router_Policy"
	before := central.Count(table)
	require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: "node/n2"}))
	require.Equal(t, before-4, central.Count(table), "two ways to it, two from it")
}

// serve answers on port 8080 of a node, as its name, until the test ends.
func serve(t *testing.T, n *testbed.Node, name string) {
	t.Helper()
	inside.Serve(t, inside.Open(t, n.NetnsPath()), name, 8080)
}

// forwards makes a node a router, or not.
func forwards(n *testbed.Node, on string) {
	n.Run("sysctl", "-qw", "net.ipv4.ip_forward="+on, "net.ipv6.conf.all.forwarding="+on)
}
