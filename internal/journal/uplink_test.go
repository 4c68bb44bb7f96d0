package journal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestUplinks: a transfer is begun once, changed and dropped, and is there after a restart.
func TestUplinks(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	u := core.Uplink{Network: "net1", Bridge: "br-net1", NIC: "eth1", Port: "eth1", MAC: core.MAC{2, 0, 0, 0, 0, 1}, Phase: core.Taking, Had: []byte(`{"a":1}`)}
	require.ErrorIs(t, j.Move(t.Context(), u), core.ErrNotFound)
	require.NoError(t, j.Take(t.Context(), u))
	require.ErrorIs(t, j.Take(t.Context(), u), core.ErrExists)
	u.Phase = core.Taken
	require.NoError(t, j.Move(t.Context(), u))
	other := core.Uplink{Network: "a", Phase: core.Taking}
	require.NoError(t, j.Take(t.Context(), other))
	require.NoError(t, j.Close())
	j = open(t, dir)
	require.Equal(t, []core.Uplink{other, u}, j.Uplinks())
	require.NoError(t, j.Return(t.Context(), "a"))
	require.NoError(t, j.Return(t.Context(), "a"))
	require.Equal(t, []core.Uplink{u}, j.Uplinks())
}
