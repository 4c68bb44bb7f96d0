package ovs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

const patient = 20 * time.Second

// run connects a client to sw until the test ends.
func run(t *testing.T, sw *ovstest.Switch, onReset func()) *ovs.Client {
	t.Helper()
	return runConfig(t, ovs.Config{
		Endpoint: sw.Endpoint(), Bridge: "br-int", Datapath: ovstest.Datapath(t),
		Log: slog.New(slog.DiscardHandler), OnReset: onReset,
	})
}

func runConfig(t *testing.T, cfg ovs.Config) *ovs.Client {
	t.Helper()
	c := ovs.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patient, 5*time.Millisecond, what)
}

// bridge waits for the connection and makes the bridge.
func bridge(t *testing.T, c *ovs.Client) {
	t.Helper()
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	require.NoError(t, c.EnsureBridge(t.Context()))
	eventually(t, "bridge taken by ovs-vswitchd", func() bool { return c.Ready() == nil })
}

// veth makes a device for a port in the switch's namespace.
func veth(t *testing.T, sw *ovstest.Switch, name string) {
	t.Helper()
	conn, err := rtnl.Open(sw.NS)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	peer := netnstest.New(t)
	near, err := conn.EnsureVeth(rtnl.Veth{Name: name, Peer: peer, PeerName: "eth0"})
	require.NoError(t, err)
	require.NoError(t, conn.SetUp(near.Index))
}

func pod(name, container string) ovs.Port {
	return ovs.Port{
		Name: name, VLAN: 1000, PolicingRate: 1000, PolicingBurst: 800,
		ExternalIDs: map[string]string{
			ovs.KeyIfaceID: "web.ns1", ovs.KeyContainer: container, ovs.KeyVendor: ovs.Vendor, "pod_name": "web",
		},
		QoS: &ovs.QoS{
			Type: "linux-htb", Other: map[string]string{"max-rate": "3000000"},
			QueueOther:  map[string]string{"max-rate": "3000000", "burst": "2400000"},
			ExternalIDs: map[string]string{"iface-id": "web.ns1", "pod": "ns1/web"},
		},
	}
}

func TestPortLife(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	require.Equal(t, ovstest.Datapath(t), sw.Get("Bridge", "br-int", "datapath_type"))
	require.Equal(t, "standalone", sw.Get("Bridge", "br-int", "fail_mode"))
	require.Equal(t, "kube-ovn", sw.Get("Bridge", "br-int", "external_ids:vendor"))

	veth(t, sw, "aaa_h")
	p := pod("aaa_h", "aaa")
	require.NoError(t, c.AddPort(t.Context(), p))
	n, err := c.WaitPort(t.Context(), "aaa_h")
	require.NoError(t, err)
	require.Positive(t, n)
	require.Equal(t, "1000", sw.Get("Port", "aaa_h", "tag"))
	require.Equal(t, "1000", sw.Get("Interface", "aaa_h", "ingress_policing_rate"))
	require.Equal(t, "800", sw.Get("Interface", "aaa_h", "ingress_policing_burst"))
	require.Equal(t, "web.ns1", sw.Get("Interface", "aaa_h", "external_ids:iface-id"))
	qos := sw.Get("Port", "aaa_h", "qos")
	require.Equal(t, "linux-htb", sw.Get("QoS", qos, "type"))
	require.Equal(t, "3000000", sw.Get("QoS", qos, "other_config:max-rate"))
	require.Equal(t, "ns1/web", sw.Get("QoS", qos, "external_ids:pod"))
	queue := sw.Get("QoS", qos, "queues:0")
	require.Equal(t, "2400000", sw.Get("Queue", queue, "other_config:burst"))

	require.NoError(t, c.AddPort(t.Context(), p), "again")
	require.Equal(t, qos, sw.Get("Port", "aaa_h", "qos"), "an equal port is left alone")

	other := pod("aaa_h", "bbb")
	require.ErrorIs(t, c.AddPort(t.Context(), other), core.ErrExists)

	require.NoError(t, c.DelPort(t.Context(), "aaa_h"))
	require.NoError(t, c.DelPort(t.Context(), "aaa_h"), "again")
	requireEmpty(t, sw)
}

// requireEmpty proves that only the bridge is left.
func requireEmpty(t *testing.T, sw *ovstest.Switch) {
	t.Helper()
	require.Equal(t, "", sw.Vsctl("list-ports", "br-int"))
	for _, table := range []string{"QoS", "Queue", "Mirror"} {
		require.Zero(t, sw.Count(table), table)
	}
	require.Equal(t, 1, sw.Count("Interface"))
	require.Equal(t, 1, sw.Count("Port"))
}

