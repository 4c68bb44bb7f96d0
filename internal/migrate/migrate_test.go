package migrate

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/client"
)

// file makes a configuration in a folder of its own.
func file(t *testing.T, name, conf string) []confFile {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(conf), 0o600))
	files, err := readConfs(dir)
	require.NoError(t, err)
	return files
}

// TestOurConfigurationIsMultus': the same network under the same name, with our
// type in Multus' place and nothing that would lead elsewhere.
func TestOurConfigurationIsMultus(t *testing.T) {
	master := filepath.Join(t.TempDir(), "10-main.conflist")
	require.NoError(t, os.WriteFile(master, []byte(`{}`), 0o600))
	for name, c := range map[string]struct{ file, conf, socket, want string }{
		"thin, alone": {
			"00-multus.conf", `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","kubeconfig":"/k","logFile":"/l","delegates":[{"type":"bridge","name":"b"}]}`, "",
			`{"cniVersion":"0.3.1","name":"multus-cni-network","plugins":[{"type":"fairlead","kubeconfig":"/k","delegates":[{"type":"bridge","name":"b"}]}]}`,
		},
		"thick, as its daemon writes it": {
			"00-multus.conf", `{"capabilities":{"portMappings":true},"cniVersion":"1.0.0","name":"multus-cni-network","clusterNetwork":"/host` + master + `","cniConfigDir":"/host/etc/cni/net.d","multusConfigFile":"auto","daemonSocketDir":"/run/multus","logToStderr":true,"type":"multus-shim"}`, "/run/x.sock",
			`{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{"type":"fairlead","capabilities":{"portMappings":true},"clusterNetwork":"` + master + `","socket":"/run/x.sock"}]}`,
		},
		"in a list, others behind it": {
			"00-multus.conflist", `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"multus","clusterNetwork":"main"},{"type":"tuning","mtu":1400}]}`, "",
			`{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"fairlead","clusterNetwork":"main"},{"type":"tuning","mtu":1400}]}`,
		},
		"in a list that has keys of its own": {
			"00-multus.conflist", `{"cniVersion":"1.1.0","name":"n","disableCheck":true,"disableGC":true,"plugins":[{"type":"multus","clusterNetwork":"main"}]}`, "",
			`{"cniVersion":"1.1.0","name":"n","disableCheck":true,"disableGC":true,"plugins":[{"type":"fairlead","clusterNetwork":"main"}]}`,
		},
		"of a version without lists": {
			"00-multus.conf", `{"cniVersion":"0.2.0","name":"n","type":"multus","clusterNetwork":"main"}`, "",
			`{"cniVersion":"0.3.1","name":"n","plugins":[{"type":"fairlead","clusterNetwork":"main"}]}`,
		},
	} {
		m, err := findMultus(file(t, c.file, c.conf), state{})
		require.NoError(t, err, name)
		got, err := m.list(c.socket)
		require.NoError(t, err, name)
		require.JSONEq(t, c.want, string(got), name)
	}
}

