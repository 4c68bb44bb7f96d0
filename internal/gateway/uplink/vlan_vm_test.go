//go:build vm

package uplink_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// vlans are the node's VLAN links, with their aliases, by name.
func (b *bed) vlans() string {
	b.t.Helper()
	return strings.TrimSpace(b.sw.In("sh", "-c", `ip -o link show type vlan | awk '{split($2, n, "@"); a = ""; for (i = 3; i < NF; i++) if ($i == "alias") a = $(i + 1); print n[1] "=" a}'`))
}

// TestKernelMadeVLAN: a VLAN link that a network names is made, carries the network's frames
// and goes with it, also after a crash or a reboot between; the link below goes on to serve
// the node, and may be another network's. One that was there stays.
func TestKernelMadeVLAN(t *testing.T) {
	b := newBedOf(t, bedOf{wire: (*bed).wire, address: func(b *bed) {
		b.sw.In("sh", "-euc", "ip link set eth1 up; ip addr add 192.0.2.1/24 dev eth1; ip route add default via 192.0.2.254")
		b.out("sh", "-euc", "ip link add link far name far.100 type vlan id 100; ip link set far.100 up; ip addr add 10.100.0.254/24 dev far.100")
	}})
	ctx := t.Context()
	want := uplink.Want{Network: "net1", NIC: "eth1.100", Trunks: []int{0}, Make: true}
	take := func(w uplink.Want) {
		t.Helper()
		_, err := b.node.Take(ctx, w)
		require.NoError(t, err)
	}
	back := func(network, vlans string) {
		t.Helper()
		require.NoError(t, b.node.Return(ctx, network))
		require.Equal(t, vlans, b.vlans())
	}
	talks := func(bridge string) {
		t.Helper()
		b.sw.In("ip", "addr", "replace", "10.100.0.1/24", "dev", bridge)
		b.out("ping", "-n", "-c", "1", "-w", "10", "10.100.0.1")
	}
	const made = "eth1.100=kube-ovn:net1"
	below := b.ping(b.world, "192.0.2.1")
	for range 2 {
		take(want)
		require.Equal(t, made, b.vlans())
	}
	require.Contains(t, b.sw.Vsctl("list-ports", "br-net1"), "eth1.100")
	talks("br-net1")
	unset := want
	unset.Make = false
	take(unset) // it has its NIC
	require.Equal(t, made, b.vlans())

	b.boot = "two"
	b.sw.In("ip", "link", "del", "eth1.100")
	b.start()
	require.NoError(t, b.node.Resume(ctx))
	require.Equal(t, made, b.vlans())
	talks("br-net1")

	st, err := b.node.Take(ctx, uplink.Want{Network: "net2", NIC: "eth1", Trunks: []int{0}})
	require.NoError(t, err)
	require.Equal(t, []string{"eth1.100"}, st.Above)
	talks("br-net1")
	b.out("ping", "-n", "-c", "1", "-w", "10", "192.0.2.1")
	back("net2", made)
	b.dir = t.TempDir() // the journal is lost
	b.start()
	take(b.node.Strays()[0])
	back("net1", "")
	_, _ = below.lost() // net2's transfer lost some: TestKernelBond says why
	b.out("ping", "-n", "-c", "1", "-w", "10", "192.0.2.1")

	// Killed before the link was made, and while it was.
	begun := core.Uplink{Network: "net1", Bridge: "br-net1", NIC: "eth1.100", Port: "eth1.100", VLAN: 100, Below: "eth1", Phase: core.Taking, BootID: "two", Had: []byte(`{"Name":"eth1.100"}`)}
	require.NoError(t, b.j.Take(ctx, begun))
	b.start()
	back("net1", "")
	require.NoError(t, b.j.Take(ctx, begun))
	b.sw.In("ip", "link", "add", "link", "eth1", "name", rtnl.Draft("eth1.100"), "type", "vlan", "id", "100")
	b.start()
	require.NoError(t, b.node.Resume(ctx))
	require.Equal(t, made, b.vlans())
	b.sw.In("ip", "link", "del", "eth1.100") // somebody did
	back("net1", "")

	want.Exchanged = true
	take(want)
	require.Equal(t, "br-net1=kube-ovn:net1", b.vlans())
	talks("eth1.100")
	back("net1", "")

	want.Exchanged = false
	b.sw.In("ip", "link", "add", "link", "eth1", "name", "eth1.100", "type", "vlan", "id", "100")
	take(want)
	back("net1", "eth1.100=")
	b.sw.In("sh", "-euc", "ip link del eth1.100; ip link add link eth1 name theirs type vlan id 100")
	_, err = b.node.Take(ctx, want)
	require.ErrorContains(t, err, "VLAN 100 of eth1 is theirs's")
	b.sw.In("sh", "-euc", "ip link del theirs; ip link add link eth1 name eth1.100 type vlan id 101")
	_, err = b.node.Take(ctx, want)
	require.ErrorContains(t, err, "eth1.100 is there and is not VLAN 100 of eth1")
	require.Empty(t, b.node.All())
}
