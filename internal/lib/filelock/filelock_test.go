package filelock_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/filelock"
)

func held(t *testing.T, path string, wait time.Duration) *filelock.HeldError {
	t.Helper()
	_, err := filelock.Take(path, wait)
	e := (*filelock.HeldError)(nil)
	require.ErrorAs(t, err, &e)
	require.Equal(t, path, e.Path)
	return e
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "made", "lock")
	l, err := filelock.Take(path, 0)
	require.NoError(t, err)
	require.Zero(t, held(t, path, 0).PID)
	require.ErrorContains(t, held(t, path, 0), "another process")
	require.NoError(t, l.Sign())
	require.Equal(t, os.Getpid(), held(t, path, time.Millisecond).PID)
	require.ErrorContains(t, held(t, path, 0), "process "+strconv.Itoa(os.Getpid()))
	l.Release()
	l, err = filelock.Take(path, 0)
	require.NoError(t, err)
	l.Release()
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode())
	}
}

// TestTheHolderIsWaitedFor: its end is success.
func TestTheHolderIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	l, err := filelock.Take(path, 0)
	require.NoError(t, err)
	took := make(chan error, 1)
	go func() {
		next, err := filelock.Take(path, time.Minute)
		if err == nil {
			next.Release()
		}
		took <- err
	}()
	select {
	case err := <-took:
		t.Fatalf("two have it, or the wait was none: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	l.Release()
	require.NoError(t, <-took)
}

// TestSignature: of an older, longer one nothing stays, and what is none is not
// taken for one.
func TestSignature(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("9", 15)), 0o600))
	l, err := filelock.Take(path, 0)
	require.NoError(t, err)
	require.NoError(t, l.Sign())
	require.Equal(t, os.Getpid(), held(t, path, 0).PID)
	require.NoError(t, os.WriteFile(path, []byte("nobody"), 0o600))
	require.Zero(t, held(t, path, 0).PID)
	l.Release()
	require.Error(t, l.Sign(), "it is given back")
	(*filelock.Lock)(nil).Release()
}

func TestNoLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := filelock.Take(dir, 0)
	require.ErrorContains(t, err, "lock "+dir)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = filelock.Take(filepath.Join(file, "lock"), 0)
	require.ErrorContains(t, err, "not a directory")
}
