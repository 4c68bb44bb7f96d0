package logical_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/testbed"
	bed "github.com/fairlead/fairlead/internal/testbed/ovn"
)

// machine is a node under test with a pod and its rows.
type machine struct {
	node   *testbed.Node
	ch     *bed.Chassis
	net    logical.Subnet
	pod    *testbed.Pod
	host   logical.Node
	rows   logical.Pod
	v4, v6 string // of the pod
}

// leader connects to the northbound database and takes it.
func leader(t *testing.T, endpoint string) *ovn.Client {
	t.Helper()
	c := ovn.New(ovn.Config{Endpoint: endpoint, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	require.Eventually(t, func() bool { return c.Connected() == nil }, time.Minute, 5*time.Millisecond)
	_, err := c.Take(t.Context(), "test")
	require.NoError(t, err)
	return c
}

// settles waits until each of the words that are wanted was among those that look
// gave, and the last look gave no other: the datapath has a change of rules a little
// later than ovn-controller says, and on a loaded machine an answer may be late.
func settles(t *testing.T, look func() string, want, why string) {
	t.Helper()
	wanted, seen := strings.Fields(want), map[string]bool{}
	for end := time.Now().Add(2 * time.Minute); ; {
		got := strings.Fields(look())
		for _, word := range got {
			seen[word] = true
		}
		missing := slices.DeleteFunc(slices.Clone(wanted), func(w string) bool { return seen[w] })
		more := slices.DeleteFunc(got, func(w string) bool { return slices.Contains(wanted, w) })
		if len(missing)+len(more) == 0 {
			return
		}
		require.True(t, time.Now().Before(end), "%s: never %q, still %q", why, missing, more)
	}
}

func mac(t *testing.T, s string) core.MAC {
	t.Helper()
	m, err := net.ParseMAC(s)
	require.NoError(t, err)
	return core.MAC(m)
}

// newMachine is node number i with one pod in a Subnet of its own.
func newMachine(t *testing.T, under *testbed.Underlay, central *bed.Central, i int) *machine {
	t.Helper()
	name := fmt.Sprintf("n%d", i)
	m := &machine{node: testbed.New(t), v4: fmt.Sprintf("10.16.%d.10", i), v6: fmt.Sprintf("fd16:%d::10", i)}
	site := under.Join(m.node)
	m.ch = bed.NewChassis(t, m.node, central, name, site.IP4)
	m.net = subnet("s"+name, fmt.Sprintf("10.16.%d.0/24", i), fmt.Sprintf("fd16:%d::/64", i))
	m.host = logical.Node{Name: name, MAC: mac(t, fmt.Sprintf("0a:00:00:00:64:%02x", i)),
		IPs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("100.64.0.1%d", i)), netip.MustParseAddr(fmt.Sprintf("fd00:100:64::1%d", i))},
		Own: []netip.Addr{netip.MustParseAddr(site.IP4), netip.MustParseAddr(site.IP6)}}
	m.rows = logical.Pod{Pod: core.Pod{Namespace: "ns", Name: "p" + name}, Ports: []logical.Port{{
		Name: "p" + name + ".ns", Subnet: m.net.Name, MAC: mac(t, fmt.Sprintf("0a:00:00:00:16:%02x", i)),
		IPs: []netip.Addr{netip.MustParseAddr(m.v4), netip.MustParseAddr(m.v6)},
	}}}
	m.pod = m.node.NewPod("ns/p" + name)
	return m
}

// newSite is central with a leader of its northbound database, and two nodes.
func newSite(t *testing.T) (central *bed.Central, c *ovn.Client, a, b *machine) {
	t.Helper()
	under := testbed.NewUnderlay(t)
	mid := testbed.Bare(t)
	central = bed.New(t, mid, under.Join(mid).IP4)
	a, b = newMachine(t, under, central, 1), newMachine(t, under, central, 2)
	return central, leader(t, central.NB()), a, b
}

