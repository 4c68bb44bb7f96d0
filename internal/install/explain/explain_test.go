package explain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/explain/foldertest"
)

// ask starts a plugin; its standard error is not needed.
func ask(ctx context.Context, path string, env []string, stdin string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin = env, strings.NewReader(stdin)
	return cmd.Output()
}

// TestFolders is the table of seedcases and of all that goes wrong on nodes, for
// the four dialects side by side.
func TestFolders(t *testing.T) {
	plugins := explain.NewPlugins([]string{t.TempDir(), foldertest.Plugins(t)}, ask)
	for _, f := range foldertest.All() {
		t.Run(f.Name, func(t *testing.T) {
			s := f.Make(t)
			for d, winner := range map[explain.Dialect]string{
				explain.Dockershim: f.Dockershim, explain.Containerd: f.Containerd, explain.CRIO: f.CRIO, explain.Fairlead: f.Dockershim,
			} {
				if d == explain.Fairlead && (strings.HasPrefix(winner, ".") || f.Name == "no name") {
					winner = "10-fairlead.conflist"
				}
				c, err := explain.Explain(t.Context(), d, s, plugins)
				require.NoError(t, err)
				require.Equal(t, winner != "", c.Ready, "%s: %+v", d, c)
				if winner != "" {
					require.NotNil(t, c.Winner(), d)
					require.Equal(t, winner, c.Winner().File, d)
				}
				whole(t, s.Dir, c)
				if d == explain.Dockershim && f.Reason != "" {
					require.Contains(t, reasons(c), f.Reason)
				}
			}
		})
	}
}

// whole proves that a choice speaks of every entry of the folder once, and names
// the files that it takes networks from.
func whole(t *testing.T, dir string, c explain.Choice) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, c.Files, len(entries), "%s: %+v", c.Runtime, c.Files)
	taken := 0
	for i, e := range entries {
		require.Equal(t, e.Name(), c.Files[i].Name)
		require.NotEmpty(t, c.Files[i].Why)
		if f := c.Files[i].Fate; f == explain.Wins || f == explain.Loaded {
			taken++
		}
	}
	require.Len(t, c.Networks, taken, "%s: %+v", c.Runtime, c)
	require.NotEmpty(t, c.Why)
	require.NotEmpty(t, c.Changes)
}

func reasons(c explain.Choice) string {
	var out []string
	for _, f := range c.Files {
		out = append(out, f.Name+": "+f.Why)
	}
	return strings.Join(out, "\n")
}

func explained(t *testing.T, d explain.Dialect, files map[string]string) explain.Choice {
	t.Helper()
	s := foldertest.Folder{Files: files, MaxConfNum: 1}.Make(t)
	c, err := explain.Explain(t.Context(), d, s, explain.NewPlugins([]string{foldertest.Plugins(t)}, ask))
	require.NoError(t, err)
	return c
}