func TestPortChanges(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	veth(t, sw, "aaa_h")
	p := pod("aaa_h", "aaa")
	require.NoError(t, c.AddPort(t.Context(), p))
	first, err := c.WaitPort(t.Context(), "aaa_h")
	require.NoError(t, err)
	sw.Vsctl("set", "Interface", "aaa_h", "external_ids:ovn-installed=true", "--", "set", "Port", "aaa_h", "trunks=1,2")

	p.VLAN, p.PolicingRate, p.QoS = 0, 0, nil
	require.NoError(t, c.AddPort(t.Context(), p))
	require.Equal(t, "[]", sw.Get("Port", "aaa_h", "tag"))
	require.Equal(t, "[]", sw.Get("Port", "aaa_h", "trunks"))
	require.Equal(t, "true", sw.Get("Interface", "aaa_h", "external_ids:ovn-installed"), "what others wrote stays")
	require.Zero(t, sw.Count("QoS")+sw.Count("Queue"))

	p.QoS = &ovs.QoS{Type: "linux-netem", Other: map[string]string{"latency": "5000"}}
	require.NoError(t, c.AddPort(t.Context(), p))
	require.Equal(t, 1, sw.Count("QoS"))
	require.Zero(t, sw.Count("Queue"))
	p = pod("aaa_h", "aaa")
	require.NoError(t, c.AddPort(t.Context(), p))
	require.Equal(t, 1, sw.Count("QoS"))
	n, err := c.WaitPort(t.Context(), "aaa_h")
	require.NoError(t, err)
	require.Equal(t, first, n, "changed in place")

	require.NoError(t, c.Settle(t.Context()))
	st, ok := c.PortByName("aaa_h")
	require.True(t, ok)
	require.Equal(t, "br-int", st.Bridge)
	require.Equal(t, p.QoS.QueueOther, st.QoS.QueueOther)
	require.Len(t, c.PortsWith(ovs.KeyContainer, "aaa"), 1)
	require.Len(t, c.PortsWith(ovs.KeyContainer, ""), 1)
	require.Empty(t, c.PortsWith(ovs.KeyContainer, "aab"))

	// A port that hangs on another bridge comes home.
	sw.Vsctl("del-port", "aaa_h", "--", "add-br", "br-x", "--", "set", "bridge", "br-x", "datapath_type=netdev",
		"--", "add-port", "br-x", "aaa_h", "--", "set", "Interface", "aaa_h", "external_ids:container_id=aaa")
	eventually(t, "the replica has seen it", func() bool { st, _ := c.PortByName("aaa_h"); return st.Bridge == "br-x" })
	require.NoError(t, c.AddPort(t.Context(), p))
	_, err = c.WaitPort(t.Context(), "aaa_h")
	require.NoError(t, err)
	require.Equal(t, "aaa_h", sw.Vsctl("list-ports", "br-int"))
	require.Equal(t, "", sw.Vsctl("list-ports", "br-x"))
}

// What others write into a row while a port is changed stays: the replica may not
// have it yet.
func TestPortChangesBesideOthers(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	veth(t, sw, "aaa_h")
	p := pod("aaa_h", "aaa")
	for i := range 30 {
		p.VLAN = 100 + i
		require.NoError(t, c.AddPort(t.Context(), p))
		sw.Vsctl("--no-wait", "set", "Interface", "aaa_h", fmt.Sprintf("external_ids:other%d=true", i))
	}
	for i := range 30 {
		require.Equal(t, "true", sw.Get("Interface", "aaa_h", fmt.Sprintf("external_ids:other%d", i)))
	}
}

// The runtime makes a pod's new sandbox before it removes the old one.
func TestIfaceIDHasOneOwner(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	require.NoError(t, c.AddPort(t.Context(), pod("bbb_h", "bbb")))
	require.NotContains(t, sw.Get("Interface", "aaa_h", "external_ids"), "iface-id")
	require.Equal(t, "web.ns1", sw.Get("Interface", "bbb_h", "external_ids:iface-id"))
	require.Equal(t, 2, sw.Count("QoS"))
	require.NoError(t, c.DelPort(t.Context(), "aaa_h"))
	require.Equal(t, 1, sw.Count("QoS"), "the new sandbox keeps its rows")
	require.Equal(t, 1, sw.Count("Queue"))
	require.NoError(t, c.DelPort(t.Context(), "bbb_h"))
	require.NoError(t, c.DelPort(t.Context(), "ccc_h"), "never was")
	requireEmpty(t, sw)
}