// bind gives the pod its interface.
func (m *machine) bind() {
	port := m.rows.Ports[0]
	m.ch.Bind(m.pod, bed.NIC{
		Port: port.Name, MAC: port.MAC.String(), Addresses: []string{m.v4 + "/24", m.v6 + "/64"},
		Gateways: []string{m.net.Gateways[0].String(), m.net.Gateways[1].String()},
	})
}

// bindHost gives the node its ovn0.
func (m *machine) bindHost() {
	m.node.OVS.Vsctl("--timeout=20", "add-port", bed.Bridge, "ovn0", "--", "set", "interface", "ovn0", "type=internal",
		`mac="`+m.host.MAC.String()+`"`, "mtu_request="+bed.PodMTU, "external_ids:iface-id="+core.NodePort(m.host.Name))
	m.node.Run("ip", "addr", "add", m.host.IPs[0].String()+"/16", "dev", "ovn0")
	m.node.Run("ip", "addr", "add", m.host.IPs[1].String()+"/112", "dev", "ovn0", "nodad")
	m.node.Run("ip", "link", "set", "ovn0", "up")
	m.node.Run("ip", "route", "add", "10.16.0.0/16", "via", "100.64.0.1")
	m.node.Run("ip", "-6", "route", "add", "fd16::/16", "via", "fd00:100:64::1")
}

// TestRouted: what this package says makes a network of two nodes: pods of two
// Subnets and the nodes reach each other over geneve, IPv4 and IPv6, and nobody
// sends with another's address.
func TestRouted(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)

	join := subnet(logical.JoinSubnet, "100.64.0.0/16", "fd00:100:64::/112")
	sets := []*ovn.Set{
		logical.Router(logical.Vpc{Name: v1.DefaultVpc, Routes: logical.DefaultRoutes(join.Subnet)}),
		logical.Switch(join), logical.Switch(a.net), logical.Switch(b.net),
		logical.Host(a.host), logical.Host(b.host), logical.Ports(a.rows), logical.Ports(b.rows),
		logical.Shared(logical.Vip{Name: "v", Subnet: a.net.Name, MAC: mac(t, "0a:00:00:00:99:01"), IPs: []netip.Addr{netip.MustParseAddr("10.16.1.99")}}),
	}
	for _, s := range sets {
		require.NoError(t, c.Apply(t.Context(), s))
	}
	for _, m := range []*machine{a, b} {
		m.bind()
		m.bindHost()
	}
	central.Sync()
	for _, to := range []string{b.v4, b.v6, a.net.Gateways[0].String()} {
		require.NoError(t, a.pod.Ping(to), to)
	}
	require.NoError(t, b.pod.Ping(a.v4))
	require.NoError(t, b.pod.Ping(a.v6))
	require.NoError(t, a.node.Ping(b.v4), "a node and a pod of another one")
	require.NoError(t, a.node.Ping(b.v6))

	ports, err := c.Ports()
	require.NoError(t, err)
	var up []string
	for _, p := range ports {
		if p.Type == "" {
			require.True(t, p.Up, p.Name)
			up = append(up, p.Name+" "+p.Switch+" "+p.Owner)
		}
	}
	require.Equal(t, []string{"node-n1 join node/n1", "node-n2 join node/n2", "pn1.ns sn1 pod/ns/pn1", "pn2.ns sn2 pod/ns/pn2"}, up)

	// Port security: of the pod's own interface, with an address that is not its.
	a.pod.Run("ip", "addr", "add", "10.16.1.99/24", "dev", "eth0")
	_, err = a.pod.Try("ping", "-n", "-c", "1", "-w", "2", "-I", "10.16.1.99", a.net.Gateways[0].String())
	require.Error(t, err)
	require.Error(t, b.pod.Ping("10.16.1.99"))
	// With an address that it may share it is reached by that, through the router too.
	a.rows.Ports[0].VIPs = []netip.Addr{netip.MustParseAddr("10.16.1.99")}
	require.NoError(t, c.Apply(t.Context(), logical.Ports(a.rows)))
	central.Sync()
	_, err = a.pod.Try("ping", "-n", "-c", "1", "-w", "5", "-I", "10.16.1.99", a.net.Gateways[0].String())
	require.NoError(t, err, "an address that it shares")
	require.NoError(t, b.pod.Ping("10.16.1.99"))
	a.rows.Ports[0].VIPs = nil
	a.rows.Ports[0].Open = true
	require.NoError(t, c.Apply(t.Context(), logical.Ports(a.rows)))
	central.Sync()
	_, err = a.pod.Try("ping", "-n", "-c", "1", "-w", "5", "-I", "10.16.1.99", a.net.Gateways[0].String())
	require.NoError(t, err, "port security is off")

	// Everything goes, the Vpc last.
	for _, s := range slices.Backward(sets) {
		require.NoError(t, c.Apply(t.Context(), &ovn.Set{Owner: s.Owner}))
	}
	for _, table := range []string{"Logical_Switch", "Logical_Router", "Logical_Switch_Port", "Logical_Router_Port", "Logical_Router_Static_Route"} {
		require.Zero(t, central.Count(table), table)
	}
	central.Sync()
	require.Error(t, a.pod.Ping(b.v4))
}

