package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
)

// plugin writes a program that answers VERSION, as any CNI plugin does.
func plugin(t *testing.T, dir, kind, versions string) string {
	t.Helper()
	path := filepath.Join(dir, kind)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	script := "#!/bin/sh\n[ \"$CNI_COMMAND\" = VERSION ] || exit 1\necho '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[" + versions + "]}'\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

const allVersions = `"0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"`

const (
	ownList   = `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`
	otherList = `{"cniVersion":"0.4.0","name":"other","plugins":[{"type":"bridge"}]}`
)

// TestConfDir holds the findings about what the runtimes take side by side; what
// they take is package explain's to know.
func TestConfDir(t *testing.T) {
	bin := t.TempDir()
	plugin(t, bin, "fairlead", allVersions)
	plugin(t, bin, "bridge", `"0.4.0"`)
	for _, tc := range []struct {
		name                         string
		files                        map[string]string
		dockershim, containerd, crio Verdict
		says                         string // of dockershim
	}{
		{"empty", nil, Warning, Warning, Warning, "holds no configuration"},
		{"ours", map[string]string{"00-fairlead.conflist": ownList}, OK, OK, OK, "00-fairlead.conflist wins (fairlead)"},
		{"another's first", map[string]string{"10-b.conflist": ownList, "05-a.conflist": otherList}, Warning, Warning, Warning, "05-a.conflist wins (bridge): pods do not get"},
		{"broken first", map[string]string{"00-x.conf": "{", "10-f.conflist": ownList}, OK, Failed, OK, "not usable: 00-x.conf: line 1: not JSON"},
		{"all broken", map[string]string{"00-x.conf": "{"}, Failed, Failed, Failed, "is usable"},
		{"no binary", map[string]string{"00-x.conf": `{"name":"x","type":"gone"}`, "10-f.conflist": ownList}, OK, Warning, OK, "not usable: 00-x.conf: gone is not in"},
		{"wrong version", map[string]string{"00-x.conf": `{"cniVersion":"1.1.0","name":"x","type":"bridge"}`}, Failed, Warning, Failed, "bridge does not speak cniVersion 1.1.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := bare(t)
			cfg.BinDirs = []string{bin}
			require.NoError(t, os.MkdirAll(cfg.ConfDir, 0o755))
			for name, content := range tc.files {
				require.NoError(t, os.WriteFile(filepath.Join(cfg.ConfDir, name), []byte(content), 0o600))
			}
			m := examine(t.Context(), cfg)
			defer m.close()
			o := checkConfDockershim(t.Context(), m)
			require.Equal(t, tc.dockershim, o.verdict, "%+v", o)
			require.Contains(t, strings.Join(append(o.details, o.reason), "\n"), tc.says)
			o = checkConfContainerd(t.Context(), m)
			require.Equal(t, tc.containerd, o.verdict, "%+v", o)
			o = checkConfCRIO(t.Context(), m)
			require.Equal(t, tc.crio, o.verdict, "%+v", o)
			require.Equal(t, o.verdict == OK, o.next == "", "%+v", o)
		})
	}
	cfg := bare(t)
	cfg.BinDirs = []string{bin}
	require.NoError(t, os.WriteFile(cfg.ConfDir, nil, 0o600))
	m := examine(t.Context(), cfg)
	defer m.close()
	require.Equal(t, Failed, checkConfCRIO(t.Context(), m).verdict, "a file in its place")

	// What the runtime's own configuration says counts: its folders, its default.
	elsewhere := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "00-fairlead.conflist"), []byte(ownList), 0o600))
	m.cfg.Runtimes.CRIO, m.cfg.Runtimes.Containerd = filepath.Join(t.TempDir(), "crio.conf"), filepath.Join(t.TempDir(), "config.toml")
	require.NoError(t, os.WriteFile(m.cfg.Runtimes.CRIO, []byte("[crio.network]\nnetwork_dir='"+elsewhere+"'\nplugin_dirs=['"+bin+"']\ncni_default_network='other'\n"), 0o600))
	o := checkConfCRIO(t.Context(), m)
	require.Equal(t, Failed, o.verdict)
	require.Contains(t, o.reason, "other")
	require.NoError(t, os.WriteFile(m.cfg.Runtimes.Containerd, []byte("[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir='"+elsewhere+"'\nbin_dirs=['/none']\n"), 0o600))
	o = checkConfContainerd(t.Context(), m)
	require.Equal(t, Warning, o.verdict)
	require.Contains(t, o.reason, "fairlead is not in /none")
}

