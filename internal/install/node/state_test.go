package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// bed is a Node with a file that others may have written.
type bed struct {
	*Node
	t    *testing.T
	path string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	return &bed{New(Config{StateDir: filepath.Join(dir, "state")}), t, filepath.Join(dir, "00-fairlead.conflist")}
}

func (b *bed) put(text string) { require.NoError(b.t, os.WriteFile(b.path, []byte(text), 0o640)) }

// remembers records that text will be written, and does not write it.
func (b *bed) remembers(text string) {
	b.t.Helper()
	unlock, err := b.lock()
	require.NoError(b.t, err)
	defer unlock()
	s, err := b.load()
	require.NoError(b.t, err)
	require.NoError(b.t, b.remember(&s, b.path, "conf", sum([]byte(text))))
}

// undone puts back, and gives what was done and what is there then.
func (b *bed) undone() (action, text string) {
	b.t.Helper()
	s, err := b.load()
	require.NoError(b.t, err)
	require.Len(b.t, s.Files, 1)
	f, err := b.undo(s.Files[0], false)
	require.NoError(b.t, err)
	raw, err := os.ReadFile(b.path)
	if err != nil {
		require.ErrorIs(b.t, err, os.ErrNotExist)
		return f.Action, "none"
	}
	return f.Action, string(raw)
}

func want(t *testing.T, b *bed, action, text string) {
	t.Helper()
	gotAction, gotText := b.undone()
	require.Equal(t, []string{action, text}, []string{gotAction, gotText})
}

// TestUndo: whatever was done, and wherever it ended, what was there is there
// again, and what others wrote since stays.
func TestUndo(t *testing.T) {
	t.Run("nothing was there", func(t *testing.T) {
		b := newBed(t)
		b.remembers("ours")
		want(t, b, Keep, "none") // it ended before the file was written
		b.put("ours")
		want(t, b, Remove, "none")
		want(t, b, Keep, "none")
	})
	t.Run("somebody's was there", func(t *testing.T) {
		b := newBed(t)
		b.put("theirs")
		b.remembers("ours")
		want(t, b, Keep, "theirs")
		b.put("ours")
		want(t, b, Restore, "theirs")
		info, err := os.Stat(b.path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o640), info.Mode())
	})
	t.Run("somebody's link was there", func(t *testing.T) {
		b := newBed(t)
		require.NoError(t, os.WriteFile(b.path+".text", []byte("theirs"), 0o600))
		require.NoError(t, os.Symlink(b.path+".text", b.path))
		b.remembers("ours")
		want(t, b, Keep, "theirs")
		require.NoError(t, os.Remove(b.path))
		b.put("ours")
		want(t, b, Restore, "theirs")
		to, err := os.Readlink(b.path)
		require.NoError(t, err)
		require.Equal(t, b.path+".text", to)
	})
	t.Run("an upgrade", func(t *testing.T) {
		b := newBed(t)
		b.put("theirs")
		b.remembers("ours")
		b.put("ours")
		b.remembers("ours, newer")
		want(t, b, Restore, "theirs") // it ended before the newer one was written
		b.put("ours, newer")
		want(t, b, Restore, "theirs")
	})
	t.Run("somebody's came later", func(t *testing.T) {
		b := newBed(t)
		b.remembers("ours")
		b.put("later")
		want(t, b, Leave, "later")
		b.remembers("ours") // a second installation
		b.put("ours")
		want(t, b, Restore, "later")
	})
	t.Run("somebody removed it", func(t *testing.T) {
		b := newBed(t)
		b.put("theirs")
		b.remembers("ours")
		require.NoError(t, os.Remove(b.path))
		want(t, b, Leave, "none")
	})
}

func TestStateThatCannotBeRead(t *testing.T) {
	b := newBed(t)
	b.remembers("ours")
	unlock, err := b.lock()
	require.NoError(t, err)
	_, err = b.lock()
	require.ErrorContains(t, err, "under way")
	unlock()
	require.NoError(t, os.WriteFile(filepath.Join(b.StateDir, stateFile), []byte("{"), 0o600))
	_, err = b.Uninstall(t.Context(), true, true)
	require.ErrorContains(t, err, b.StateDir)
}

// TestNoRuntime: nothing answers on the socket.
func TestNoRuntime(t *testing.T) {
	n := New(Config{Socket: filepath.Join(t.TempDir(), "none.sock"), StateDir: t.TempDir()})
	_, err := n.Install(t.Context())
	require.ErrorContains(t, err, "none.sock")
}

// TestCopyOfAFolder: what a runtime would stumble over is in the copy too.
func TestCopyOfAFolder(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.Mkdir(filepath.Join(from, "net"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(from, "net", "a.conf"), []byte("a"), 0o600))
	require.NoError(t, os.Symlink("net/a.conf", filepath.Join(from, "link.conf")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(from, "broken.conf")))
	require.NoError(t, os.WriteFile(filepath.Join(from, "net", "kubeconfig"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink("net", filepath.Join(from, "folder.conf")))
	require.NoError(t, copyFolder(from, to))
	raw, err := os.ReadFile(filepath.Join(to, "net", "kubeconfig"))
	require.NoError(t, err)
	require.Empty(t, raw, "a secret stays where it is")
	_, err = os.ReadFile(filepath.Join(to, "folder.conf"))
	require.ErrorContains(t, err, "is a directory")
	for _, name := range []string{"net/a.conf", "link.conf"} {
		raw, err := os.ReadFile(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, "a", string(raw))
	}
	_, err = os.Stat(filepath.Join(to, "broken.conf"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Lstat(filepath.Join(to, "broken.conf"))
	require.NoError(t, err)
	require.NoError(t, copyFolder(filepath.Join(from, "none"), to))
}
