package deviceplugin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/journal"
)

// TestLiving: an attachment goes on while its container has a record that is no orphan, or,
// without a record, while somebody works on it.
func TestLiving(t *testing.T) {
	j, err := journal.Open(t.TempDir(), journal.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	for _, r := range []core.Record{
		{Key: core.Key{Container: "runs", IfName: "eth0"}, Phase: core.Added},
		{Key: core.Key{Container: "ends", IfName: "eth0"}, Phase: core.Deleting},
		{Key: core.Key{Container: "ended", IfName: "eth0"}, Phase: core.Deleting, Orphan: true},
		{Key: core.Key{Container: "partly", IfName: "eth0"}, Phase: core.Added},
		{Key: core.Key{Container: "partly", IfName: "net1"}, Phase: core.Deleting, Orphan: true},
	} {
		began := r
		began.Phase, began.Orphan = core.Adding, false
		require.NoError(t, j.Begin(t.Context(), began))
		require.NoError(t, j.Save(t.Context(), r))
	}
	busy := map[string]bool{"begins": true, "ended": true}
	alive := Node{Journal: j, TryLock: func(id string) (func(), bool) { return func() {}, !busy[id] }}.living()
	for container, is := range map[string]bool{"runs": true, "ends": true, "ended": false, "partly": true, "begins": true, "none": false} {
		require.Equal(t, is, alive(core.Key{Container: container, IfName: "net1"}), container)
	}
}
