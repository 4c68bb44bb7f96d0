package hostfile

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestReadOfWhatSomebodyElseNames: what is no regular file of a fair size is
// refused, with its path and the reason, and nothing waits for it.
func TestReadOfWhatSomebodyElseNames(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("good"), bytes.Repeat([]byte("x"), Limit), 0o600))
	require.NoError(t, os.WriteFile(at("large"), bytes.Repeat([]byte("x"), Limit+1), 0o600))
	require.NoError(t, os.Symlink(at("good"), at("link")))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: at("socket")})
	require.NoError(t, err)
	defer func() { _ = l.Close() }()

	for _, name := range []string{"good", "link"} {
		data, err := Read(at(name), Limit)
		require.NoError(t, err)
		require.Len(t, data, Limit)
	}
	for path, why := range map[string]string{
		at("large"): "too large", at("pipe"): "a named pipe", at("socket"): "a socket", dir: "a directory", "/dev/zero": "a device",
	} {
		_, err := Read(path, Limit)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, why)
		require.Equal(t, core.CodeConfig, core.CodeOf(err), path)
		_, err = fs.ReadFile(Machine(), path[1:])
		require.ErrorContains(t, err, why)
	}
	_, err = Read("/proc/self/stat", 8) // its size is told as 0
	require.ErrorContains(t, err, "too large")
	_, err = Read(at("nowhere"), Limit)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
