package vlanparent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

// TestLast: who else stands on a link keeps it, and a damaged mark, which may be anybody's,
// keeps it too and fails nobody's end.
func TestLast(t *testing.T) {
	p := New(t.TempDir())
	own := mark{core.Key{Container: "a", IfName: "net1"}, "eth1.7"}
	other := mark{core.Key{Container: "b", IfName: "net1"}, "eth1.7"}
	require.NoError(t, recordfile.Save(p.file(own.Owner), own))
	require.True(t, p.last(own))
	require.NoError(t, recordfile.Save(p.file(other.Owner), mark{other.Owner, "eth1.8"}))
	require.True(t, p.last(own), "on another link")
	require.NoError(t, recordfile.Save(p.file(other.Owner), other))
	require.False(t, p.last(own))
	require.NoError(t, os.Remove(p.file(other.Owner)))
	require.True(t, p.last(own))
	require.NoError(t, os.WriteFile(filepath.Join(p.dir, "0.json"), []byte("{"), 0o600))
	require.False(t, p.last(own))
}