// TestPeering: Subnets of two Vpcs reach each other by a peering and routes of
// both, and a policy route cuts them off again.
func TestPeering(t *testing.T) {
	t.Parallel()
	central, c, a, b := newSite(t)
	a.net.Vpc, b.net.Vpc = "red", "blue"
	vpc := func(name string, spec v1.VpcSpec) {
		t.Helper()
		v, undone, err := logical.ReadVpc(name, spec)
		require.NoError(t, err)
		require.Empty(t, undone)
		require.NoError(t, c.Apply(t.Context(), logical.Router(v)))
	}
	vpc("red", v1.VpcSpec{})
	vpc("blue", v1.VpcSpec{})
	require.Equal(t, `{always_learn_from_arp_request="false", dynamic_neigh_routers="true", mac_binding_age_threshold="300"}`, central.Get("Logical_Router", "red", "options"), "a router of many pods learns few neighbours, and not for ever")
	for _, s := range []*ovn.Set{logical.Switch(a.net), logical.Switch(b.net), logical.Ports(a.rows), logical.Ports(b.rows)} {
		require.NoError(t, c.Apply(t.Context(), s))
	}
	a.bind()
	b.bind()
	central.Sync()
	require.Error(t, a.pod.Ping(b.v4), "Vpcs are apart")
	require.NoError(t, a.pod.Ping(a.net.Gateways[1].String()))

	red := v1.VpcSpec{
		VpcPeerings:  []v1.VpcPeering{{RemoteVpc: "blue", LocalConnectIP: "169.254.0.1/30,fd00:a9fe::1/126"}},
		StaticRoutes: []v1.StaticRoute{{CIDR: "10.16.2.0/24", NextHopIP: "169.254.0.2"}, {CIDR: "fd16:2::/64", NextHopIP: "fd00:a9fe::2"}},
	}
	vpc("red", red)
	vpc("blue", v1.VpcSpec{
		VpcPeerings:  []v1.VpcPeering{{RemoteVpc: "red", LocalConnectIP: "169.254.0.2/30,fd00:a9fe::2/126"}},
		StaticRoutes: []v1.StaticRoute{{CIDR: "10.16.1.0/24", NextHopIP: "169.254.0.1"}, {CIDR: "fd16:1::/64", NextHopIP: "fd00:a9fe::1"}},
	})
	central.Sync()
	require.NoError(t, a.pod.Ping(b.v4))
	require.NoError(t, a.pod.Ping(b.v6))
	require.NoError(t, b.pod.Ping(a.v4))

	red.PolicyRoutes = []v1.PolicyRoute{{Priority: 100, Match: "ip4.dst == 10.16.2.0/24", Action: v1.RouteDrop}}
	vpc("red", red)
	central.Sync()
	require.Error(t, a.pod.Ping(b.v4))
	require.NoError(t, a.pod.Ping(b.v6))
}
