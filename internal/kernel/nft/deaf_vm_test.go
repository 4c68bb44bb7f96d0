//go:build vm

package nft_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// TestKernelDeafBut: of a deaf link the IP stack hears those VLANs that it is to hear, and no
// frame else.
func TestKernelDeafBut(t *testing.T) {
	here, there := netnstest.New(t), netnstest.New(t)
	for _, l := range []string{
		"link add eth1 type veth peer name far netns " + there.ProcPath(), "link set eth1 up", "addr add 10.0.0.1/24 dev eth1",
		"link add link eth1 name eth1.10 type vlan id 10", "link set eth1.10 up", "addr add 10.10.0.1/24 dev eth1.10",
		"link add link eth1 name eth1.20 type vlan id 20", "link set eth1.20 up", "addr add 10.20.0.1/24 dev eth1.20",
		"link add link eth1 name eth1.30 type vlan proto 802.1ad id 20", "link set eth1.30 up", "addr add 10.30.0.1/24 dev eth1.30",
	} {
		out, err := ovstest.Run(here, "ip", strings.Fields(l)...)
		require.NoError(t, err, out)
	}
	for _, l := range []string{
		"link set far up", "addr add 10.0.0.2/24 dev far", "link add link far name far.10 type vlan id 10", "link set far.10 up", "addr add 10.10.0.2/24 dev far.10",
		"link add link far name far.20 type vlan id 20", "link set far.20 up", "addr add 10.20.0.2/24 dev far.20",
		"link add link far name far.30 type vlan proto 802.1ad id 20", "link set far.30 up", "addr add 10.30.0.2/24 dev far.30",
	} {
		out, err := ovstest.Run(there, "ip", strings.Fields(l)...)
		require.NoError(t, err, out)
	}
	heard := func() (out []bool) {
		for _, addr := range []string{"10.0.0.1", "10.10.0.1", "10.20.0.1", "10.30.0.1"} {
			_, err := ovstest.Run(there, "ping", "-n", "-c", "2", "-i", "0.2", "-w", "2", addr)
			out = append(out, err == nil)
		}
		return out
	}
	c, err := rtnl.Open(here)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	var tags []nft.Tag
	for _, name := range []string{"eth1.10", "eth1.20", "eth1.30"} {
		l, err := c.LinkByName(name)
		require.NoError(t, err)
		tags = append(tags, nft.Tag{Protocol: l.VLANProtocol, ID: l.VLAN})
	}
	require.Equal(t, []nft.Tag{{Protocol: 0x8100, ID: 10}, {Protocol: 0x8100, ID: 20}, {Protocol: 0x88a8, ID: 20}}, tags)
	require.Equal(t, []bool{true, true, true, true}, heard())
	require.NoError(t, nft.Deafen(here, "eth1", tags[:1]))
	require.Equal(t, []bool{false, true, false, false}, heard())
	require.NoError(t, nft.Deafen(here, "eth1", tags[1:2]))
	require.Equal(t, []bool{false, false, true, false}, heard())
	require.NoError(t, nft.Deafen(here, "eth1", []nft.Tag{tags[0], tags[2]}))
	require.Equal(t, []bool{false, true, false, true}, heard())
	require.NoError(t, nft.Hear(here, "eth1"))
	require.Equal(t, []bool{true, true, true, true}, heard())
}
