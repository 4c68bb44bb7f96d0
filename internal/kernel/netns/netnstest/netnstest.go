// Package netnstest makes network namespaces for tests. A namespace lives by
// an open file only, so that a killed test leaves nothing behind.
package netnstest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// New makes an empty network namespace that ends with the test.
func New(t testing.TB) *netns.Handle {
	t.Helper()
	h, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// Path is a path by which other processes can open h while this one lives.
func Path(h *netns.Handle) string { return h.ProcPath() }

// Bind puts h at a path of its own, as a container runtime does, until the
// test ends or Unbind is called.
func Bind(t testing.TB, h *netns.Handle) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	Rebind(t, h, path)
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

// Rebind mounts h on the file that already is at path.
func Rebind(t testing.TB, h *netns.Handle, path string) {
	t.Helper()
	require.NoError(t, unix.Mount(Path(h), path, "", unix.MS_BIND, ""))
}

// Unbind takes away what is mounted at path; the empty file stays.
func Unbind(t testing.TB, path string) {
	t.Helper()
	require.NoError(t, unix.Unmount(path, unix.MNT_DETACH))
}

// Do runs fn inside h and fails the test on its error.
func Do(t testing.TB, h *netns.Handle, fn func() error) {
	t.Helper()
	require.NoError(t, h.Do(fn))
}
