package standalone_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

const patient = 20 * time.Second

// bed is a node with its own Open vSwitch, and a gateway on it.
type bed struct {
	t      *testing.T
	sw     *ovstest.Switch
	ovs    *ovs.Client
	gw     *standalone.Gateway
	resets chan struct{}
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, sw: ovstest.New(t), resets: make(chan struct{}, 100)}
	b.ovs = ovs.New(ovs.Config{
		Endpoint: b.sw.Endpoint(), Bridge: "br-int", Datapath: ovstest.Datapath(t), Log: slog.New(slog.DiscardHandler),
		OnReset: func() { b.resets <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.ovs.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	b.ready()
	b.gw = b.restarted()
	// A new namespace copies some of these from the machine's own.
	b.sw.In("sysctl", "-w", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0")
	return b
}

func (b *bed) ready() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.ovs.EnsureBridge(b.t.Context()) == nil }, patient, 10*time.Millisecond)
	require.Eventually(b.t, func() bool { return b.ovs.Ready() == nil }, patient, 10*time.Millisecond)
}

// tableName is that of the packet filter's rules.
const tableName = "fairlead"

func (b *bed) config(ports standalone.PortMaker) standalone.Config {
	return standalone.Config{
		Ports: ports, Host: b.sw.NS, Node: "n1", MTU: 1400, Filter: netfilter.New(netfilter.Config{Host: b.sw.NS, Table: tableName}),
	}
}

// restarted is the gateway of a new process.
func (b *bed) restarted() *standalone.Gateway {
	return standalone.New(b.config(b.ovs))
}

func (b *bed) set(subnets ...core.Subnet) {
	b.t.Helper()
	require.NoError(b.t, b.gw.Set(b.t.Context(), standalone.Wanted{Subnets: subnets}))
	for _, s := range subnets { // until ovs-vswitchd has read an MTU it keeps the former one
		var err error
		for begun := time.Now(); time.Since(begun) < patient; time.Sleep(10 * time.Millisecond) {
			if err = b.gw.Check(b.t.Context(), s); err == nil {
				break
			}
		}
		require.NoError(b.t, err, s.Name)
	}
}

// wired is a namespace whose eth0 is the far end of a link of the node, with a
// connection to each side.
type wired struct {
	ns        *netns.Handle
	host, in  *rtnl.Conn
	near, far int // indexes
}

func (b *bed) wire(v rtnl.Veth) wired {
	t := b.t
	t.Helper()
	w := wired{ns: netnstest.New(t)}
	open := func(ns *netns.Handle) *rtnl.Conn {
		c, err := rtnl.Open(ns)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	w.host, w.in = open(b.sw.NS), open(w.ns)
	v.Peer, v.PeerName = w.ns, "eth0"
	l, err := w.host.EnsureVeth(v)
	require.NoError(t, err)
	w.near, w.far = l.Index, l.PeerIndex
	require.NoError(t, w.host.SetUp(w.near))
	return w
}

// pod puts a namespace with the addresses on the bridge, its default routes
// towards the subnet's gateways.
func (b *bed) pod(name string, s core.Subnet, addrs ...string) *netns.Handle {
	t := b.t
	t.Helper()
	w := b.wire(rtnl.Veth{Name: name, MTU: 1400})
	netnstest.Do(t, w.ns, func() error { return sysfs.TxChecksumOff("eth0") })
	require.NoError(t, w.in.SetUp(w.far))
	for i, a := range addrs {
		require.NoError(t, w.in.AddAddr(w.far, netip.MustParsePrefix(a), true))
		dst := netip.PrefixFrom(s.Gateways[i], 0).Masked()
		require.NoError(t, w.in.ReplaceRoute(rtnl.Route{Dst: dst, GW: s.Gateways[i], Index: w.far}))
	}
	require.NoError(t, b.ovs.AddPort(t.Context(), ovs.Port{
		Name: name, VLAN: s.VLAN, ExternalIDs: map[string]string{ovs.KeyContainer: name},
	}))
	_, err := b.ovs.WaitPort(t.Context(), name)
	require.NoError(t, err)
	return w.ns
}

// outside is a machine beyond the node that knows no pod network.
func (b *bed) outside() *netns.Handle {
	t := b.t
	t.Helper()
	w := b.wire(rtnl.Veth{Name: "uplink"})
	require.NoError(t, w.in.SetUp(w.far))
	for _, a := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		require.NoError(t, w.host.AddAddr(w.near, netip.MustParsePrefix(a), true))
	}
	for _, a := range []string{"192.0.2.2/24", "2001:db8::2/64"} {
		require.NoError(t, w.in.AddAddr(w.far, netip.MustParsePrefix(a), true))
	}
	return w.ns
}

