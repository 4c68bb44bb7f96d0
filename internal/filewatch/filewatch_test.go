package filewatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/filewatch"
)

// TestFollow: a folder that is not there yet, written into, replaced, and behind
// a symbolic link that is switched. The period would come far too late.
func TestFollow(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "objects")
	seen := make(chan string, 256)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- filewatch.Follow(ctx, filewatch.Config{Path: dir + "/", Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, func() error {
			text, err := os.ReadFile(filepath.Join(dir, "file"))
			if err != nil {
				text = []byte("nothing")
			}
			seen <- string(text)
			return nil
		})
	}()
	sees := func(want string) {
		t.Helper()
		for limit := time.After(time.Minute); ; {
			select {
			case got := <-seen:
				if got == want {
					return
				}
			case <-limit:
				t.Fatalf("%q is not seen", want)
			}
		}
	}
	folder := func(name, text string) string {
		path := filepath.Join(root, name)
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, "file"), []byte(text), 0o600))
		return path
	}
	sees("nothing")
	folder("objects", "one")
	sees("one")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("two"), 0o600))
	sees("two")
	require.NoError(t, os.Rename(dir, filepath.Join(root, "away")))
	sees("nothing")
	require.NoError(t, os.Symlink(folder("v1", "three"), dir))
	sees("three")
	require.NoError(t, os.Symlink(folder("v2", "four"), filepath.Join(root, "link")))
	require.NoError(t, os.Rename(filepath.Join(root, "link"), dir))
	sees("four")
	require.NoError(t, os.WriteFile(filepath.Join(root, "v2", "file"), []byte("five"), 0o600))
	sees("five")
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
}

// TestFollowEndsWithAnError: whoever cannot go on ends it.
func TestFollowEndsWithAnError(t *testing.T) {
	failed := errors.New("enough")
	err := filewatch.Follow(t.Context(), filewatch.Config{Path: t.TempDir(), Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, func() error { return failed })
	require.ErrorIs(t, err, failed)
}
