package ovs_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// TestBridgeKeepsItsMAC: neither a loss of conf.db nor the ports of pods change
// it, and one that the operator chose is his.
func TestBridgeKeepsItsMAC(t *testing.T) {
	sw := ovstest.New(t)
	const mac = "0a:11:22:33:44:55"
	c := runConfig(t, ovs.Config{
		Endpoint: sw.Endpoint(), Bridge: "br-int", Datapath: ovstest.Datapath(t), Log: slog.New(slog.DiscardHandler),
		MAC: core.MAC{0x0a, 0x11, 0x22, 0x33, 0x44, 0x55},
	})
	has := func(mac string) {
		t.Helper()
		eventually(t, mac, func() bool {
			out, err := ovstest.Run(sw.NS, "ip", "link", "show", "br-int")
			return err == nil && strings.Contains(out, mac)
		})
	}
	bridge(t, c)
	has(mac)
	sw.In("ip", "link", "add", "low_h", "address", "02:00:00:00:00:01", "type", "veth", "peer", "low_c")
	require.NoError(t, c.AddPort(t.Context(), pod("low_h", "low"))) // the lowest MAC, which Open vSwitch would take
	_, err := c.WaitPort(t.Context(), "low_h")
	require.NoError(t, err)
	require.NoError(t, c.Settle(t.Context()))
	has(mac)

	sw.KillServer()
	sw.CreateDB()
	sw.StartServer()
	eventually(t, "the bridge is not there", func() bool { return c.Connected() == nil && sw.Count("Bridge") == 0 })
	bridge(t, c)
	has(mac)

	sw.Vsctl("set", "bridge", "br-int", "other_config:hwaddr=0a:99:99:99:99:99", "other_config:mac-table-size=4096")
	require.NoError(t, c.EnsureBridge(t.Context()))
	has("0a:99:99:99:99:99")
	sw.Vsctl("remove", "bridge", "br-int", "other_config", "hwaddr")
	eventually(t, "again ours", func() bool {
		return c.EnsureBridge(t.Context()) == nil && sw.Get("bridge", "br-int", "other_config:hwaddr") == mac
	})
	require.Equal(t, "4096", sw.Get("bridge", "br-int", "other_config:mac-table-size"))
}

// TestWaitReady: it ends when the last part of the switch is there, or with the
// reason why it is not.
func TestWaitReady(t *testing.T) {
	sw := ovstest.NewServer(t)
	c := run(t, sw, nil)
	ready := make(chan error, 1)
	go func() { ready <- c.WaitReady(t.Context()) }()
	eventually(t, "connected", func() bool { return c.Connected() == nil })
	require.NoError(t, c.EnsureBridge(t.Context()))
	over, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorContains(t, c.WaitReady(over), "ovs-vswitchd")
	require.Empty(t, ready)
	sw.StartSwitchd()
	select {
	case err := <-ready:
		require.NoError(t, err)
	case <-time.After(patient):
		require.Fail(t, "it goes on waiting")
	}
}

// TestMirrorAll: the bridge's mirror hears all ports, or those that ask for it, as
// the configuration says; one that says nothing changes nothing.
func TestMirrorAll(t *testing.T) {
	sw := ovstest.NewServer(t)
	all := func(t *testing.T) string {
		t.Helper()
		return sw.Vsctl("--bare", "--columns=select_all", "list", "Mirror")
	}
	for _, c := range []struct {
		says *bool
		want string
	}{{nil, ""}, {new(bool), ""}, {ptr(true), "true"}, {nil, "true"}, {ptr(true), "true"}, {ptr(false), "false"}} {
		client := runConfig(t, ovs.Config{Endpoint: sw.Endpoint(), Bridge: "br-int", MirrorAll: c.says, Log: slog.New(slog.DiscardHandler)})
		eventually(t, "connected", func() bool { return client.Connected() == nil })
		require.NoError(t, client.EnsureBridge(t.Context()))
		require.Equal(t, c.want, all(t))
	}
	require.Equal(t, "mirror0", sw.Vsctl("--bare", "--columns=name", "find", "port", "name=mirror0"))
}

func ptr[T any](v T) *T { return &v }
