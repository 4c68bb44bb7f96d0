package nft_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

// TestDeafen: a deaf link's rules let the frames of VLANs to the IP stack, each by the EtherType
// that its tag has, and nothing is left of them in the end.
func TestDeafen(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	in := func(name string, args ...string) string {
		t.Helper()
		out, err := ovstest.Run(ns, name, args...)
		require.NoError(t, err, out)
		return out
	}
	in("ip", "link", "add", "eth1", "type", "veth", "peer", "name", "far")
	require.NoError(t, nft.Deafen(ns, "eth1", []nft.Tag{{Protocol: 0x8100, ID: 10}, {Protocol: 0x88a8, ID: 20}}))
	deaf, err := nft.Deaf(ns)
	require.NoError(t, err)
	require.Equal(t, []string{"eth1"}, deaf)
	var rules []string
	for line := range strings.Lines(in("nft", "list", "chain", "netdev", "fairlead-uplink-eth1", "deaf")) {
		if strings.Contains(line, "accept") {
			rules = append(rules, strings.TrimSpace(line))
		}
	}
	require.Equal(t, []string{"@ll,96,16 0x8100 @ll,112,16 & 0xfff == 0xa accept", "@ll,96,16 0x88a8 @ll,112,16 & 0xfff == 0x14 accept"}, rules)
	require.NoError(t, nft.Hear(ns, "eth1"))
	require.NotContains(t, in("nft", "list", "tables"), "netdev")
}
