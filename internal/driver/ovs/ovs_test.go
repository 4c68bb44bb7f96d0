package ovs_test

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
	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/openflow"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

const patient = time.Minute

// node is a driver on a private switch.
type node struct {
	testing.TB
	sw     *ovstest.Switch
	client *ovs.Client
	driver *ovsdriver.Driver
	reset  chan struct{}
	// datapath is the type of its bridge.
	datapath string
}

func newNode(t testing.TB) *node {
	t.Helper()
	return newNodeOn(t, ovstest.Datapath(t))
}

// newNodeOn is newNode for internal ports, which only the userspace datapath
// has, wherever the tests run.
func newNodeOn(t testing.TB, datapath string) *node {
	t.Helper()
	n := &node{TB: t, sw: ovstest.New(t), reset: make(chan struct{}, 1), datapath: datapath}
	n.client = ovs.New(ovs.Config{
		Endpoint: n.sw.Endpoint(), Bridge: "br-int", Datapath: datapath, Log: slog.New(slog.DiscardHandler),
		OnReset: func() {
			select {
			case n.reset <- struct{}{}:
			default:
			}
		},
	})
	n.driver = n.newDriver()
	n.background(n.client.Run)
	n.background(n.driver.Run)
	n.ready()
	return n
}

func (n *node) newDriver() *ovsdriver.Driver {
	flows := openflow.New(openflow.SocketOf(n.sw.Endpoint(), "br-int"))
	n.Cleanup(flows.Close)
	return ovsdriver.New(ovsdriver.Config{
		OVS: n.client, Flows: flows, Host: n.sw.NS, UserspaceDatapath: n.datapath == ovstest.Userspace, Log: slog.New(slog.DiscardHandler),
	})
}

func (n *node) background(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	n.Cleanup(func() { cancel(); wg.Wait() })
}

func (n *node) ready() {
	n.Helper()
	n.eventually("connected", func() bool { return n.client.Connected() == nil })
	require.NoError(n, n.client.EnsureBridge(n.Context()))
	n.eventually("bridge ready", func() bool { return n.client.Ready() == nil })
}

func (n *node) eventually(what string, ok func() bool) {
	n.Helper()
	require.Eventually(n, ok, patient, 5*time.Millisecond, what)
}

// spec is interface number i of a pod in ns: dual stack, VLAN, QoS.
func spec(i int, ns core.Netns) core.Spec {
	var mac core.MAC
	_ = mac.UnmarshalText(fmt.Appendf(nil, "02:00:00:00:%02x:%02x", i/256, i%256))
	c := fmt.Sprintf("%064x", i)
	c = c[52:] + c[:52]
	return core.Spec{
		Key: core.Key{Container: c, IfName: "eth0"}, Driver: "ovs", Network: "ovn-default", Default: true,
		Pod: core.Pod{Namespace: "ns1", Name: fmt.Sprintf("web-%d", i)}, Netns: ns,
		NIC: &core.NICSpec{
			Subnet: "s1", IfaceID: fmt.Sprintf("web-%d.ns1", i),
			Addrs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("100.100.%d.%d/16", 1+i/256, i%256)),
				netip.MustParsePrefix(fmt.Sprintf("fd00:100::%x/64", 0x100+i)),
			},
			Gateways: []netip.Addr{netip.MustParseAddr("100.100.0.1"), netip.MustParseAddr("fd00:100::1")},
			Settings: core.Settings{
				VLAN: 1000, Tuning: core.Tuning{QoS: core.QoS{IngressMbps: 3, EgressMbps: 1}},
				PodSide: core.PodSide{
					MAC: mac, MTU: 1400,
					Routes: []core.Route{
						{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("100.100.0.1")},
						{Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fd00:100::1")},
						{Dst: netip.MustParsePrefix("10.9.0.0/16"), GW: netip.MustParseAddr("100.100.0.7")},
					},
				},
			},
			OVS: &core.OVSPort{HostIf: c[:12] + "_h", Secure: true},
		},
	}
}

