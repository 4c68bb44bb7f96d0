package hostlocal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
)

// What others do with the files counts at once, be it in the same tick of the
// kernel's clock as what we did: hence so often.
func TestFilesOfOthersCountAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := inside(hostlocal.New(), dir)
	c := conf("1.0.0", `"subnet":"10.1.0.0/16"`, "")
	for i := range 200 {
		name := fmt.Sprintf("c%d", i)
		_, err := s.run(core.Add, s.call(c, name, ""))
		require.NoError(t, err)
		file := filepath.Join(dir, "net", fmt.Sprintf("10.1.99.%d", i))
		require.NoError(t, os.WriteFile(file, []byte(name+"-other\r\nnet1"), 0o600))
		_, err = s.run(core.Check, s.call(c, name+"-other", ""))
		require.NoError(t, err, "an address that somebody else gave")
		require.NoError(t, os.Remove(file))
		_, err = s.run(core.Check, s.call(c, name+"-other", ""))
		require.Error(t, err, "an address that somebody else took back")
		_, err = s.run(core.Check, s.call(c, name, ""))
		require.NoError(t, err)
	}
}

// Somebody restores a file and the folder's time with it.
func TestFolderWhoseTimeIsSetBack(t *testing.T) {
	dir := t.TempDir()
	s := inside(hostlocal.New(), dir)
	c := conf("1.0.0", `"subnet":"10.1.0.0/16"`, "")
	_, err := s.run(core.Add, s.call(c, "a", ""))
	require.NoError(t, err)
	folder := filepath.Join(dir, "net")
	was, err := os.Stat(folder)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "10.1.99.1"), []byte("b\r\nnet1"), 0o600))
	// The kernel's clock may stand still for some milliseconds.
	ctime := func() (st unix.Stat_t) {
		require.NoError(t, unix.Stat(folder, &st))
		return st
	}
	for before := ctime().Ctim; ctime().Ctim == before; {
		require.NoError(t, os.Chtimes(folder, was.ModTime(), was.ModTime()))
	}
	_, err = s.run(core.Check, s.call(c, "b", ""))
	require.NoError(t, err)
}

// one is a folder in which container a has 10.1.2.2, by the call.
func one(t *testing.T) (side, driver.PluginCall) {
	t.Helper()
	s := inside(hostlocal.New(), t.TempDir())
	c := s.call(conf("1.0.0", `"subnet":"10.1.2.0/24"`, ""), "a", "")
	_, err := s.run(core.Add, c)
	require.NoError(t, err)
	return s, c
}

// TestHolders: also those of files that others have written, and of the time
// when they named the container alone.
func TestHolders(t *testing.T) {
	s, _ := one(t)
	p := hostlocal.New()
	for name, text := range map[string]string{"10.1.2.9": "b\r\neth0", "fd00::9": "c", "10.1.2.10": "", "notes": "d"} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, "net", name), []byte(text), 0o600))
	}
	ids, err := p.Holders(t.Context(), s.dir, "net")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a": true, "b": true, "c": true}, ids)
	ids, err = p.Holders(t.Context(), s.dir, "other")
	require.NoError(t, err)
	require.Empty(t, ids)
	require.NoDirExists(t, filepath.Join(s.dir, "other"))
}

// A folder that is another one by now has nothing of the former's.
func TestFolderIsReplaced(t *testing.T) {
	s, c := one(t)
	require.NoError(t, os.RemoveAll(filepath.Join(s.dir, "net")))
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "net"), 0o755))
	_, err := s.run(core.Check, c)
	require.Error(t, err)
	_, err = s.run(core.Add, c)
	require.NoError(t, err)
	require.Equal(t, 1, held(t, s.dir))
}

// An address whose file was taken away, and what stands in its place is none,
// is not the attachment's any more; it gets another.
func TestFileIsReplaced(t *testing.T) {
	s, c := one(t)
	file := filepath.Join(s.dir, "net", "10.1.2.2")
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(file, "x"), nil, 0o600))
	_, err := s.run(core.Del, c)
	require.NoError(t, err, "a folder is nobody's address")
	require.NoError(t, os.RemoveAll(file))
	_, err = s.run(core.Add, c)
	require.NoError(t, err)
	_, err = s.run(core.Check, c)
	require.NoError(t, err)
	require.Equal(t, 1, held(t, s.dir))
}

// BenchmarkAddDel is with a hundred addresses held.
func BenchmarkAddDel(b *testing.B) {
	s := inside(hostlocal.New(), b.TempDir())
	c := conf("1.0.0", `"subnet":"10.1.0.0/16"`, "")
	for i := range 100 {
		_, err := s.run(core.Add, s.call(c, fmt.Sprintf("c%d", i), ""))
		require.NoError(b, err)
	}
	call := s.call(c, "one", "")
	for b.Loop() {
		_, err := s.run(core.Add, call)
		require.NoError(b, err)
		_, err = s.run(core.Del, call)
		require.NoError(b, err)
	}
}
