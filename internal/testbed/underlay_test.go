package testbed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnderlay: nodes with and without Open vSwitch reach each other at
// addresses of their own, also after a reboot, and not over a cut link.
func TestUnderlay(t *testing.T) {
	t.Parallel()
	u := NewUnderlay(t)
	a, b := New(t), Bare(t)
	at, bt := u.Join(a), u.Join(b)
	require.NotEqual(t, at.IP4, bt.IP4)
	require.NotEqual(t, at.IP6, bt.IP6)
	reach := func() {
		t.Helper()
		require.NoError(t, a.Ping(bt.IP4))
		require.NoError(t, b.Ping(at.IP6))
	}
	reach()
	require.Contains(t, a.Run("ip", "addr", "show", PhyBridge), at.IP4)
	a.Reboot()
	reach()
	bt.Cut()
	require.Error(t, a.Ping(bt.IP4))
	bt.Mend()
	reach()
}
