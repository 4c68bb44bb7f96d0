package chassis_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// TestFind: an interface is chosen by its name, an address, an expression or the
// default route, and the address of tunnels is one that others can reach.
func TestFind(t *testing.T) {
	ns := netnstest.New(t)
	ip := func(args ...string) {
		t.Helper()
		netnstest.Do(t, ns, func() error {
			out, err := exec.Command("ip", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w: %s", args, err, out)
			}
			return nil
		})
	}
	for i, name := range []string{"eth0", "eth1", "port.5_h"} {
		ip("link", "add", name, "mtu", fmt.Sprint(1500+i), "type", "veth", "peer", fmt.Sprintf("p%d", i))
		ip("link", "set", name, "up")
		ip("link", "set", fmt.Sprintf("p%d", i), "up")
	}
	ip("addr", "add", "169.254.7.7/16", "dev", "eth0", "scope", "link")
	ip("addr", "add", "fd00::1/64", "dev", "eth0", "nodad")
	ip("addr", "add", "10.1.0.1/24", "dev", "eth0")
	ip("addr", "add", "10.1.0.2/24", "dev", "eth0")
	ip("addr", "add", "fd00:1::1/64", "dev", "eth1", "nodad")
	conn, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()

	nic, err := chassis.Find(conn, "")
	require.NoError(t, err)
	require.Equal(t, chassis.NIC{MTU: 1500}, nic, "no way out")
	ip("route", "add", "default", "via", "10.1.0.9", "dev", "eth0")
	for choice, want := range map[string]chassis.NIC{
		"":                {Name: "eth0", MTU: 1500, Addr: netip.MustParseAddr("10.1.0.1")},
		"eth0":            {Name: "eth0", MTU: 1500, Addr: netip.MustParseAddr("10.1.0.1")},
		"none,eth1":       {Name: "eth1", MTU: 1501, Addr: netip.MustParseAddr("fd00:1::1")},
		"10.1.0.2":        {Name: "eth0", MTU: 1500, Addr: netip.MustParseAddr("10.1.0.2")},
		"fd00::1":         {Name: "eth0", MTU: 1500, Addr: netip.MustParseAddr("fd00::1")},
		"^eth[1-9]$":      {Name: "eth1", MTU: 1501, Addr: netip.MustParseAddr("fd00:1::1")},
		"port.*,eth.*":    {Name: "eth0", MTU: 1500, Addr: netip.MustParseAddr("10.1.0.1")}, // a port has no address
		"port.5_h":        {Name: "port.5_h", MTU: 1502},
		"10.9.9.9 , eth1": {Name: "eth1", MTU: 1501, Addr: netip.MustParseAddr("fd00:1::1")},
	} {
		nic, err := chassis.Find(conn, choice)
		require.NoError(t, err, choice)
		nic.Index = 0
		require.Equal(t, want, nic, choice)
	}
	_, err = chassis.Find(conn, "bond0")
	require.ErrorIs(t, err, core.ErrNotFound)
	_, err = chassis.Find(conn, "eth(")
	require.ErrorContains(t, err, "regular expression")
}
