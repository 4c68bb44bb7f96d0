package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
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

// TestReadinessIsAwaitedOnOneWatch: any number of ADDs, one inotify instance,
// and none when they are done.
func TestReadinessIsAwaitedOnOneWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a/b/ready")
	conf := core.Conf{ReadinessFile: file}
	var i indicators
	var wg sync.WaitGroup
	before := inotifies(t)
	for range 300 {
		wg.Go(func() { require.NoError(t, i.await(t.Context(), conf)) })
	}
	for inotifies(t) == before { // until the first waits
	}
	require.Equal(t, before+1, inotifies(t))
	require.NoError(t, os.Mkdir(filepath.Dir(filepath.Dir(file)), 0o755))
	require.NoError(t, os.RemoveAll(filepath.Dir(filepath.Dir(file))))
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file+".tmp", nil, 0o600))
	require.NoError(t, os.Rename(file+".tmp", file))
	wg.Wait()
	for inotifies(t) != before { // the watch ends by itself
	}
	require.Empty(t, i.files)
	require.NoError(t, i.await(t.Context(), conf), "it is there")
}

// TestReadinessInVain: the deadline is code 11 and says what is awaited; who is
// sent away for another reason is told that.
func TestReadinessInVain(t *testing.T) {
	conf := core.Conf{ReadinessFile: filepath.Join(t.TempDir(), "ready")}
	var i indicators
	ctx, stop := context.WithTimeout(t.Context(), 1)
	defer stop()
	err := i.await(ctx, conf)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, conf.ReadinessFile)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSuperseded)
	require.ErrorIs(t, i.await(ctx, conf), context.Canceled)
	require.Empty(t, i.files)
	require.NoError(t, i.await(t.Context(), core.Conf{}))
}
