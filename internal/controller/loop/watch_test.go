package loop

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMembers: the northbound database's members that have addresses are asked too.
func TestMembers(t *testing.T) {
	t.Parallel()
	c := &Config{NB: "ssl:192.0.2.1:6641,ssl:[fd00::1]:6641,ssl:db.example:6641,unix:/run/nb.sock"}
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}, c.members())
	require.Contains(t, own(), netip.MustParseAddr("127.0.0.1"))
}