// reaches pings from ns; the first packets may fall to address resolution and
// to the switch's learning.
func (b *bed) reaches(ns *netns.Handle, addr string) {
	b.t.Helper()
	var out string
	for range 10 {
		var err error
		if out, err = ovstest.Run(ns, "ping", "-n", "-c1", "-W1", addr); err == nil {
			return
		}
	}
	b.t.Fatalf("ping %s: %s", addr, out)
}

func (b *bed) cutOff(ns *netns.Handle, addr string) {
	b.t.Helper()
	_, err := ovstest.Run(ns, "ping", "-n", "-c2", "-i0.2", "-W1", addr)
	require.Error(b.t, err, "ping %s", addr)
}

func subnet() core.Subnet {
	return core.Subnet{
		Name: "ovn-default", Provider: "ovn",
		CIDRs:       []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16"), netip.MustParsePrefix("fd00:10:16::/112")},
		Gateways:    []netip.Addr{netip.MustParseAddr("10.16.0.1"), netip.MustParseAddr("fd00:10:16::1")},
		NATOutgoing: true, Default: true,
	}
}

func vlanSubnet() core.Subnet {
	return core.Subnet{
		Name: "vlan100", Provider: "vlan100.default.ovn", VLAN: 100,
		CIDRs:    []netip.Prefix{netip.MustParsePrefix("10.100.0.0/24")},
		Gateways: []netip.Addr{netip.MustParseAddr("10.100.0.1")},
	}
}

func TestPodsReachGatewayEachOtherAndOutside(t *testing.T) {
	b := newBed(t)
	b.outside()
	s, v := subnet(), vlanSubnet()
	b.set(s, v)
	pod := b.pod("pod1", s, "10.16.0.5/16", "fd00:10:16::5/112")
	tagged := b.pod("pod2", v, "10.100.0.5/24")

	b.reaches(pod, "10.16.0.1")
	b.reaches(pod, "fd00:10:16::1")
	b.reaches(b.sw.NS, "10.16.0.5")
	b.reaches(b.sw.NS, "fd00:10:16::5")
	b.reaches(tagged, "10.100.0.1")
	b.reaches(pod, "10.100.0.5") // by way of the node
	b.reaches(pod, "192.0.2.2")  // has no way back to pods: only masqueraded packets are answered
	b.reaches(pod, "2001:db8::2")
	b.cutOff(tagged, "192.0.2.2") // not natOutgoing
	conns := b.sw.In("conntrack", "-L", "-s", "10.16.0.5", "-d", "10.100.0.5")
	require.Contains(t, conns, "src=10.100.0.5 dst=10.16.0.5", "between subnets nothing is translated")

	v.NATOutgoing = true
	b.set(s, v)
	b.reaches(tagged, "192.0.2.2")
	s.NATOutgoing, v.NATOutgoing = false, false
	b.set(s, v)
	b.cutOff(pod, "192.0.2.2")
	b.set()
	require.Empty(t, b.sw.In("nft", "list", "ruleset"))
}

// TestAnswersComeBackByTheNode: what the node leads from a pod to a neighbour of it, as
// kube-proxy does for a Service, is answered; the neighbour would answer the pod past
// the node. Other Subnets see who asks.
func TestAnswersComeBackByTheNode(t *testing.T) {
	b := newBed(t)
	s, v := subnet(), vlanSubnet()
	s.NATOutgoing = false
	b.set(s, v)
	asks := b.pod("pod1", s, "10.16.0.5/16", "fd00:10:16::5/112")
	near := b.pod("pod2", s, "10.16.0.6/16", "fd00:10:16::6/112")
	far := b.pod("pod3", v, "10.100.0.5/24")
	inside.Serve(t, near, "near", 8080, "10.16.0.6", "fd00:10:16::6")
	inside.Serve(t, far, "far", 8080, "10.100.0.5")
	b.sw.In("nft", "add table inet proxy; add chain inet proxy pre { type nat hook prerouting priority -100; }; "+
		"add rule inet proxy pre ip daddr 10.96.0.10 dnat ip to 10.16.0.6; add rule inet proxy pre ip daddr 10.96.0.11 dnat ip to 10.100.0.5; "+
		"add rule inet proxy pre ip6 daddr fd96::10 dnat ip6 to fd00:10:16::6")
	b.reaches(asks, "10.16.0.6") // all have learnt who is where
	b.reaches(asks, "10.100.0.5")
	b.reaches(asks, "fd00:10:16::6")
	for host, says := range map[string]string{"10.96.0.10": "near sees 10.16.0.1", "fd96::10": "near sees fd00:10:16::1", "10.96.0.11": "far sees 10.16.0.5", "10.16.0.6": "near sees 10.16.0.5"} {
		for _, network := range []string{"tcp", "udp"} {
			require.Equal(t, says, inside.Query(asks, inside.Peer{Network: network, Host: host, Port: 8080, Limit: patient}), "%s %s", network, host)
		}
	}
}

