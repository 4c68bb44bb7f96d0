package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/cri/checkpoint"
	"github.com/fairlead/fairlead/internal/netplugin"
)

func record(id string) checkpoint.Record {
	return checkpoint.Record{
		Pod:     netplugin.Pod{Sandbox: id, Namespace: "ns", Name: "web", UID: "u"},
		Ports:   []netplugin.PortMapping{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}},
		Attempt: 3, Phase: checkpoint.Ready,
	}
}

func TestARecordOutlivesTheProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandbox")
	s, err := checkpoint.Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.Put(record("a")))
	require.NoError(t, s.Put(record("b")))
	require.NoError(t, s.Remove("b"))
	require.NoError(t, s.Remove("b"), "once more")
	require.NoError(t, s.Remove("../x"), "no sandbox has such an id")
	require.Error(t, s.Put(record("../x")))
	require.Error(t, s.Put(record("")))

	s, err = checkpoint.Open(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, s.IDs())
	r, ok := s.Get("a")
	require.True(t, ok)
	require.Equal(t, record("a"), r)
}

// TestADamagedRecordIsSetAside: whatever one byte of the file becomes, the record
// is either read as it was or told to be damaged, and never in the way.
func TestADamagedRecordIsSetAside(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoint.Open(dir)
	require.NoError(t, err)
	require.NoError(t, s.Put(record("a")))
	path := filepath.Join(dir, "a")
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for at := range good {
		damaged(t, dir, good[:at])
		flipped := append([]byte(nil), good...)
		flipped[at] ^= 1 << (at % 8)
		damaged(t, dir, flipped)
	}
}

func damaged(t *testing.T, dir string, content []byte) {
	t.Helper()
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	s, err := checkpoint.Open(dir)
	if r, ok := s.Get("a"); ok {
		require.NoError(t, err)
		require.Equal(t, record("a"), r, "changed and not noticed")
		return
	}
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	require.NoFileExists(t, path)
	_, err = checkpoint.Open(dir)
	require.NoError(t, err, "told once")
	require.NoError(t, s.Remove("a"))
	require.NoFileExists(t, path+".corrupt")
}

// TestAWriteThatWasCutOff leaves a temporary file, which goes.
func TestAWriteThatWasCutOff(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".a.123.tmp"), []byte("{"), 0o600))
	s, err := checkpoint.Open(dir)
	require.NoError(t, err)
	require.Empty(t, s.IDs())
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
