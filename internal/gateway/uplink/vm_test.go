//go:build vm

package uplink_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
)

// bond makes bond0 of two NICs, and two VLAN links above it. The far ends are one bridge.
func (b *bed) bond() {
	b.t.Helper()
	in := func(run func(string, ...string) string, lines ...string) {
		for _, l := range lines {
			run("ip", strings.Fields(l)...)
		}
	}
	in(b.out, "link add far type bridge", "link set far up")
	in(b.sw.In, "link add bond0 address 02:00:00:00:01:01 type bond mode active-backup miimon 100")
	for _, n := range []string{"0", "1"} {
		in(b.sw.In, "link add nic"+n+" type veth peer name far"+n+" netns "+b.world.ProcPath(), "link set nic"+n+" master bond0")
		b.sw.In("ethtool", "-K", "nic"+n, "tx", "off")
		b.out("ethtool", "-K", "far"+n, "tx", "off")
		in(b.out, "link set far"+n+" master far", "link set far"+n+" up")
	}
	in(b.sw.In, "link set bond0 up", "link add link bond0 name bond0.10 type vlan id 10", "link add link bond0 name bond0.20 type vlan id 20")
	in(b.out, "link add link far name far.10 type vlan id 10", "link add link far name far.20 type vlan id 20", "link set far.10 up", "link set far.20 up",
		"addr add 192.0.2.254/24 dev far", "addr add 2001:db8::fe/64 dev far nodad", "addr add 10.10.0.254/24 dev far.10", "addr add 2001:db8:20::fe/64 dev far.20 nodad")
}

// TestKernelBond: a bond goes to a bridge of the kernel's datapath and comes back, and the
// node is reached at its addresses, those on the VLAN links above the bond too, which pods'
// VLANs cannot have; a TCP connection goes on. While ovs-vswitchd, slow as it is here, adds
// the port nobody has what the bond hears.
func TestKernelBond(t *testing.T) {
	b := newBedOf(t, bedOf{nic: "bond0", wire: (*bed).bond, address: func(b *bed) {
		for _, l := range []string{
			"link set bond0.10 up", "link set bond0.20 up", "addr add 192.0.2.1/24 dev bond0", "addr add 2001:db8::1/64 dev bond0 nodad",
			"addr add 10.10.0.1/24 dev bond0.10", "addr add 2001:db8:20::1/64 dev bond0.20 nodad", "route add default via 192.0.2.254",
		} {
			b.sw.In("ip", strings.Fields(l)...)
		}
	}})
	before := b.has("bond0")
	for _, addr := range []string{"192.0.2.1", "2001:db8::1", "10.10.0.1", "2001:db8:20::1"} {
		b.out("ping", "-n", "-c", "1", "-w", "5", addr)
	}
	main, vlan := b.ping(b.world, "192.0.2.1"), b.ping(b.world, "10.10.0.1")
	say := b.talk()
	say()
	want := uplink.Want{Network: "net1", NIC: "bond0", Trunks: []int{0, 100}, Above: []string{"bond0.20"}}
	for range 2 {
		st, err := b.node.Take(t.Context(), want)
		require.NoError(t, err)
		require.Equal(t, []string{"bond0.10", "bond0.20"}, st.Above)
	}
	say()
	require.Equal(t, before, b.has("br-net1"))
	want.Trunks = append(want.Trunks, 10, 200)
	_, err := b.node.Take(t.Context(), want)
	require.ErrorContains(t, err, "VLAN 10 of bond0 is bond0.10's")
	require.Equal(t, "[0, 100, 200]", b.sw.Get("Port", "bond0", "trunks"), "what can be done is")
	for _, addr := range []string{"2001:db8::1", "2001:db8:20::1"} {
		b.out("ping", "-n", "-c", "1", "-w", "5", addr)
	}
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.Equal(t, before, b.has("bond0"))
	say()
	// A bond is set up anew by the kernel when its datapath takes it and gives it back, and what
	// comes in that moment is lost: mostly nothing, of 8 runs one ping of a VLAN and up to 3 untagged.
	for what, p := range map[string]*ping{"untagged": main, "VLAN 10": vlan} {
		answered, lost := p.lost()
		t.Logf("%s: %d pings lost, %d answered, one each 10 ms", what, lost, answered)
		require.NotZero(t, answered)
		require.Less(t, lost, map[string]int{"untagged": 20, "VLAN 10": 4}[what], what)
	}

	want.Trunks, want.Above = []int{0}, []string{"bond0.30"}
	_, err = b.node.Take(t.Context(), want)
	require.ErrorContains(t, err, "bond0.30 is no VLAN link above bond0")
	require.Empty(t, b.node.All())
	_, err = b.node.Take(t.Context(), uplink.Want{Network: "net1", NIC: "nic0", Trunks: []int{0}})
	require.ErrorContains(t, err, "nic0 is a member of bond0 (bond): give that")

	// Its neighbours with another member's MAC would be cut off.
	b.sw.In("ip", "link", "add", "alb", "type", "bond", "mode", "balance-alb")
	_, err = b.node.Take(t.Context(), uplink.Want{Network: "net1", NIC: "alb", Trunks: []int{0}})
	require.ErrorContains(t, err, "bond alb has mode balance-alb")
}
