package question

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/ops/program"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// archive packs files: name, content, name, content...
func archive(t *testing.T, files ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o600, Size: int64(len(files[i+1]))}))
		_, err := io.WriteString(w, files[i+1])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "backup.tar")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

// TestBackup: what is written has all rows, and comes to a member as it was; what is
// no backup, or would leave one of the databases out, is refused, and leaves nothing.
func TestBackup(t *testing.T) {
	t.Parallel()
	c := ovn.New(t, testbed.Bare(t), "127.0.0.1")
	c.Nbctl("ls-add", "web")
	c.Nbctl("--wait=sb", "sync")
	home, file := t.TempDir(), filepath.Join(t.TempDir(), "ovn.tar")
	var notes []string
	asked := func(args ...string) Asked {
		return Asked{
			Args: args, Run: program.Run, Note: func(s string) { notes = append(notes, s) },
			Flags: map[string]string{"nb": c.NB(), "sb": c.SB(), "central-dir": home},
		}
	}
	_, err := backup(t.Context(), asked(file))
	require.NoError(t, err)

	// The member takes it.
	due, taken := filepath.Join(home, fairlead.RestoreDir), filepath.Join(home, "taken")
	go func() {
		for os.Rename(due, taken) != nil && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	_, err = restore(t.Context(), asked(file))
	require.NoError(t, err)
	require.Contains(t, strings.Join(notes, ""), "begun anew")
	whole := map[string]string{}
	for name, row := range map[string]string{"nb.db": `"web"`, "sb.db": `"Datapath_Binding"`} {
		text, err := os.ReadFile(filepath.Join(taken, name))
		require.NoError(t, err)
		require.Contains(t, string(text), row)
		whole[name] = string(text)
	}

	none := asked()
	none.Flags["empty"] = "true"
	go func() {
		for os.Rename(due, taken+"-empty") != nil && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}()
	_, err = restore(t.Context(), none)
	require.NoError(t, err)
	for _, name := range []string{"nb.db", "sb.db"} {
		text, err := os.ReadFile(filepath.Join(taken+"-empty", name))
		require.NoError(t, err)
		require.Empty(t, text)
	}

	for _, bad := range []struct{ file, why string }{
		{archive(t, "nb.db", whole["nb.db"]), "lacks a database"},
		{archive(t, "nb.db", whole["nb.db"], "sb.db", whole["nb.db"]), "it is database OVN_Northbound"},
		{archive(t, "nb.db", whole["nb.db"], "nb.db", whole["nb.db"]), "there twice"},
		{archive(t, "../nb.db", whole["nb.db"]), "no file of a backup"},
		{archive(t, "nb.db", whole["nb.db"][:len(whole["nb.db"])-20], "sb.db", whole["sb.db"]), "nb.db"},
		{archive(t, "nb.db", "", "sb.db", ""), "nb.db"},
		{filepath.Join(home, "nothing"), "no such file"},
	} {
		_, err := restore(t.Context(), asked(bad.file))
		require.ErrorContains(t, err, bad.why)
	}
	for _, wrong := range []Asked{asked(), {Args: []string{file}, Flags: map[string]string{"empty": "true"}}} {
		_, err := restore(t.Context(), wrong)
		require.ErrorAs(t, err, new(hint.UsageError))
	}
	away := asked(file)
	away.Flags["central-dir"] = filepath.Join(home, "nowhere")
	_, err = restore(t.Context(), away)
	require.ErrorContains(t, err, "no member of central runs here")
	left, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Len(t, left, 2, "what was taken")

	// One restoration at a time.
	require.NoError(t, os.MkdirAll(filepath.Join(due, "under way"), 0o700))
	_, err = restore(t.Context(), asked(file))
	require.ErrorContains(t, err, "file exists")
}