func TestMultusIsFound(t *testing.T) {
	for name, conf := range map[string]string{
		"another's": `{"cniVersion":"1.0.0","name":"n","type":"bridge"}`, "torn": `{"cniVersion":`, "empty": ``, "ours": `{"name":"n","type":"fairlead"}`,
	} {
		_, err := findMultus(file(t, "00-a.conf", conf), state{})
		require.ErrorIs(t, err, errNoMultus, name)
		m, err := findMultus(file(t, "00-a.conf", conf), state{Conf: "/etc/cni/net.d/00-multus.conf", Content: []byte(`{"cniVersion":"1.0.0","name":"kept","type":"multus","clusterNetwork":"x"}`)})
		require.NoError(t, err, name)
		require.Equal(t, "kept", m.file.name, "Multus' daemon has removed its file")
	}
	_, err := findMultus(file(t, "00-a.conf", `{"cniVersion":"1.0.0","name":"n","type":"multus","delegates":7}`), state{})
	require.ErrorContains(t, err, "delegates")
	files := file(t, "00-a.conf", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"multus"}]}`)
	require.ErrorContains(t, files[0].err, "it has no `type`", "runtimes read a list in a .conflist only")
}

func TestKeysWithoutEffectHaveAReason(t *testing.T) {
	m, err := findMultus(file(t, "00-a.conf", `{"cniVersion":"1.0.0","name":"n","type":"multus","clusterNetwork":"x","logLevel":"debug","retryDeleteOnError":true,"multusMasterCNI":"y","myKey":1}`), state{})
	require.NoError(t, err)
	notes := map[string]string{}
	for _, k := range m.keyList() {
		if !k.Effect {
			notes[k.Name] = k.Note
		}
	}
	require.Equal(t, map[string]string{
		"logLevel": logNote, "multusMasterCNI": generatorNote, "myKey": "Multus has no such key",
		"retryDeleteOnError": "a record always stays until its DEL has succeeded",
	}, notes)
}

func TestKubeconfigIsReadWithWhatItNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "multus.kubeconfig")
	require.Nil(t, kubeconfig(""))
	require.Contains(t, kubeconfig(path).Why, "no such file")
	for text, why := range map[string]string{
		`{`: "yaml", `clusters: []`: "it names no server",
		"clusters: [{cluster: {server: https://a}}]":                                           "",
		"clusters: [{cluster: {server: https://a}}]\nusers: [{user: {tokenFile: token}}]":      "token",
		"clusters: [{cluster: {server: https://a, certificate-authority: multus.kubeconfig}}]": "",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		k := kubeconfig(path)
		require.Equal(t, why == "", k.Usable, "%s: %s", text, k.Why)
		require.Contains(t, k.Why, why)
	}
}

func TestMultusDaemonIsSeen(t *testing.T) {
	dir := t.TempDir()
	m := New(Config{Proc: dir})
	c := multusConf{keys: keys{"daemonSocketDir": quote(dir)}}
	require.False(t, m.running(c).Here())
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "77"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "77", "cmdline"), []byte("/usr/src/multus-cni/bin/multus-daemon\x00-config\x00x\x00"), 0o600))
	require.Equal(t, []string{"77 multus-daemon"}, m.running(c).Processes)
	for _, process := range []string{"self", "77"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, process, "ns"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, process, "ns", "net"), nil, 0o600))
	}
	require.False(t, m.running(c).Here(), "that is another node's")
	require.NoError(t, os.Remove(filepath.Join(dir, "77", "ns", "net")))
	require.NoError(t, os.Link(filepath.Join(dir, "self", "ns", "net"), filepath.Join(dir, "77", "ns", "net")))
	require.Equal(t, []string{"77 multus-daemon"}, m.running(c).Processes)
	l, err := net.Listen("unix", filepath.Join(dir, "multus.sock"))
	require.NoError(t, err)
	defer l.Close()
	require.True(t, m.running(c).Listening)
}

// TestStateIsWhole: what cannot be read is no state, and is not taken for none.
func TestStateIsWhole(t *testing.T) {
	m := New(Config{StateDir: filepath.Join(t.TempDir(), "import")})
	s, err := m.load()
	require.NoError(t, err)
	require.Equal(t, phaseNone, s.Phase)
	s = state{Phase: phaseApplied, Conf: "/x", Content: []byte("{"), Writes: true, Types: []string{"multus"}}
	require.NoError(t, m.save(s))
	got, err := m.load()
	require.NoError(t, err)
	require.Equal(t, s, got)
	require.NoError(t, os.WriteFile(filepath.Join(m.StateDir, stateName), nil, 0o600))
	_, err = m.load()
	require.Error(t, err)
	_, err = m.Rollback(t.Context(), true)
	require.Error(t, err)
}

func TestOneImportAtATime(t *testing.T) {
	m := New(Config{StateDir: t.TempDir()})
	unlock, err := m.lock()
	require.NoError(t, err)
	_, err = m.Rollback(t.Context(), false)
	require.ErrorAs(t, err, new(BlockedError))
	unlock()
	_, err = m.Rollback(t.Context(), false)
	require.NoError(t, err)
}

// TestRollbackLeavesWhatWasOursBefore: Multus' name may have been given to our
// plugin before the import; then there is no plugin of Multus to bring back, and
// its configuration would call none.
func TestRollbackLeavesWhatWasOursBefore(t *testing.T) {
	dir := t.TempDir()
	m := New(Config{BinDir: dir, StateDir: filepath.Join(dir, "import")})
	for _, name := range []string{"multus", "multus-shim"} {
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "../../cmd/fairlead-cni").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	conf := filepath.Join(dir, "00-multus.conf")
	require.NoError(t, os.WriteFile(conf, nil, 0o600))
	s, err := m.begin(Plan{
		Binaries: []Binary{{Type: "multus", Is: whoseOurs, Then: thenKeep}, {Type: "multus-shim", Is: isAbsent, Then: thenInstall}},
		state:    state{Phase: phaseNone}, multus: multusConf{file: confFile{path: conf}},
	})
	require.NoError(t, err)
	require.NoError(t, m.restoreFiles(s, &Report{}))
	require.FileExists(t, filepath.Join(dir, "multus"))
	require.NoFileExists(t, filepath.Join(dir, "multus-shim"))
}

// TestRollbackWaitsForTheAgent: forced, it brings Multus' files back without the
// agent; it is not over while nobody told Multus of the pods that came since.
func TestRollbackWaitsForTheAgent(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "00-multus.conf")
	content := []byte(`{"cniVersion":"1.0.0","name":"n","type":"multus","clusterNetwork":"x","cniDir":"` + dir + `"}`)
	m := New(Config{ConfDir: dir, BinDir: dir, StateDir: filepath.Join(dir, "import"), Agent: client.New(filepath.Join(dir, "no.sock"))})
	require.NoError(t, m.save(state{Phase: phaseApplied, Conf: conf, Content: content}))
	for range 2 {
		_, err := m.Rollback(t.Context(), true)
		require.ErrorAs(t, err, new(BlockedError))
		require.ErrorContains(t, err, "Multus does not know")
		require.FileExists(t, conf)
		s, err := m.load()
		require.NoError(t, err)
		require.Equal(t, phaseBack, s.Phase, "it goes on when the agent is there")
	}
}