// inventory is all that the driver may leave on the node.
func (n *node) inventory() []string {
	require.NoError(n, n.driver.Flush(n.Context()))
	c, err := rtnl.Open(n.sw.NS)
	require.NoError(n, err)
	defer func() { _ = c.Close() }()
	links, err := c.Links()
	require.NoError(n, err)
	var list []string
	for _, l := range links {
		list = append(list, "link "+l.Name)
	}
	for _, p := range strings.Fields(n.sw.Vsctl("list-ports", "br-int")) {
		list = append(list, "port "+p)
	}
	for _, table := range []string{"QoS", "Queue", "Interface", "Port"} {
		list = append(list, fmt.Sprintf("%d rows of %s", n.sw.Count(table), table))
	}
	slices.Sort(list)
	return append(list, n.flows()...)
}

// flows are the driver's, as ovs-ofctl tells them; none while ovs-vswitchd is away.
func (n *node) flows() []string {
	n.Helper()
	socket := openflow.SocketOf(n.sw.Endpoint(), "br-int")
	if _, err := (&net.Dialer{}).DialContext(n.Context(), "unix", socket); err != nil {
		return nil
	}
	var out []string
	for l := range strings.Lines(n.sw.In("ovs-ofctl", "-O", "OpenFlow14", "--no-stats", "--sort", "dump-flows", socket, "cookie=0x0fa1000000000000/0xffff000000000000")) {
		if strings.Contains(l, "actions=") {
			out = append(out, strings.TrimSpace(l))
		}
	}
	return out
}

func TestConformance(t *testing.T) { conformance(t, "veth-pair", ovstest.Datapath(t)) }

func TestConformanceInternalPort(t *testing.T) {
	conformance(t, ovsdriver.InternalPort, ovstest.Userspace)
}

func conformance(t *testing.T, nicType, datapath string) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Machine {
		n := newNodeOn(t, datapath)
		return &drivertest.Machine{Driver: n.driver, Spec: func(i int, ns core.Netns) core.Spec {
			s := spec(i, ns)
			s.NIC.OVS.Type = nicType
			if i == 2 { // the second interface of a pod brings no default route
				s.NIC.Routes = nil
				s.NIC.Addrs = []netip.Prefix{netip.MustParsePrefix("100.101.0.2/16")}
			}
			return s
		}, Inventory: n.inventory,
			Again: func() driver.Driver { return n.newDriver() },
			Away: func() func() {
				n.sw.KillServer()
				return n.sw.StartServer
			},
			Lose: func(s core.Spec) { n.sw.Vsctl("del-port", s.NIC.OVS.HostIf) },
		}
	})
}

// pod makes a pod's namespace and the Spec of its interface.
func (n *node) pod(i int) (*netns.Handle, core.Spec) {
	n.Helper()
	h := netnstest.New(n)
	id, err := netns.Identify(netnstest.Path(h))
	require.NoError(n, err)
	return h, spec(i, id)
}

func (n *node) attach(s core.Spec) core.Link {
	n.Helper()
	l, err := n.driver.Attach(n.Context(), driver.Run{}, s)
	require.NoError(n, err)
	return l
}

func (n *node) in(h *netns.Handle, line string) string {
	n.Helper()
	f := strings.Fields(line)
	out, err := ovstest.Run(h, f[0], f[1:]...)
	require.NoError(n, err, "%s: %s", line, out)
	return out
}

