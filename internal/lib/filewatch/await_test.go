package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// inotifies counts the inotify instances of this process.
func inotifies(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "inotify") {
			n++
		}
	}
	return n
}

// TestAwaitedOnOneWatch: any number of waiters, one inotify instance,
// and none when they are done.
func TestAwaitedOnOneWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a/b/ready")
	var f Awaited
	var wg sync.WaitGroup
	for inotifies(t) > 0 { // the watch of a test before ends by itself, a little later
	}
	for range 300 {
		wg.Go(func() { require.NoError(t, f.Await(t.Context(), file)) })
	}
	for inotifies(t) == 0 { // until the first waits
	}
	require.Equal(t, 1, inotifies(t))
	require.NoError(t, os.Mkdir(filepath.Dir(filepath.Dir(file)), 0o755))
	require.NoError(t, os.RemoveAll(filepath.Dir(filepath.Dir(file))))
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file+".tmp", nil, 0o600))
	require.NoError(t, os.Rename(file+".tmp", file))
	wg.Wait()
	for inotifies(t) > 0 { // the watch ends by itself
	}
	require.Empty(t, f.files)
	require.NoError(t, f.Await(t.Context(), file), "it is there")
}

// TestGivenUp: nothing is kept of who does not wait any more.
func TestGivenUp(t *testing.T) {
	var f Awaited
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.Await(ctx, filepath.Join(t.TempDir(), "ready")), context.Canceled)
	require.Empty(t, f.files)
}