func TestSetIsRepeatableAndWritesNothingTwice(t *testing.T) {
	b := newBed(t)
	b.set(subnet(), vlanSubnet())
	state := func() string {
		return b.sw.In("ip", "-d", "addr") + b.sw.In("nft", "-a", "list", "ruleset") +
			b.sw.Vsctl("list", "Interface", standalone.PortName("ovn-default")) + b.sw.Vsctl("list", "Open_vSwitch")
	}
	settle := regexp.MustCompile(`(?m)^(statistics|status|.*_reset_time|cur_cfg|next_cfg) *:.*$|valid_lft.*| tentative`)
	first := settle.ReplaceAllString(state(), "")
	b.gw = b.restarted()
	b.set(subnet(), vlanSubnet())
	require.Equal(t, first, settle.ReplaceAllString(state(), ""))
	require.Equal(t, "100", b.sw.Get("Port", standalone.PortName("vlan100"), "tag"))
	for k, v := range map[string]string{"fairlead-gateway": "ovn-default", "vendor": "kube-ovn", "node": "n1"} {
		require.Equal(t, v, b.sw.Get("Interface", standalone.PortName("ovn-default"), "external_ids:"+k))
	}
}

func TestChangesOfSubnets(t *testing.T) {
	b := newBed(t)
	s, v := subnet(), vlanSubnet()
	b.set(s, v)
	pod := b.pod("pod1", s, "10.16.0.5/16", "fd00:10:16::5/112")
	b.reaches(pod, "10.16.0.1")

	s.Gateways = []netip.Addr{netip.MustParseAddr("10.16.0.254"), netip.MustParseAddr("fd00:10:16::254")}
	s.MTU = 1300
	b.set(s, v)
	b.reaches(pod, "10.16.0.254")
	b.reaches(pod, "fd00:10:16::254")
	require.NotContains(t, b.sw.In("ip", "addr"), "10.16.0.1/16")

	s.VLAN = 7
	b.set(s, v)
	b.cutOff(pod, "10.16.0.254")
	b.sw.Vsctl("set", "Port", "pod1", "tag=7")
	b.reaches(pod, "10.16.0.254")

	foreign := "mine"
	b.sw.Vsctl("add-port", "br-int", foreign, "--", "set", "Interface", foreign, "type=internal")
	b.gw = b.restarted()
	b.set(v)
	ports := b.sw.Vsctl("list-ports", "br-int")
	require.NotContains(t, ports, standalone.PortName(s.Name))
	require.Contains(t, ports, foreign)
	require.Contains(t, ports, "pod1")
	b.set()
	require.ElementsMatch(t, []string{foreign, "pod1"}, strings.Fields(b.sw.Vsctl("list-ports", "br-int")))
	require.Empty(t, b.sw.In("nft", "list", "ruleset"))
}

func TestOnlySubnetsOfOurBridgeAreServed(t *testing.T) {
	b := newBed(t)
	implied, foreign, bare := subnet(), subnet(), subnet()
	implied.Implied = true
	foreign.Provider = "macvlan.default"
	bare.Gateways = nil
	for _, s := range []core.Subnet{implied, foreign, bare} {
		require.False(t, standalone.Serves(s))
		b.set(s)
	}
	require.Empty(t, b.sw.Vsctl("list-ports", "br-int"))
	got, err := ovstest.Run(b.sw.NS, "sysctl", "-n", "net.ipv4.ip_forward")
	require.NoError(t, err)
	require.Equal(t, "0", got, "without a gateway the node stays a host")
}

