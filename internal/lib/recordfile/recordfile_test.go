package recordfile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/recordfile"
)

type record struct{ ID, Text string }

func form(drop bool) recordfile.Form[record] {
	return recordfile.Form[record]{
		What: "record", Suffix: map[bool]string{true: ".json"}[drop], ID: func(r record) string { return r.ID }, Drop: drop,
		Encode: func(r record) ([]byte, error) { return json.Marshal(r) },
		Decode: recordfile.JSON[record],
	}
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestOneValue: what a killed writer has left goes with the next write, and with
// the value.
func TestOneValue(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.json")
	var r record
	there, err := recordfile.Load(path, &r)
	require.NoError(t, err)
	require.False(t, there)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".state.json.1.tmp"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".other.json.1.tmp"), nil, 0o600))
	require.NoError(t, recordfile.Save(path, record{"a", "x"}))
	require.Equal(t, []string{".other.json.1.tmp", "state.json"}, names(t, dir))
	there, err = recordfile.Load(path, &r)
	require.NoError(t, err)
	require.True(t, there)
	require.Equal(t, record{"a", "x"}, r)
	require.NoError(t, os.Truncate(path, 3))
	_, err = recordfile.Load(path, &r)
	require.ErrorContains(t, err, path, "half a value is none, and no absence")
	require.NoError(t, recordfile.Remove(path))
	require.NoError(t, recordfile.Remove(path))
	require.Equal(t, []string{".other.json.1.tmp"}, names(t, dir))
}

// TestRecords: of a folder every whole record is found again; others are set aside
// or removed, and told once.
func TestRecords(t *testing.T) {
	for _, drop := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "records")
		suffix := form(drop).Suffix
		s, err := recordfile.Open(dir, form(drop))
		require.NoError(t, err)
		for _, id := range []string{"a", "b", "c", "renamed"} {
			require.NoError(t, s.Put(record{id, "old"}))
		}
		require.NoError(t, s.Update(record{"a", "new"}))
		require.NoError(t, s.Remove("b"))
		require.NoError(t, s.Forget("b"))
		for _, id := range []string{"", "../x", ".x"} {
			require.Error(t, s.Put(record{ID: id}), "%q", id)
			require.NoError(t, s.Remove(id), "%q", id)
		}
		require.Equal(t, []string{"a", "c", "renamed"}, s.IDs())
		require.NoError(t, os.Truncate(filepath.Join(dir, "c"+suffix), 3))
		require.NoError(t, os.Rename(filepath.Join(dir, "renamed"+suffix), filepath.Join(dir, "other"+suffix)))
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".d"+suffix+".1.tmp"), []byte("{"), 0o600))
		s, err = recordfile.Open(dir, form(drop))
		require.ErrorContains(t, err, "record of c"+suffix)
		require.ErrorContains(t, err, "record of other"+suffix)
		require.ErrorContains(t, err, "it is that of renamed")
		require.Equal(t, []record{{"a", "new"}}, s.All())
		want := []string{"a", "c.corrupt", "other.corrupt"}
		if drop {
			want = []string{"a.json"}
		}
		require.Equal(t, want, names(t, dir))
		require.NoError(t, s.Forget("c"))
		_, err = recordfile.Open(dir, form(drop))
		require.NoError(t, err)
	}
	_, err := recordfile.Open("/proc/none", form(false))
	require.Error(t, err)
}