// Rows that somebody else refers to cannot go; the port must.
func TestSharedQoS(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	sw.Vsctl("add-port", "br-int", "his", "--", "set", "Port", "his", "qos="+sw.Get("Port", "aaa_h", "qos"))
	require.NoError(t, c.DelPort(t.Context(), "aaa_h"))
	require.Equal(t, "his", sw.Vsctl("list-ports", "br-int"))
	require.Equal(t, 1, sw.Count("QoS"))
}

func TestWaitPortTellsWhatOVSSays(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	p := pod("none_h", "aaa")
	require.NoError(t, c.AddPort(t.Context(), p))
	_, err := c.WaitPort(t.Context(), "none_h")
	require.ErrorContains(t, err, "No such device")
	require.Equal(t, core.CodeIO, core.CodeOf(err))

	// The device comes, the same port is asked for again: the old error must
	// not be taken for the new outcome.
	veth(t, sw, "none_h")
	require.NoError(t, c.AddPort(t.Context(), p))
	_, err = c.WaitPort(t.Context(), "none_h")
	require.NoError(t, err)

	_, err = c.WaitPort(t.Context(), "never")
	require.ErrorIs(t, err, core.ErrNotFound)
}

func TestWaitPortWithoutSwitchd(t *testing.T) {
	sw := ovstest.NewServer(t)
	c := run(t, sw, nil)
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	require.ErrorIs(t, c.Ready(), core.ErrUnavailable)
	require.NoError(t, c.EnsureBridge(t.Context()))
	require.ErrorContains(t, c.Ready(), "ovs-vswitchd")
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.WaitPort(ctx, "aaa_h")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorIs(t, c.Settle(ctx), context.DeadlineExceeded)

	// A port that goes away, and a server that does, end a wait.
	done := make(chan error, 1)
	wait := func() { _, err := c.WaitPort(t.Context(), "aaa_h"); done <- err }
	go wait()
	require.NoError(t, c.DelPort(t.Context(), "aaa_h"))
	require.ErrorIs(t, <-done, core.ErrNotFound)
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	go wait()
	sw.KillServer()
	require.ErrorIs(t, <-done, core.ErrUnavailable)
	require.ErrorIs(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")), core.ErrUnavailable)
	require.ErrorIs(t, c.DelPort(t.Context(), "aaa_h"), core.ErrUnavailable)
}

// TestWaitClaim: each claim of ovn-controller ends a wait, as its end and that of the server do.
func TestWaitClaim(t *testing.T) {
	sw := ovstest.NewServer(t)
	c := run(t, sw, nil)
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	require.NoError(t, c.EnsureBridge(t.Context()))
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	done := make(chan error, 1)
	last := ""
	wait := func() { done <- c.WaitClaim(t.Context(), "aaa_h", last) }
	for _, turn := range []struct{ ids, want string }{
		{"ovn-installed=true external_ids:ovn-installed-ts=7", "7"}, {"ovn-installed-ts=8", "8"}, {"ovn-installed=false", ""},
	} {
		go wait()
		sw.Vsctl(append([]string{"set", "Interface", "aaa_h"}, strings.Fields("external_ids:"+turn.ids)...)...)
		require.NoError(t, <-done)
		last = c.Claim("aaa_h")
		require.Equal(t, turn.want, last)
	}
	go wait()
	sw.KillServer()
	require.ErrorIs(t, <-done, core.ErrUnavailable)
	eventually(t, "away", func() bool { return c.Connected() != nil })
	require.Empty(t, c.Claim("aaa_h"))
}

// TestRunning: the database says nothing of a process that died or hangs, its
// control socket does; where that is not to be found, a change does.
func TestRunning(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	require.NoError(t, c.Running(t.Context()))
	before := sw.Get("Open_vSwitch", ".", "next_cfg")
	require.NoError(t, c.Running(t.Context()))
	require.Equal(t, before, sw.Get("Open_vSwitch", ".", "next_cfg"), "the database was changed to ask")

	control := filepath.Join(filepath.Dir(sw.Socket), "ovs-vswitchd.ctl")
	require.NoError(t, os.Rename(control, control+".away"))
	require.ErrorIs(t, ovs.AskSwitchd(t.Context(), sw.Endpoint()), core.ErrNotFound)
	require.ErrorIs(t, ovs.AskSwitchd(t.Context(), "tcp:127.0.0.1:6640"), core.ErrNotFound)
	require.NoError(t, c.Running(t.Context()), "it runs, with its socket elsewhere")
	require.NoError(t, os.Rename(control+".away", control))

	sw.SignalSwitchd(syscall.SIGSTOP)
	require.ErrorIs(t, ovs.AskSwitchd(t.Context(), sw.Endpoint()), core.ErrUnavailable)
	require.NoError(t, c.Ready())
	require.ErrorIs(t, c.Running(t.Context()), core.ErrUnavailable)
	sw.SignalSwitchd(syscall.SIGCONT)
	require.NoError(t, c.Running(t.Context()))

	sw.KillSwitchd()
	require.NoError(t, c.Ready())
	require.ErrorIs(t, ovs.AskSwitchd(t.Context(), sw.Endpoint()), core.ErrUnavailable)
	require.ErrorIs(t, c.Running(t.Context()), core.ErrUnavailable)
}

func TestMirror(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	var wg sync.WaitGroup
	for i := range 8 {
		p := pod(fmt.Sprintf("p%d_h", i), fmt.Sprint(i))
		p.ExternalIDs[ovs.KeyIfaceID] = p.Name
		p.Mirror = true
		wg.Go(func() { require.NoError(t, c.AddPort(t.Context(), p)) })
	}
	wg.Wait()
	require.Equal(t, 1, sw.Count("Mirror"), "made once although all came at once")
	st, _ := c.PortByName("p3_h")
	require.True(t, st.Mirror)
	require.Equal(t, sw.Get("Port", ovs.MirrorPort, "_uuid"), sw.Get("Mirror", ovs.MirrorName, "output_port"))

	p := st.Port
	p.Mirror = false
	p.QoS.ExternalIDs = nil
	require.NoError(t, c.AddPort(t.Context(), p))
	require.NotContains(t, sw.Get("Mirror", ovs.MirrorName, "select_dst_port"), sw.Get("Port", "p3_h", "_uuid"))
	require.NoError(t, c.DelPort(t.Context(), "p4_h"))
	require.Len(t, strings.Split(sw.Get("Mirror", ovs.MirrorName, "select_dst_port"), ","), 6)
}

func TestManyAtOnce(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	const n = 50
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("p%d_h", i))
		veth(t, sw, names[i])
	}
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			p := pod(name, fmt.Sprint(i))
			p.ExternalIDs[ovs.KeyIfaceID] = name
			require.NoError(t, c.AddPort(t.Context(), p))
			_, err := c.WaitPort(t.Context(), name)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	require.Len(t, c.PortsWith(ovs.KeyVendor, ovs.Vendor), n)
	for _, name := range names {
		wg.Go(func() { require.NoError(t, c.DelPort(t.Context(), name)) })
	}
	wg.Wait()
	requireEmpty(t, sw)
}