// TestPlugin uses the real plugin, and programs that are not it.
func TestPlugin(t *testing.T) {
	cfg := bare(t)
	dir := cfg.BinDirs[0]
	require.NoError(t, os.MkdirAll(dir, 0o755))
	own := filepath.Join(dir, "fairlead")
	out, err := exec.Command("go", "build", "-o", own, "github.com/fairlead/fairlead/cmd/fairlead-cni").CombinedOutput()
	require.NoError(t, err, "%s", out)
	verdict := func() outcome {
		m := examine(t.Context(), cfg)
		defer m.close()
		return checkPlugin(t.Context(), m)
	}
	o := verdict()
	require.Equal(t, OK, o.verdict, "%+v", o)
	require.Equal(t, own+" answers to fairlead; CNI 0.1.0 to 1.1.0", o.reason)

	require.NoError(t, os.Link(own, filepath.Join(dir, "multus")))
	other := plugin(t, dir, "kube-ovn", allVersions)
	o = verdict()
	require.Contains(t, o.reason, "answers to fairlead, multus;")
	require.Equal(t, []string{other + " is another program"}, o.details)

	require.NoError(t, os.Chmod(dir, 0o777))
	require.Contains(t, verdict().reason, "writable by nobody else", "root must not start what others can replace")
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chown(own, 1000, 0))
	require.Contains(t, verdict().reason, "owned by root")
	require.NoError(t, os.Remove(own))
	plugin(t, dir, "fairlead", `"0.3.1"`)
	require.Contains(t, verdict().reason, "lacks CNI 0.1.0")
	require.NoError(t, os.WriteFile(own, []byte("#!/bin/sh\necho hello\n"), 0o755))
	require.Contains(t, verdict().reason, "does not answer VERSION")
	require.NoError(t, os.Chmod(own, 0o644))
	require.Contains(t, verdict().reason, "not executable")
}

func TestDelegates(t *testing.T) {
	cfg := bare(t)
	dir := cfg.BinDirs[0]
	plugin(t, dir, "multus", allVersions)
	plugin(t, dir, "portmap", allVersions)
	require.NoError(t, os.MkdirAll(cfg.ConfDir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cfg.ConfDir, "00-multus.conf"), []byte(`{
		"cniVersion":"0.3.1","name":"m","type":"multus","delegates":[
			{"name":"d","plugins":[{"type":"kube-ovn"},{"type":"portmap"}]},
			{"type":"macvlan","ipam":{"type":"host-local"}}]}`), 0o600))
	cfg.Agent = answering{nets: agent.NetList{Items: []agent.Net{{Plugins: []string{"sbr", "fairlead"}}}}}
	m := examine(t.Context(), cfg)
	defer m.close()
	o := checkDelegates(t.Context(), m)
	require.Equal(t, Failed, o.verdict)
	require.Len(t, o.details, 3, "%v", o.details)
	for i, kind := range []string{"host-local", "macvlan", "sbr"} {
		require.Contains(t, o.details[i], kind+" is not in")
		plugin(t, dir, kind, allVersions)
	}
	again := examine(t.Context(), cfg)
	defer again.close()
	o = checkDelegates(t.Context(), again)
	require.Equal(t, OK, o.verdict)
	require.Equal(t, "host-local, macvlan, portmap, sbr", o.reason)
}