// TestProblems: what containerd takes and pods then fail by.
func TestProblems(t *testing.T) {
	for name, tc := range map[string]struct{ conf, problem string }{
		"no program":       {`{"cniVersion":"0.4.0","name":"x","type":"gone"}`, "gone is not in"},
		"no name":          {`{"cniVersion":"0.4.0","type":"bridge"}`, "libcni refuses each ADD"},
		"a bad name":       {`{"cniVersion":"0.4.0","name":"a b","type":"bridge"}`, "libcni refuses each ADD"},
		"no IPAM":          {`{"cniVersion":"0.4.0","name":"x","type":"bridge","ipam":{"type":"host-local"}}`, "addresses of bridge: host-local is not in"},
		"refused by us":    {`{"cniVersion":"1.1.0","name":"x","type":"fairlead","delegates":5}`, `Fairlead refuses each ADD`},
		"a wrong version":  {`{"cniVersion":"1.1.0","name":"x","type":"bridge"}`, "bridge does not speak cniVersion 1.1.0"},
		"all is as wanted": {`{"cniVersion":"1.1.0","name":"x","type":"fairlead"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			won := explained(t, explain.Containerd, map[string]string{"00-x.conf": tc.conf}).Winner()
			require.NotNil(t, won)
			if tc.problem == "" {
				require.Empty(t, won.Problems)
				return
			}
			require.Contains(t, strings.Join(won.Problems, "\n"), tc.problem)
		})
	}
}

// TestUntrusted: a program that others can replace is not started, and a runtime
// would start it.
func TestUntrusted(t *testing.T) {
	bin := foldertest.Plugins(t)
	require.NoError(t, os.Chown(filepath.Join(bin, "bridge"), 1000, 0))
	s := foldertest.Folder{Files: map[string]string{"00-x.conf": `{"cniVersion":"9.0.0","name":"x","type":"bridge"}`}}.Make(t)
	c, err := explain.Explain(t.Context(), explain.CRIO, s, explain.NewPlugins([]string{bin}, ask))
	require.NoError(t, err)
	require.NotNil(t, c.Winner())
	require.Contains(t, c.Winner().Problems[0], "not asked for its versions")
}

// TestUntrustedBehindLink: the folder that a link leads to counts too.
func TestUntrustedBehindLink(t *testing.T) {
	bin, open := foldertest.Plugins(t), foldertest.Plugins(t)
	require.NoError(t, os.Chmod(open, 0o777))
	require.NoError(t, os.Remove(filepath.Join(bin, "bridge")))
	require.NoError(t, os.Symlink(filepath.Join(open, "bridge"), filepath.Join(bin, "bridge")))
	found := explain.NewPlugins([]string{bin}, ask).Find(t.Context(), "bridge")
	require.ErrorContains(t, found.Untrusted, open+" can be written by others")
	require.Empty(t, found.Versions)
}

// TestShadowedTellsItsOwn: what is wrong with the next in line is told before the
// first one goes.
func TestShadowedTellsItsOwn(t *testing.T) {
	c := explained(t, explain.Dockershim, map[string]string{"00-x.conf": `{"name":"x","type":"ancient"}`, "10-y.conf": "{"})
	require.Contains(t, reasons(c), "10-y.conf: 00-x.conf comes first; it could not be used either: line 1: not JSON")
}

func TestFolderThatCannotBeRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := explain.Explain(t.Context(), explain.CRIO, explain.Settings{Dir: file}, explain.NewPlugins(nil, ask))
	require.ErrorContains(t, err, "read "+file)
	c, err := explain.Explain(t.Context(), explain.CRIO, explain.Settings{Dir: file + "none"}, explain.NewPlugins(nil, ask))
	require.NoError(t, err)
	require.False(t, c.Ready)
	_, err = explain.Explain(t.Context(), "rkt", explain.Settings{}, explain.NewPlugins(nil, ask))
	require.ErrorContains(t, err, "rkt")
}

func TestText(t *testing.T) {
	c := explained(t, explain.Containerd, map[string]string{
		"00-multus.conf": `{"cniVersion":"0.3.1","name":"m","type":"multus","delegates":[{"name":"d","cniVersion":"0.3.1","plugins":[{"type":"kube-ovn"},{"type":"gone"}]}]}`,
		"10-x.conf":      "{", "notes": "", "old.d/a": "",
	})
	var out bytes.Buffer
	require.NoError(t, explain.Text(&out, []explain.Choice{c, c}, true))
	for _, part := range []string{
		"✓ containerd: 00-multus.conf is the first by name; usable or not, it wins\n",
		"    00-multus.conf  wins      the first by name; containerd does not look for its plugins\n",
		"    10-x.conf       not read  max_conf_num is 1; it could not be used either: line 1: not JSON: ",
		"    notes           ignored   it does not end in ",
		"    old.d           ignored   a folder: ",
		"  a pod gets eth0 of network \"m\", CNI 0.3.1: multus (kube-ovn, gone)\n",
		"moved in from another folder, or linked",
	} {
		require.Contains(t, out.String(), part)
	}
	out.Reset()
	require.NoError(t, explain.Text(&out, []explain.Choice{c}, false))
	require.Contains(t, out.String(), "  not heard of: a file that is moved in from another folder, or linked; changed in mode or times only\n")
	raw, err := json.Marshal(c)
	require.NoError(t, err)
	require.Contains(t, string(raw), `"ready":true`)
}

// TestNewestVersion: a runtime that takes CNI 1.0.0 at the most knows no
// cniVersions, and refuses the result of each ADD of a newer version.
func TestNewestVersion(t *testing.T) {
	const both = `{"cniVersion":"1.0.0","cniVersions":["1.0.0","1.1.0"],"name":"x","plugins":[{"type":"fairlead"}]}`
	plugins := explain.NewPlugins([]string{foldertest.Plugins(t)}, ask)
	for _, c := range []struct{ text, newest, version, problem string }{
		{both, "1.1.0", "1.1.0", ""},
		{both, "1.0.0", "1.0.0", ""},
		{both, "", "1.1.0", ""},
		{strings.ReplaceAll(both, "1.0.0", "1.1.0"), "1.0.0", "1.1.0", "takes CNI 1.0.0 at the most"},
		{strings.ReplaceAll(both, "1.0.0", "1.1.0"), "1.1.0", "1.1.0", ""},
		{both, "0.4.0", "1.0.0", "write cniVersion 0.4.0"},
	} {
		f := foldertest.Folder{Files: map[string]string{"00-x.conflist": c.text}, MaxConfNum: 1}
		s := f.Make(t)
		s.CNI = c.newest
		got, err := explain.Explain(t.Context(), explain.Containerd, s, plugins)
		require.NoError(t, err)
		require.Equal(t, c.version, got.Winner().CNIVersion)
		if c.problem == "" {
			require.Empty(t, got.Winner().Problems)
			continue
		}
		require.Len(t, got.Winner().Problems, 1)
		require.Contains(t, got.Winner().Problems[0], c.problem)
	}
}
