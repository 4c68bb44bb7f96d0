package loop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
)

// TestPrivate: the socket is root's alone, takes the place of one that is left, and is made
// without another path, which a process that is killed would leave.
func TestPrivate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "node.sock")
	made, err := fsnotify.NewWatcher()
	require.NoError(t, err)
	defer made.Close()
	require.NoError(t, made.Add(dir))
	for range 2 {
		l, err := private(path)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeSocket|0o600, info.Mode())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "last"), nil, 0o600))
	for e := range made.Events {
		if filepath.Base(e.Name) == "last" {
			break
		}
		require.Equal(t, path, e.Name)
	}

	file := filepath.Join(dir, "last")
	_, err = private(file)
	require.ErrorContains(t, err, "address already in use")
	require.FileExists(t, file)
}
