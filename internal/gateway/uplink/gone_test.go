package uplink_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/uplink"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// spare gives the node another NIC, with an address of its own, by which it reaches the world.
func (b *bed) spare() {
	b.t.Helper()
	b.sw.In("ip", "link", "add", "eth2", "address", "02:00:00:00:02:02", "type", "veth", "peer", "name", "far2", "netns", b.world.ProcPath())
	b.sw.In("ethtool", "-K", "eth2", "tx", "off")
	b.out("ethtool", "-K", "far2", "tx", "off")
	b.out("ip", "link", "set", "far2", "up")
	b.out("ip", "addr", "add", "192.0.2.254/24", "dev", "far2")
	b.sw.In("ip", "link", "set", "eth2", "up")
	b.sw.In("ip", "addr", "add", "192.0.2.5/24", "dev", "eth2")
}

// clean tells that nothing is left of a NIC that was given away, and died.
func (b *bed) clean(nic string) {
	b.t.Helper()
	require.NoFileExists(b.t, b.run+"/systemd/network/05-fairlead-"+nic+".network")
	require.NoFileExists(b.t, b.run+"/NetworkManager/conf.d/fairlead-"+nic+".conf")
	require.NotContains(b.t, b.sw.In("nft", "list", "tables"), "fairlead-uplink-"+nic)
}

// TestDeadNIC: of a NIC that died its network goes to another one, which has what is its
// own, or leaves the node; either way nothing is left of the dead one. While the other one is
// not there nothing is taken away.
func TestDeadNIC(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	_, err := b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	before := b.has("br-net1")
	b.sw.In("ip", "link", "set", "eth1", "name", "lan0")
	_, err = b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	b.sw.In("ip", "link", "del", "lan0")
	b.spare()

	other := uplink.Want{Network: "net1", NIC: "eth7", Trunks: net1.Trunks}
	_, err = b.node.Take(t.Context(), other)
	require.ErrorContains(t, err, "this node has no link eth7")
	require.Equal(t, before, b.has("br-net1"), "the bridge keeps what it has")

	other.NIC = "eth2"
	st, err := b.node.Take(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, "eth2", st.NIC)
	require.Equal(t, "eth2", b.sw.Vsctl("list-ports", "br-net1"))
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "192.0.2.5")
	require.NotContains(t, b.has("br-net1"), "192.0.2.1/24", "that of the dead one, which may have led elsewhere")
	require.Contains(t, b.sw.In("ip", "rule"), "iif eth1 [detached] lookup 100", "it is there for a NIC of that name")
	require.NotContains(t, b.sw.In("ip", "rule"), "br-net1")
	b.clean("eth1")
	b.clean("lan0")

	b.sw.In("ip", "link", "del", "eth2")
	b.start()
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.Empty(t, b.node.All())
	require.Empty(t, b.sw.Get("Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"))
	b.until("the bridge is gone", func() bool {
		_, err := ovstest.Run(b.sw.NS, "ip", "link", "show", "br-net1")
		return err != nil && b.sw.Count("Bridge") == 1
	})
	b.clean("eth2")
	b.clean("br-net1")
}

// TestDeadNICOfExchangedNames: as much is done where bridge and NIC had changed names, and
// rules, which name what both were called, stay.
func TestDeadNICOfExchangedNames(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	w := net1
	w.Exchanged = true
	_, err := b.node.Take(t.Context(), w)
	require.NoError(t, err)
	b.sw.In("ip", "link", "del", "br-net1")
	require.NoError(t, b.node.Return(t.Context(), "net1"))
	require.Empty(t, b.node.All())
	require.Contains(t, b.sw.In("ip", "rule"), "iif eth1 [detached] lookup 100")
	b.clean("br-net1")
	b.clean("eth1")
	b.sw.In("ip", "rule", "del", "priority", "77") // address makes it
	b.wire()
	b.address()
	_, err = b.node.Take(t.Context(), net1)
	require.NoError(t, err)
	b.out("ping", "-n", "-c", "3", "-i", "0.1", "192.0.2.1")
}
