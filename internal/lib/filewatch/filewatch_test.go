package filewatch_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/filewatch"
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
		done <- filewatch.Follow(ctx, filewatch.Config{Paths: filewatch.Path(dir + "/"), Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, func() error {
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

// TestFollowSeveral: folders in each other go on being seen when the folder above
// is followed no more, and when it is again.
func TestFollowSeveral(t *testing.T) {
	root := t.TempDir()
	outer, inner := filepath.Join(root, "outer"), filepath.Join(root, "outer", "inner")
	for _, dir := range []string{"outer", "v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.Symlink(filepath.Join(root, "v1"), inner))
	var paths atomic.Pointer[[]string]
	paths.Store(&[]string{outer, inner})
	cfg := filewatch.Config{Paths: func() []string { return *paths.Load() }, Period: time.Hour, Log: slog.New(slog.DiscardHandler)}
	seen := make(chan string, 256)
	go func() {
		_ = filewatch.Follow(t.Context(), cfg, func() error {
			text := ""
			for _, dir := range []string{outer, inner} {
				b, _ := os.ReadFile(filepath.Join(dir, "file")) // nothing, before there is one
				text += string(b)
			}
			seen <- text
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
	write := func(dir, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600))
	}
	sees("")
	write(outer, "a")
	sees("a")
	paths.Store(&[]string{inner})
	write(inner, "b")
	sees("ab")
	write(inner, "c")
	sees("ac")
	require.NoError(t, os.Symlink(filepath.Join(root, "v2"), filepath.Join(root, "link")))
	require.NoError(t, os.Rename(filepath.Join(root, "link"), inner)) // of which the folder above tells alone
	sees("a")
	paths.Store(&[]string{inner, outer})
	write(inner, "d")
	sees("ad")
	write(outer, "e")
	sees("ed")
}

// TestFollowEndsWithAnError: whoever cannot go on ends it.
func TestFollowEndsWithAnError(t *testing.T) {
	failed := errors.New("enough")
	err := filewatch.Follow(t.Context(), filewatch.Config{Paths: filewatch.Path(t.TempDir()), Period: time.Hour, Log: slog.New(slog.DiscardHandler)}, func() error { return failed })
	require.ErrorIs(t, err, failed)
}