// ../shared/seedcases: pod-vlan-qos.yaml, read with ovs-vsctl and ip only.
func TestSeedVLANQoS(t *testing.T) {
	n := newNode(t)
	h, s := n.pod(1)
	s.Pod = core.Pod{Namespace: "ns1", Name: "starter-backend-69459d76f5-ktrwn"}
	s.NIC.IfaceID = "starter-backend-69459d76f5-ktrwn.ns1"
	s.NIC.Addrs = []netip.Prefix{netip.MustParsePrefix("100.100.0.3/16")}
	s.NIC.Routes = s.NIC.Routes[:1]
	n.attach(s)
	for column, want := range map[string]string{
		"external_ids:iface-id": s.NIC.IfaceID, "external_ids:pod_name": s.Pod.Name, "external_ids:pod_namespace": "ns1",
		"external_ids:pod_netns": s.Netns.Path, "external_ids:ip": "100.100.0.3", "external_ids:vendor": "kube-ovn",
		"ingress_policing_rate": "1000", "ingress_policing_burst": "800",
	} {
		require.Equal(t, want, n.sw.Get("Interface", s.NIC.OVS.HostIf, column), column)
	}
	require.Equal(t, "1000", n.sw.Get("Port", s.NIC.OVS.HostIf, "tag"))
	qos := n.sw.Get("Port", s.NIC.OVS.HostIf, "qos")
	queue := n.sw.Get("QoS", qos, "queues:0")
	require.Equal(t, "linux-htb", n.sw.Get("QoS", qos, "type"))
	require.Equal(t, "3000000", n.sw.Get("QoS", qos, "other_config:max-rate"))
	require.Equal(t, "3000000", n.sw.Get("Queue", queue, "other_config:max-rate"))
	for table, row := range map[string]string{"QoS": qos, "Queue": queue} {
		require.Equal(t, s.NIC.IfaceID, n.sw.Get(table, row, "external_ids:iface-id"))
		require.Equal(t, s.Pod.String(), n.sw.Get(table, row, "external_ids:pod"))
	}
	link := n.in(h, "ip -d addr show eth0")
	require.Contains(t, link, "100.100.0.3/16")
	require.Contains(t, link, s.NIC.MAC.String())
	require.Contains(t, link, "mtu 1400")
	require.Contains(t, n.in(h, "ip route show default"), "via 100.100.0.1 dev eth0")
	// Only a userspace datapath needs finished checksums; the kernel's is faster without.
	offload := map[bool]string{true: "off", false: "on"}[n.datapath == ovstest.Userspace]
	require.Contains(t, n.in(h, "ethtool -k eth0"), "tx-checksumming: "+offload)
}

// The switch looks at all its ports whenever a link of the node changes: it has
// to change nothing at a port itself.
func TestNothingIsLeftToTheSwitch(t *testing.T) {
	n := newNode(t)
	_, s := n.pod(1)
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	ns := vishnetns.NsHandle(n.sw.NS.Fd())
	require.NoError(t, netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{Namespace: &ns}))
	n.attach(s)
	n.eventually("the switch's port", func() bool { return n.sw.Get("Interface", s.NIC.OVS.HostIf, "link_state") == "up" })
	close(done)
	seen := 0
	for u := range updates {
		if u.Attrs().Name == s.NIC.OVS.HostIf {
			seen++
			require.NotZero(t, u.Attrs().RawFlags&unix.IFF_PROMISC, "told of %s: %+v", s.NIC.OVS.HostIf, u.Attrs())
		}
	}
	require.NotZero(t, seen)
}

// 2.4 Mbit of burst and 3 Mbit/s must reach the kernel as such: OVS takes the
// burst in bits.
func TestRateReachesTheKernel(t *testing.T) {
	n := newNode(t)
	_, s := n.pod(1)
	s.NIC.QoS = core.QoS{IngressMbps: 300, IngressBurstMbit: 240}
	n.attach(s)
	n.eventually("class made", func() bool {
		out := n.sw.In("tc", "class", "show", "dev", s.NIC.OVS.HostIf)
		return strings.Contains(out, "ceil 300Mbit") && strings.Contains(out, "burst 30000000b")
	})
	_, d := n.pod(2)
	d.NIC.QoS = core.QoS{LatencyMs: 20, JitterMs: 3, LossPercent: 1, LimitPackets: 100}
	n.attach(d)
	require.Equal(t, "linux-netem", n.sw.Get("QoS", n.sw.Get("Port", d.NIC.OVS.HostIf, "qos"), "type"))
}

func TestTraffic(t *testing.T) {
	n := newNode(t)
	a, s := n.pod(1)
	_, o := n.pod(2)
	n.attach(s)
	n.attach(o)
	for _, to := range o.NIC.Addrs {
		n.in(a, "ping -c 2 -i 0.2 -W 30 "+to.Addr().String())
	}
	b, other := n.pod(3)
	other.NIC.VLAN = 7
	n.attach(other)
	out, err := ovstest.Run(b, "ping", "-c", "1", "-W", "1", o.NIC.Addrs[0].Addr().String())
	require.Error(t, err, "another VLAN: %s", out)
}