func TestReconnect(t *testing.T) {
	sw := ovstest.New(t)
	var resets atomic.Int32
	c := run(t, sw, func() { resets.Add(1) })
	bridge(t, c)
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	before := resets.Load()
	require.Positive(t, before)

	sw.KillServer()
	eventually(t, "noticed", func() bool { return c.Connected() != nil })
	require.ErrorIs(t, c.Ready(), core.ErrUnavailable)
	sw.StartServer()
	eventually(t, "connected again", func() bool { return c.Connected() == nil })
	eventually(t, "reset", func() bool { return resets.Load() > before })
	_, ok := c.PortByName("aaa_h")
	require.True(t, ok)
	veth(t, sw, "bbb_h")
	p := pod("bbb_h", "bbb")
	require.NoError(t, c.AddPort(t.Context(), p))
	_, err := c.WaitPort(t.Context(), "bbb_h")
	require.NoError(t, err)
}

func TestDatabaseLost(t *testing.T) {
	sw := ovstest.New(t)
	var resets atomic.Int32
	c := run(t, sw, func() { resets.Add(1) })
	bridge(t, c)
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
	sw.KillSwitchd()
	sw.KillServer()
	eventually(t, "noticed", func() bool { return c.Connected() != nil })
	before := resets.Load()
	sw.CreateDB()
	sw.StartServer()
	sw.StartSwitchd()
	eventually(t, "reset", func() bool { return resets.Load() > before })
	_, ok := c.PortByName("aaa_h")
	require.False(t, ok, "nothing of the old database is left in the replica")
	require.ErrorIs(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")), core.ErrUnavailable, "no bridge")
	bridge(t, c)
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
}

// ovs-vswitchd can delete its devices when it ends: who put addresses on them
// must hear of the new ones.
func TestResets(t *testing.T) {
	sw := ovstest.New(t)
	var resets atomic.Int32
	c := run(t, sw, func() { resets.Add(1) })
	bridge(t, c)
	eventually(t, "device known", func() bool { st, _ := c.PortByName("br-int"); return st.IfIndex > 0 })
	before := resets.Load()
	sw.ExitSwitchd()
	sw.StartSwitchd()
	eventually(t, "reset after a restart of ovs-vswitchd", func() bool { return resets.Load() > before })

	before = resets.Load()
	sw.Vsctl("del-br", "br-int")
	eventually(t, "reset after the bridge vanished", func() bool { return resets.Load() > before })
	bridge(t, c)
}

func TestInternalPort(t *testing.T) {
	sw := ovstest.New(t)
	c := run(t, sw, nil)
	bridge(t, c)
	mac, err := net.ParseMAC("02:00:00:00:00:01")
	require.NoError(t, err)
	p := ovs.Port{Name: "gw0", Type: "internal", MAC: core.MAC(mac), MTU: 1400, ExternalIDs: map[string]string{ovs.KeyGateway: "s1"}}
	require.NoError(t, c.AddPort(t.Context(), p))
	_, err = c.WaitPort(t.Context(), "gw0")
	require.NoError(t, err)
	require.Contains(t, sw.In("ip", "link", "show", "gw0"), "02:00:00:00:00:01")
	require.Contains(t, sw.In("ip", "link", "show", "gw0"), "mtu 1400")
	p.ExternalIDs = map[string]string{ovs.KeyGateway: "s2"}
	require.ErrorIs(t, c.AddPort(t.Context(), p), core.ErrExists)
}

// A server that accepts and never answers must not hold anybody.
func TestBlackhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	var accepted atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	c := runConfig(t, ovs.Config{Endpoint: "unix:" + path, Bridge: "br-int", Log: slog.New(slog.DiscardHandler), Probe: 50 * time.Millisecond})
	eventually(t, "it gives up and tries again", func() bool { return accepted.Load() > 2 })
	require.ErrorIs(t, c.Ready(), core.ErrUnavailable)
	require.ErrorIs(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")), core.ErrUnavailable)
}

// A server that stops answering in the middle of a call.
func TestFrozenServer(t *testing.T) {
	sw := ovstest.NewServer(t)
	c := runConfig(t, ovs.Config{Endpoint: sw.Endpoint(), Bridge: "br-int", Log: slog.New(slog.DiscardHandler), Probe: 200 * time.Millisecond})
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	require.NoError(t, c.EnsureBridge(t.Context()))
	sw.Signal(syscall.SIGSTOP)
	require.ErrorIs(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")), core.ErrUnavailable)
	eventually(t, "noticed", func() bool { return c.Connected() != nil })
	sw.Signal(syscall.SIGCONT)
	eventually(t, "connected again", func() bool { return c.Connected() == nil })
	require.NoError(t, c.AddPort(t.Context(), pod("aaa_h", "aaa")))
}

func TestCancelledCall(t *testing.T) {
	sw := ovstest.NewServer(t)
	c := run(t, sw, nil)
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.EnsureBridge(ctx), context.Canceled)
}

// TestStopIsNoFailure: a client that is told to end does not warn of it.
func TestStopIsNoFailure(t *testing.T) {
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	c := ovs.New(ovs.Config{Endpoint: ovstest.NewServer(t).Endpoint(), Bridge: "br-int", Log: slog.New(slog.NewTextHandler(&log, nil))})
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	stop()
	<-done
	require.NotContains(t, log.String(), "WARN")
}

// TestFlows: with OVN a port forwards when ovn-controller says that its flows
// are there, and without them the bridge forwards nothing.
func TestFlows(t *testing.T) {
	t.Parallel()
	sw := ovstest.New(t)
	c := runConfig(t, ovs.Config{
		Endpoint: sw.Endpoint(), Bridge: "br-int", Datapath: ovstest.Datapath(t), OVN: true, Log: slog.New(slog.DiscardHandler),
	})
	bridge(t, c)
	require.Equal(t, "secure", sw.Vsctl("get", "bridge", "br-int", "fail_mode"))
	sw.Vsctl("set-fail-mode", "br-int", "standalone")
	eventually(t, "put back", func() bool {
		return c.EnsureBridge(t.Context()) == nil && sw.Vsctl("get", "bridge", "br-int", "fail_mode") == "secure"
	})

	veth(t, sw, "web_h")
	require.NoError(t, c.AddPort(t.Context(), pod("web_h", "c1")))
	short, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	_, err := c.WaitPort(short, "web_h")
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorContains(t, err, "ovn-controller")
	waited := make(chan error, 1)
	go func() { _, err := c.WaitPort(t.Context(), "web_h"); waited <- err }()
	sw.Vsctl("set", "interface", "web_h", "external_ids:ovn-installed=true")
	require.NoError(t, <-waited)
}