func TestOneBadSubnetCostsNoOther(t *testing.T) {
	b := newBed(t)
	s, v := subnet(), vlanSubnet()
	// Somebody else's port has the name.
	b.sw.Vsctl("add-port", "br-int", standalone.PortName(s.Name), "--", "set", "Interface", standalone.PortName(s.Name), "type=internal")
	require.Eventually(t, func() bool { _, ok := b.ovs.PortByName(standalone.PortName(s.Name)); return ok }, patient, 10*time.Millisecond)
	err := b.gw.Set(t.Context(), standalone.Wanted{Subnets: []core.Subnet{s, v}})
	require.ErrorIs(t, err, core.ErrExists)
	require.ErrorContains(t, err, s.Name)
	require.NoError(t, b.gw.Check(t.Context(), v))
	require.ErrorIs(t, b.gw.Check(t.Context(), s), core.ErrDrift)
	require.NotContains(t, b.sw.In("ip", "addr"), "10.16.0.1/16", "a foreign port gets no address")
}

func TestRestartOfOpenVSwitchIsRepaired(t *testing.T) {
	b := newBed(t)
	s := subnet()
	b.set(s)
	pod := b.pod("pod1", s, "10.16.0.5/16", "fd00:10:16::5/112")
	b.reaches(pod, "10.16.0.1")
	forward := func() {
		require.NoError(t, b.gw.Set(t.Context(), standalone.Wanted{Subnets: []core.Subnet{s}}))
		require.NoError(t, b.gw.Check(t.Context(), s))
		b.reaches(pod, "10.16.0.1")
		b.reaches(pod, "fd00:10:16::1")
	}
	b.sw.KillSwitchd() // the devices stay
	b.sw.StartSwitchd()
	forward()
	for len(b.resets) > 0 {
		<-b.resets
	}
	b.sw.ExitSwitchd() // the devices go
	b.sw.StartSwitchd()
	select {
	case <-b.resets: // the port's device is another one, and bare
	case <-time.After(patient):
		t.Fatal("no reset")
	}
	forward()
}

func TestDatabaseAway(t *testing.T) {
	b := newBed(t)
	s := subnet()
	b.set(s)
	b.sw.KillServer()
	require.Eventually(t, func() bool { return b.ovs.Connected() != nil }, patient, 5*time.Millisecond)
	err := b.gw.Set(t.Context(), standalone.Wanted{Subnets: []core.Subnet{s, vlanSubnet()}})
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.Equal(t, 1, strings.Count(err.Error(), "OVSDB"), "said once: %v", err)
	err = b.gw.Check(t.Context(), s)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.NotErrorIs(t, err, core.ErrDrift, "what cannot be seen is not missing")
	b.sw.StartServer()
	b.ready()
	b.set(s, vlanSubnet())
}

func TestRouterAdvertisementsAreKept(t *testing.T) {
	b := newBed(t)
	b.outside()
	read := func(name string) string { return b.sw.In("sysctl", "-n", name) }
	require.Equal(t, "1", read("net.ipv6.conf.uplink.accept_ra"))
	b.set(vlanSubnet())
	require.Equal(t, "0", read("net.ipv6.conf.all.forwarding"), "no IPv6 gateway, no IPv6 router")
	b.set(subnet())
	require.Equal(t, "1", read("net.ipv6.conf.all.forwarding"))
	require.Equal(t, "2", read("net.ipv6.conf.uplink.accept_ra"))
}