// TestAnnouncement: a neighbour that believes an address elsewhere is told, unless
// the Spec says that there can be none.
func TestAnnouncement(t *testing.T) {
	n := newNode(t)
	a, s := n.pod(1)
	n.attach(s)
	_, quiet := n.pod(2)
	quiet.NIC.Quiet = true
	_, loud := n.pod(3)
	for _, s := range []core.Spec{quiet, loud} {
		for _, p := range s.NIC.Addrs {
			n.in(a, "ip neigh add "+p.Addr().String()+" lladdr 02:99:00:00:00:01 dev eth0 nud stale")
		}
	}
	knows := func(s core.Spec, mac string) bool {
		return !slices.ContainsFunc(s.NIC.Addrs, func(p netip.Prefix) bool {
			return !strings.Contains(n.in(a, "ip neigh show "+p.Addr().String()), mac)
		})
	}
	n.attach(quiet)
	n.attach(loud)
	n.eventually("the neighbour was told", func() bool { return knows(loud, loud.NIC.MAC.String()) })
	require.True(t, knows(quiet, "02:99:00:00:00:01"))
}

func TestParallel(t *testing.T) {
	n := newNode(t)
	before := n.inventory()
	const pods = 50
	specs := make([]core.Spec, pods)
	for i := range specs {
		_, specs[i] = n.pod(i + 1)
	}
	n.all(specs, func(s core.Spec) error { _, err := n.driver.Attach(t.Context(), driver.Run{}, s); return err })
	n.all(specs, func(s core.Spec) error { return n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}) })
	n.all(specs, func(s core.Spec) error { return n.driver.Detach(t.Context(), driver.Run{}, s) })
	require.Equal(t, before, n.inventory())
}

func (n *node) all(specs []core.Spec, do func(core.Spec) error) {
	n.Helper()
	errs := make([]error, len(specs))
	var wg sync.WaitGroup
	for i, s := range specs {
		wg.Go(func() { errs[i] = do(s) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(n, err)
	}
}

func TestInternalPortTraffic(t *testing.T) {
	n := newNodeOn(t, ovstest.Userspace)
	a, s := n.pod(1)
	s.NIC.OVS.Type, s.NIC.QoS = ovsdriver.InternalPort, core.QoS{}
	_, o := n.pod(2)
	n.attach(s)
	n.attach(o)
	ping := "ping -c 3 -i 0.2 -W 30 " + o.NIC.Addrs[0].Addr().String()
	n.in(a, ping)
	require.NotContains(t, n.sw.In("ip", "-br", "link"), s.NIC.OVS.HostIf)

	// A new ovs-vswitchd makes a new device; the old one is dead.
	n.sw.KillSwitchd()
	n.sw.StartSwitchd()
	n.eventually("made again", func() bool { return strings.Contains(n.sw.In("ip", "-br", "link"), s.NIC.OVS.HostIf) })
	require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{s, o}))
	require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
	n.in(a, ping)
	require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s))
}

// The switch's database is lost with all ports; the pods' links live.
func TestResyncAfterLostDatabase(t *testing.T) {
	n := newNode(t)
	a, s := n.pod(1)
	_, o := n.pod(2)
	gone, g := n.pod(3)
	for _, s := range []core.Spec{s, o, g} {
		n.attach(s)
	}
	n.sw.KillSwitchd()
	n.sw.KillServer()
	n.eventually("noticed", func() bool { return n.client.Connected() != nil })
	require.ErrorIs(t, n.driver.Detach(t.Context(), driver.Run{}, g), core.ErrUnavailable)
	require.NoError(t, gone.Close())
	for len(n.reset) > 0 {
		<-n.reset
	}
	n.sw.CreateDB()
	n.sw.StartServer()
	n.sw.StartSwitchd()
	<-n.reset
	require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{s, o, g}))
	for _, s := range []core.Spec{s, o} {
		_, err := n.client.WaitPort(t.Context(), s.NIC.OVS.HostIf)
		require.NoError(t, err)
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
	}
	_, found := n.client.PortByName(g.NIC.OVS.HostIf)
	require.False(t, found, "its links are buried, a port would be a leak")
	n.in(a, "ping -c 2 -i 0.2 -W 30 "+o.NIC.Addrs[0].Addr().String())
	require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, g))
}

