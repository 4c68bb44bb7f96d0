package encap_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/encap"
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

	nic, err := encap.Find(conn, "")
	require.NoError(t, err)
	require.Equal(t, encap.NIC{MTU: 1500}, nic, "no way out")
	ip("route", "add", "default", "via", "10.1.0.9", "dev", "eth0")
	for choice, want := range map[string]encap.NIC{
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
		nic, err := encap.Find(conn, choice)
		require.NoError(t, err, choice)
		nic.Index = 0
		require.Equal(t, want, nic, choice)
	}
	_, err = encap.Find(conn, "bond0")
	require.ErrorIs(t, err, core.ErrNotFound)
	_, err = encap.Find(conn, "eth(")
	require.ErrorContains(t, err, "regular expression")
}

// TestFindOfAGivenNIC: a choice goes on to mean the NIC that it meant when that was given to
// a bridge, renamed or pulled out, and no other one; until the bridge has its address, as after
// a boot, it is the NIC.
func TestFindOfAGivenNIC(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	ip := func(line string) {
		t.Helper()
		netnstest.Do(t, ns, func() error {
			out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, out)
			}
			return nil
		})
	}
	for _, name := range []string{"eth1", "eth2", "br-net1"} {
		ip("link add " + name + " type veth peer name far-" + name)
		ip("link set " + name + " up")
	}
	ip("addr add 192.0.2.1/24 dev br-net1")
	conn, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	given := encap.Given{Names: []string{"eth1", "eth1"}, Now: "eth1", Bridge: "br-net1"}
	found := func(want string, choices ...string) {
		t.Helper()
		for _, choice := range choices {
			nic, err := encap.Find(conn, choice, given)
			require.NoError(t, err, choice)
			require.Equal(t, want, nic.Name, choice)
		}
	}
	meant := []string{"eth1", "eth.*", "^eth1$", "none,eth1"}
	found("br-net1", meant...)
	ip("addr add 198.51.100.1/24 dev eth2")
	found("br-net1", meant...)
	found("eth2", "eth2", "eth[2-9]")

	ip("link set eth1 down")
	ip("link set eth1 name enp3s0")
	given.Now = "enp3s0"
	found("br-net1", append(meant, "enp3s0")...)
	ip("addr del 192.0.2.1/24 dev br-net1")
	ip("addr add 192.0.2.1/24 dev enp3s0")
	found("enp3s0", meant...)
	ip("link set br-net1 name br-none")
	found("enp3s0", meant...)

	ip("link del enp3s0")
	given.Now = ""
	_, err = encap.Find(conn, "eth1", given)
	require.ErrorIs(t, err, core.ErrNotFound)
	found("eth2", "eth.*")
	ip("link set br-none name br-net1")
	ip("addr add 192.0.2.1/24 dev br-net1")
	found("br-net1", "eth1", "^eth1$", "none,eth1")
	found("eth2", "eth.*") // by which others are reached
	ip("addr del 198.51.100.1/24 dev eth2")
	found("br-net1", meant...)
}
