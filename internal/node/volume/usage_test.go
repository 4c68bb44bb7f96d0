package volume

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestOver: what counts of an emptyDir is what it takes of the disk.
func TestOver(t *testing.T) {
	const mib = 1 << 20
	write := func(t *testing.T, size int, path ...string) {
		t.Helper()
		file := filepath.Join(path...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, make([]byte, size), 0o600))
		fd, err := unix.Open(file, unix.O_RDONLY, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Fsync(fd)) // blocks are given when they are written
		require.NoError(t, unix.Close(fd))
	}
	for name, c := range map[string]struct {
		fill func(*testing.T, string)
		over bool
	}{
		"nothing":       {func(*testing.T, string) {}, false},
		"enough":        {func(t *testing.T, dir string) { write(t, mib/2, dir, "a") }, false},
		"too much":      {func(t *testing.T, dir string) { write(t, 3*mib/2, dir, "a") }, true},
		"many folders":  {func(t *testing.T, dir string) { write(t, mib, dir, "a/b/c"); write(t, mib, dir, "d/e") }, true},
		"link to there": {func(t *testing.T, dir string) { require.NoError(t, os.Symlink("/", filepath.Join(dir, "all"))) }, false},
		"many names of one file": {func(t *testing.T, dir string) {
			write(t, mib/2, dir, "a")
			for i := range 5 {
				require.NoError(t, os.Link(filepath.Join(dir, "a"), filepath.Join(dir, strconv.Itoa(i))))
			}
		}, false},
		"holes": {func(t *testing.T, dir string) {
			write(t, 0, dir, "a")
			require.NoError(t, os.Truncate(filepath.Join(dir, "a"), 100*mib))
		}, false},
		"a pipe": {func(t *testing.T, dir string) { require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "p"), 0o600)) }, false},
		"a path that the kernel does not take": {func(t *testing.T, dir string) {
			deep(t, dir, 60, func(name string) { write(t, 3*mib/2, name) })
		}, true},
		"a mount": {func(t *testing.T, dir string) {
			at := filepath.Join(dir, "m")
			require.NoError(t, os.Mkdir(at, 0o700))
			require.NoError(t, unix.Mount("tmpfs", at, "tmpfs", 0, ""))
			t.Cleanup(func() { require.NoError(t, unix.Unmount(at, 0)) })
			write(t, 3*mib/2, at, "a")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := folder(t, "")
			p := podOf(t, "{volumes: [{name: free, emptyDir: {}}, {name: v, emptyDir: {sizeLimit: 1Mi}}]}")
			excess, err := f.Over(t.Context(), p)
			require.NoError(t, err)
			require.Nil(t, excess, "nothing is made yet")
			m, err := f.SetUp(t.Context(), p)
			require.NoError(t, err)
			write(t, 2*mib, m["free"].Path, "a")
			c.fill(t, m["v"].Path)
			excess, err = f.Over(t.Context(), p)
			require.NoError(t, err)
			if !c.over {
				require.Nil(t, excess)
				return
			}
			require.NotNil(t, excess)
			require.Equal(t, "v 1Mi", excess.Volume+" "+excess.Limit.String())
		})
	}
	for spec, want := range map[string]bool{
		"{}": false, "{sizeLimit: 0}": false, "{sizeLimit: 1}": true, "{medium: Memory, sizeLimit: 1}": false,
	} {
		require.Equal(t, want, Limited(podOf(t, "{volumes: [{name: v, emptyDir: "+spec+"}]}")), spec)
	}
}

// deep makes folders below one another whose names are longer together than a
// path may be, and calls fill in the last.
func deep(t *testing.T, dir string, levels int, fill func(name string)) {
	t.Helper()
	had, err := os.Getwd()
	require.NoError(t, err)
	t.Chdir(dir)
	for range levels {
		name := strings.Repeat("x", 200)
		require.NoError(t, os.Mkdir(name, 0o700))
		require.NoError(t, os.Chdir(name)) //nolint:usetesting // step by step; t.Chdir has noted where from
	}
	fill("file")
	require.NoError(t, os.Chdir(had)) //nolint:usetesting // out of the deepest one
}