// TestResyncAfterDetach: the list of a Resync is older than a Detach that ends
// while it runs.
func TestResyncAfterDetach(t *testing.T) {
	n := newNodeOn(t, ovstest.Userspace)
	_, veth := n.pod(1)
	_, internal := n.pod(2)
	internal.NIC.OVS.Type = ovsdriver.InternalPort
	before := n.inventory()
	for _, s := range []core.Spec{veth, internal} {
		n.attach(s)
		require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s))
	}
	require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{veth, internal}))
	require.NoError(t, n.driver.Flush(t.Context()))
	require.Equal(t, before, n.inventory())
}

// TestFailedDetachLeavesAStray: an interface whose removal failed half-way is
// no attachment any more; what is left of it goes without a new start.
func TestFailedDetachLeavesAStray(t *testing.T) {
	n := newNode(t)
	before := n.inventory()
	_, s := n.pod(1)
	n.attach(s)
	n.sw.KillServer()
	n.eventually("noticed", func() bool { return n.client.Connected() != nil })
	require.True(t, n.driver.Left(s))
	require.ErrorIs(t, n.driver.Detach(t.Context(), driver.Run{}, s), core.ErrUnavailable)
	require.False(t, n.driver.Left(s), "a port without a device")
	n.sw.StartServer()
	n.eventually("connected", func() bool { return n.client.Connected() == nil })
	require.Contains(t, n.sw.Vsctl("list-ports", "br-int"), s.NIC.OVS.HostIf)
	require.NoError(t, n.driver.Resync(t.Context(), nil))
	sweep(t, n.driver)
	require.Equal(t, before, n.inventory())
}

func TestServerRestart(t *testing.T) {
	n := newNode(t)
	_, s := n.pod(1)
	n.attach(s)
	n.sw.KillServer()
	n.eventually("noticed", func() bool { return n.client.Connected() != nil })
	_, o := n.pod(2)
	_, err := n.driver.Attach(t.Context(), driver.Run{}, o)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorIs(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}), core.ErrUnavailable)
	n.sw.StartServer()
	n.eventually("connected", func() bool { return n.client.Connected() == nil })
	require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
	n.attach(o)
}

func TestRecover(t *testing.T) {
	n := newNode(t)
	_, s := n.pod(1)
	s.NIC.QoS.IngressBurstMbit, s.NIC.Mirror = 5, true
	n.attach(s)
	lost, o := n.pod(2)
	n.attach(o)
	found, err := n.newDriver().Recover()
	require.NoError(t, err)
	require.Len(t, found, 2)
	slices.SortFunc(found, func(a, b core.Spec) int { return strings.Compare(a.OVS().HostIf, b.OVS().HostIf) })
	got := found[0]
	require.ElementsMatch(t, s.NIC.Routes, got.NIC.Routes)
	require.ElementsMatch(t, s.NIC.Gateways, got.NIC.Gateways)
	got.NIC.Routes, got.NIC.Gateways = s.NIC.Routes, s.NIC.Gateways
	require.Equal(t, s, got)

	// A path that leads to another pod now is no proof.
	require.NoError(t, lost.Close())
	n.sw.Vsctl("set", "Interface", o.NIC.OVS.HostIf, "external_ids:pod_netns="+s.Netns.Path)
	n.eventually("seen", func() bool {
		st, _ := n.client.PortByName(o.NIC.OVS.HostIf)
		return st.ExternalIDs["pod_netns"] == s.Netns.Path
	})
	found, err = n.newDriver().Recover()
	require.NoError(t, err)
	for _, f := range found {
		if f.NIC.OVS.HostIf == o.NIC.OVS.HostIf {
			require.Zero(t, f.Netns)
		}
		require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, f))
	}
}