func TestCheckFindsTampering(t *testing.T) {
	b := newBed(t)
	s := subnet()
	port := standalone.PortName(s.Name)
	in := func(args ...string) func() { return func() { b.sw.In(args[0], args[1:]...) } }
	vsctl := func(args ...string) func() { return func() { b.sw.Vsctl(args...) } }
	type tampering struct {
		want   string
		tamper func()
	}
	found := func(c tampering) {
		b.set(s)
		c.tamper()
		var err error
		require.Eventually(t, func() bool { // the replica of the database takes its time
			err = b.gw.Check(t.Context(), s)
			return err != nil && strings.Contains(err.Error(), c.want)
		}, patient, 10*time.Millisecond, c.want)
		require.ErrorIs(t, err, core.ErrDrift)
	}
	for _, c := range []tampering{
		{"tag is 5, want 0", vsctl("set", "Port", port, "tag=5")},
		{"number of trunks is 1", vsctl("set", "Port", port, "trunks=5")},
		{"vlan_mode is trunk", vsctl("set", "Port", port, "vlan_mode=trunk")},
		{"requested mtu is 1280", vsctl("set", "Interface", port, "mtu_request=1280")},
		{"external_ids vendor is other", vsctl("set", "Interface", port, "external_ids:vendor=other")},
		{"port " + port + " is missing", vsctl("del-port", "br-int", port)},
		{"sysctl net.ipv4.ip_forward is 0", in("sysctl", "-w", "net.ipv4.ip_forward=0")},
		{"sysctl net.ipv6.conf.all.forwarding is 0", in("sysctl", "-w", "net.ipv6.conf.all.forwarding=0")},
		{"/forwarding is 0", in("sysctl", "-w", "net.ipv4.conf."+port+".forwarding=0")},
		{"/arp_ignore is 0", in("sysctl", "-w", "net.ipv4.conf."+port+".arp_ignore=0")},
		{"/disable_ipv6 is 1", in("sysctl", "-w", "net.ipv6.conf."+port+".disable_ipv6=1")},
		{"nft table fairlead: is missing", in("nft", "delete", "table", "inet", "fairlead")},
		{"set ovn40subnets-nat lacks 10.16.0.0/16", in("nft", "flush", "set", "inet", "fairlead", "ovn40subnets-nat")},
		{"rules are", in("nft", "flush", "chain", "inet", "fairlead", "OVN-SAME-SUBNET")},
		{"set ovn60subnets lacks fd00:10:16::/112", in("nft", "flush", "set", "inet", "fairlead", "ovn60subnets")},
		{"rules are", in("nft", "insert", "rule", "inet", "fairlead", "nat-postrouting", "accept")},
	} {
		found(c)
	}
	b.set(s)
	b.sw.KillSwitchd() // alive it puts MTU and MAC right by itself, now and then
	for _, c := range []tampering{
		{"up is false", in("ip", "link", "set", port, "down")},
		{"mtu is 1280", in("ip", "link", "set", port, "mtu", "1280")},
		{"mac is 02:00:00:00:00:99", in("ip", "link", "set", port, "address", "02:00:00:00:00:99")},
		{"lacks address 10.16.0.1/16", in("ip", "addr", "del", "10.16.0.1/16", "dev", port)},
		{"lacks address fd00:10:16::1/112", in("ip", "-6", "addr", "flush", "dev", port)},
		{"has address 10.16.0.9/16 too much", in("ip", "addr", "add", "10.16.0.9/16", "dev", port)},
		{"device " + port + " is missing", in("ip", "link", "set", port, "name", "elsewhere")},
	} {
		found(c)
	}
	b.sw.In("ip", "link", "set", "elsewhere", "name", port)
	b.set(s)
	s.NATOutgoing = false
	require.ErrorContains(t, b.gw.Check(t.Context(), s), "set ovn40subnets-nat holds 10.16.0.0/16 too much")
}

func TestPortNames(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"a", "ovn-default", "ovn-default2", "ovn-defaults", "x.y", "x-y", "Ünder", strings.Repeat("long", 60)} {
		p := standalone.PortName(name)
		require.Regexp(t, `^[a-z0-9-]{1,8}-[0-9a-f]{6}$`, p)
		require.False(t, seen[p], p)
		seen[p] = true
	}
	require.Equal(t, standalone.PortName("ovn-default"), standalone.PortName("ovn-default"))
	require.True(t, strings.HasPrefix(standalone.PortName("ovn-default"), "ovn-defa-"))
}

// paced counts the ports that are written and not waited for.
type paced struct {
	standalone.PortMaker
	ahead, most int
}

func (p *paced) AddPort(ctx context.Context, port ovs.Port) error {
	p.ahead++
	p.most = max(p.most, p.ahead)
	return p.PortMaker.AddPort(ctx, port)
}

func (p *paced) WaitPort(ctx context.Context, name string) (int, error) {
	p.ahead--
	return p.PortMaker.WaitPort(ctx, name)
}

// TestManySubnetsAtOnce: of many Subnets that appear together only a few ports
// stand before that of a pod in the switch's queue.
func TestManySubnetsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ports := &paced{PortMaker: b.ovs}
	b.gw = standalone.New(b.config(ports))
	var many []core.Subnet
	for i := range 40 {
		many = append(many, core.Subnet{
			Name: fmt.Sprintf("many%d", i), CIDRs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.77.%d.0/24", i))},
			Gateways: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.77.%d.1", i))},
		})
	}
	require.NoError(t, b.gw.Set(t.Context(), standalone.Wanted{Subnets: many}))
	require.LessOrEqual(t, ports.most, 16)
	require.Zero(t, ports.ahead)
	for _, s := range many {
		require.NoError(t, b.gw.Check(t.Context(), s), s.Name)
	}
}
