package runtimes

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/install/explain"
)

// write makes the files of a machine, by their path below a folder.
func write(t *testing.T, files map[string]string) Places {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return Places{Containerd: filepath.Join(dir, "config.toml"), CRIO: filepath.Join(dir, "crio.conf"), CRIODir: filepath.Join(dir, "crio.conf.d")}
}

func settings(dir, network string, most int) explain.Settings {
	return explain.Settings{Dir: dir, MaxConfNum: most, Default: network}
}

func TestContainerdFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  explain.Settings
		bins  []string
		read  int
	}{
		"none":      {nil, settings(DefaultConfDir, "", 1), []string{DefaultBinDir}, 0},
		"nothing":   {map[string]string{"config.toml": "version = 3\n"}, settings(DefaultConfDir, "", 1), []string{DefaultBinDir}, 1},
		"version 1": {map[string]string{"config.toml": "[plugins.cri.cni]\nconf_dir = '/a'\nbin_dir = '/b'\n"}, settings("/a", "", 1), []string{"/b"}, 1},
		"version 2": {map[string]string{"config.toml": "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = '/b'\nmax_conf_num = 0\n"},
			settings(DefaultConfDir, "", 0), []string{"/b"}, 1},
		"version 3": {map[string]string{"config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/a'\nbin_dirs = ['/b', '/c']\n"},
			settings("/a", "", 1), []string{"/b", "/c"}, 1},
		"imports": {map[string]string{
			"config.toml":    "version = 3\nimports = ['more/*.toml', 'config.toml']\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/a'\nmax_conf_num = 2\n",
			"more/10-a.toml": "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/x'\n",
			"more/20-a.toml": "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/y'\n",
			"more/30-a.conf": "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/z'\n",
		}, settings("/y", "", 2), []string{DefaultBinDir}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := write(t, tc.files).Network(explain.Containerd)
			require.NoError(t, err)
			require.Equal(t, tc.want, n.Settings)
			require.Equal(t, tc.bins, n.BinDirs)
			require.Len(t, n.Files, tc.read)
		})
	}
	_, err := write(t, map[string]string{"config.toml": "version = 3\n[plugins\n"}).Network(explain.Containerd)
	require.ErrorContains(t, err, "line 2")
}

func TestCRIOFiles(t *testing.T) {
	n, err := write(t, map[string]string{
		"crio.conf":              "[crio.network]\nnetwork_dir = '/a'\nplugin_dirs = ['/b']\ncni_default_network = 'old'\n",
		"crio.conf.d/20-net":     "[crio.network]\ncni_default_network = 'new'\n",
		"crio.conf.d/10-net":     "[crio.network]\ncni_default_network = 'between'\nplugin_dir = '/c'\n",
		"crio.conf.d/.hidden":    "[crio.network]\ncni_default_network = 'hidden'\n",
		"crio.conf.d/old/a.conf": "no TOML",
	}).Network(explain.CRIO)
	require.NoError(t, err)
	require.Equal(t, settings("/a", "new", 1), n.Settings)
	require.Equal(t, []string{"/b", "/c"}, n.BinDirs)
	require.Len(t, n.Files, 3)
	n, err = write(t, nil).Network(explain.CRIO)
	require.NoError(t, err)
	require.Equal(t, settings(DefaultConfDir, "", 1), n.Settings)
	n, err = write(t, nil).Network(explain.Dockershim)
	require.NoError(t, err)
	require.Equal(t, []string{DefaultBinDir}, n.BinDirs)
}

// TestFind: what is no socket, what nobody serves, and what serves something else
// are passed over and named.
func TestFind(t *testing.T) {
	dir, err := os.MkdirTemp("", "rt") // a socket's path is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, dead, other := filepath.Join(dir, "file"), filepath.Join(dir, "dead"), filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = Find(t.Context(), []string{file, file + "none"})
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, file)

	l, err := net.Listen("unix", dead)
	require.NoError(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	l, err = net.Listen("unix", other)
	require.NoError(t, err)
	s, done := grpc.NewServer(), make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); require.NoError(t, <-done) })
	_, err = Find(t.Context(), []string{file, dead, other})
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, "ask "+dead)
	require.ErrorContains(t, err, "unknown service runtime.v1.RuntimeService")
}

// TestTell: what a verbose status says; a condition that we do not know is no
// obstacle.
func TestTell(t *testing.T) {
	st := &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true},
			{Type: cri.NetworkReady, Reason: "NetworkPluginNotReady", Message: "no network"},
			{Type: "ContainerdHasNoDeprecationWarnings", Message: "old words"},
		}},
		Info: map[string]string{"config": `{"cni": {"binDir": "/b", "confDir": "/a", "maxConfNum": 2}}`},
	}
	l := Live{Dialect: explain.Containerd}
	l.tell(st)
	require.NoError(t, l.Fault)
	require.False(t, l.Ready)
	require.Equal(t, "NetworkPluginNotReady: no network", l.Reason)
	require.Equal(t, &Network{Settings: settings("/a", "", 2), BinDirs: []string{"/b"}}, l.Network)

	st.Status.Conditions[0] = &cri.RuntimeCondition{Type: cri.RuntimeReady, Reason: "Broken", Message: "no shim"}
	st.Info["config"] = `{"cni": {"confDir": "/a"}}`
	l = Live{Dialect: explain.Containerd}
	l.tell(st)
	require.EqualError(t, l.Fault, "RuntimeReady is false: Broken: no shim")
	require.Empty(t, l.Network.BinDirs)
}

// TestNewestCNI: what the versions that nodes have take.
func TestNewestCNI(t *testing.T) {
	for _, c := range []struct {
		d             explain.Dialect
		version, want string
	}{
		{explain.Containerd, "1.5.18", "0.4.0"},
		{explain.Containerd, "1.6.20~ds1", "1.0.0"},
		{explain.Containerd, "v1.7.35+unknown", "1.0.0"},
		{explain.Containerd, "2.0.0-rc.1", "1.1.0"},
		{explain.Containerd, "v2.3.7", "1.1.0"},
		{explain.Containerd, "unknown", ""},
		{explain.CRIO, "1.23.5", "0.4.0"},
		{explain.CRIO, "1.29.1", "1.0.0"},
		{explain.CRIO, "1.31.0", ""},
		{explain.CRIO, "1.33.0", "1.1.0"},
		{explain.Fairlead, "dev", "1.1.0"},
		{explain.Dockershim, "24.0.7", ""},
	} {
		require.Equal(t, c.want, newestCNI(c.d, c.version), "%s %s", c.d, c.version)
	}
}