// Names that somebody else has are not ours to take.
func TestForeignNames(t *testing.T) {
	n := newNode(t)
	cases := map[string]func(h *netns.Handle, s core.Spec){
		"link in the pod":  func(h *netns.Handle, _ core.Spec) { n.in(h, "ip link add eth0 type veth peer name x0") },
		"link on the host": func(_ *netns.Handle, s core.Spec) { n.sw.In("ip", "link", "add", s.NIC.OVS.HostIf, "type", "bridge") },
		"port of another container": func(_ *netns.Handle, s core.Spec) {
			n.sw.Vsctl("add-port", "br-int", s.NIC.OVS.HostIf, "--", "set", "Interface", s.NIC.OVS.HostIf, "external_ids:container_id=other")
		},
		"port of nobody": func(_ *netns.Handle, s core.Spec) { n.sw.Vsctl("add-port", "br-int", s.NIC.OVS.HostIf) },
	}
	i := 0
	for name, block := range cases {
		i++
		t.Run(name, func(t *testing.T) {
			h, s := n.pod(i)
			block(h, s)
			n.eventually("seen", func() bool {
				_, ok := n.client.PortByName(s.NIC.OVS.HostIf)
				return ok == strings.HasPrefix(name, "port")
			})
			before, pod := n.inventory(), n.in(h, "ip -br link")
			_, err := n.driver.Attach(t.Context(), driver.Run{}, s)
			require.ErrorIs(t, err, core.ErrExists)
			require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s))
			require.Equal(t, before, n.inventory())
			require.Equal(t, pod, n.in(h, "ip -br link"))
		})
	}
}

// A Detach that died half-way leaves a buried host end; the pod's end still
// has the name that the retry needs.
func TestHalfBuried(t *testing.T) {
	n := newNode(t)
	h, s := n.pod(1)
	n.attach(s)
	idle := n.newDriver() // nobody reaps for it
	n.sw.In("ip", "link", "set", s.NIC.OVS.HostIf, "group", fmt.Sprint(ovsdriver.GroupTombstone), "down")
	n.sw.In("ip", "link", "set", s.NIC.OVS.HostIf, "name", "fltombx")
	_, err := idle.Attach(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.NoError(t, idle.Check(t.Context(), driver.Run{}, s, core.Link{}))
	require.NoError(t, idle.Detach(t.Context(), driver.Run{}, s))
	require.NotContains(t, n.in(h, "ip -br link"), "eth0")
	require.Contains(t, n.sw.In("ip", "-br", "link"), "fltomb")
	n.background(n.newDriver().Run) // the next process
	n.eventually("reaped after a restart", func() bool { return !strings.Contains(n.sw.In("ip", "-br", "link"), "fltomb") })
}

// An own leftover is completed, whatever is missing of it.
func TestCompletesLeftover(t *testing.T) {
	n := newNode(t)
	h, s := n.pod(1)
	_, o := n.pod(2)
	n.attach(o)
	for _, damage := range []func(){
		func() { n.in(h, "ip addr flush dev eth0") },
		func() { n.in(h, "ip link set eth0 down mtu 1300 address 02:00:00:00:ff:ff") },
		func() { n.in(h, "ip addr add 192.0.2.9/24 dev eth0") },
		func() { n.sw.In("ip", "link", "set", s.NIC.OVS.HostIf, "down", "mtu", "1300", "alias", "") },
		func() { n.in(h, "ip route del default"); n.in(h, "ip -6 route del default") },
		func() { n.sw.Vsctl("del-port", s.NIC.OVS.HostIf) },
		func() { n.sw.In("ip", "link", "del", s.NIC.OVS.HostIf) },
		func() { n.sw.Vsctl("clear", "Port", s.NIC.OVS.HostIf, "qos", "tag") },
		func() { n.sw.Vsctl("set", "Port", s.NIC.OVS.HostIf, "trunks=3", "vlan_mode=trunk") },
		func() { n.sw.Vsctl("remove", "Interface", s.NIC.OVS.HostIf, "external_ids", "iface-id", "web-1.ns1") },
		func() { n.in(h, "sysctl -w net.ipv6.conf.eth0.disable_ipv6=1") },
	} {
		n.attach(s)
		damage()
		n.eventually("found", func() bool { return n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}) != nil })
		n.attach(s)
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
		n.in(h, "ping -c 3 -i 0.2 -W 30 "+o.NIC.Addrs[0].Addr().String())
	}
	require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s))
}

// A runtime that tries again comes at once, with the same names: OVS must not
// mix up the two devices.
func TestTrafficAfterRetry(t *testing.T) {
	n := newNode(t)
	h, s := n.pod(1)
	_, o := n.pod(2)
	n.attach(o)
	for range 10 {
		n.attach(s)
		require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s))
		n.attach(s)
		n.in(h, "ping -c 3 -i 0.2 -W 30 "+o.NIC.Addrs[0].Addr().String())
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
		require.NoError(t, n.driver.Detach(t.Context(), driver.Run{}, s))
	}
}
