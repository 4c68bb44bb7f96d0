package hostfile

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestAFileIsWholeAtAnyTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.conf")
	long, short := make([]byte, 1<<16), []byte("short")
	require.NoError(t, Announce(path, long, 0o644))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			b, err := os.ReadFile(path)
			if err != nil || (len(b) != len(long) && len(b) != len(short)) {
				t.Errorf("read %d bytes, %v", len(b), err)
				return
			}
		}
	})
	for range 200 {
		require.NoError(t, Announce(path, short, 0o644))
		require.NoError(t, Announce(path, long, 0o644))
	}
	close(stop)
	wg.Wait()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	require.Equal(t, []string{"f.conf"}, names(t, filepath.Dir(path)), "nothing temporary stays")
}

func TestFailuresLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	require.Error(t, Write(filepath.Join(dir, "d"), []byte("x"), 0o644), "a directory is in the way")
	require.Error(t, Write(filepath.Join(dir, "none", "f"), []byte("x"), 0o644))
	require.Error(t, Copy(filepath.Join(dir, "none"), filepath.Join(dir, "f"), 0o644))
	require.Equal(t, []string{"d"}, names(t, dir))
	require.NoError(t, Remove(filepath.Join(dir, "none")))
	require.Error(t, Remove(filepath.Join(dir, "d", "..", "..", filepath.Base(dir))), "not empty")
}

// plugin builds our plugin once.
func plugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fairlead-cni")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", path, "../../../cmd/fairlead-cni").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func TestPlugins(t *testing.T) {
	own := plugin(t)
	dir := filepath.Join(t.TempDir(), "bin") // made when it is missing
	to := filepath.Join(dir, "fairlead")
	put := func(force bool) (bool, error) { return PutPlugin(own, to, force) }

	changed, err := put(false)
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, OwnPlugin(to))
	changed, err = put(false)
	require.NoError(t, err)
	require.False(t, changed, "nothing to do")

	// An older version that runs at this moment: no "text file busy".
	old := exec.Command("sleep", "1000")
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	require.NoError(t, Copy(sleep, to, 0o755))
	old.Path = to
	require.NoError(t, old.Start())
	defer func() { _, _ = old.Process.Kill(), old.Wait() }()

	_, err = put(false)
	require.ErrorIs(t, err, ErrForeign)
	require.False(t, OwnPlugin(to))
	changed, err = put(true)
	require.NoError(t, err)
	require.True(t, changed)
	require.True(t, OwnPlugin(to))
	require.Equal(t, []string{"fairlead"}, names(t, dir))

	require.NoError(t, os.Chmod(to, 0o600))
	changed, err = put(false)
	require.NoError(t, err)
	require.True(t, changed, "it could not be executed")
	_, err = PutPlugin(sleep, to, true)
	require.ErrorContains(t, err, "is not Fairlead's plugin")
	require.NoError(t, os.Remove(to))
	require.NoError(t, os.Symlink("nowhere", to))
	_, err = put(false)
	require.ErrorIs(t, err, ErrForeign, "a link of somebody")
}
