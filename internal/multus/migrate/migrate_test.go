package migrate

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/ops/client"
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

// besideOurs is what Multus' daemon (v4.3.0, with the configuration of its
// DaemonSet) writes when it is started while our configuration is there.
const besideOurs = `{"binDir":"/opt/cni/bin","capabilities":{"portMappings":true},"cniVersion":"1.0.0","name":"multus-cni-network","clusterNetwork":"/host/etc/cni/net.d/00-fairlead.conflist","type":"multus-shim"}`

// thinBesideOurs is what the thin one's (thin_entrypoint, with
// --cleanup-config-on-exit) writes within a second, started anew or not.
const thinBesideOurs = `{"cniVersion": "1.0.0", "name": "multus-cni-network", "plugins": [ {
	"type": "multus", "cniConf": "/host/etc/cni/multus/net.d", "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "delegates": [
		{"cniVersion":"1.0.0","name":"multus-cni-network","plugins":[{"cniConf":"/host/etc/cni/multus/net.d","delegates":[{"bridge":"br1","cniVersion":"1.0.0","name":"main","type":"bridge"}],"type":"fairlead"}]}
	] }] }`

// before is what it writes without ours.
const before = `{"binDir":"/opt/cni/bin","capabilities":{"portMappings":true},"cniVersion":"1.0.0","name":"multus-cni-network","clusterNetwork":"/host/etc/cni/net.d/10-main.conflist","type":"multus-shim"}`

// TestMultusDaemonStartedBesideOurs: what it wrote is about us, and is neither
// what new pods get, nor what the rollback brings back, nor worth a backup.
func TestMultusDaemonStartedBesideOurs(t *testing.T) {
	files := file(t, "00-multus.conf", besideOurs)
	dir := filepath.Dir(files[0].path)
	began := state{Phase: phaseApplied, Conf: files[0].path, Content: []byte(before), Writes: true}
	c, err := findMultus(files, began)
	require.NoError(t, err)
	require.Equal(t, before, string(c.file.raw))
	m := New(Config{ConfDir: dir, StateDir: filepath.Join(dir, "import"), Proc: dir})
	s, err := m.begin(Plan{state: began, multus: c})
	require.NoError(t, err)
	require.Equal(t, before, string(s.Content))
	require.NoError(t, m.backUp(Plan{}, &Report{}))
	require.NoFileExists(t, m.kept(keptConfs, "00-multus.conf"))

	// Without a state nobody knows what was there before.
	m.Agent = client.New(filepath.Join(dir, "no.sock"))
	require.NoError(t, os.Remove(filepath.Join(m.StateDir, stateName)))
	require.NoError(t, os.WriteFile(m.ours(), []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"fairlead","delegates":[{"name":"b","type":"bridge"}]}]}`), 0o600))
	p, err := m.Plan(t.Context())
	require.NoError(t, err)
	blocks := []string{}
	for _, b := range p.Blocks {
		blocks = append(blocks, b.What+"; "+b.Next)
	}
	require.Contains(t, strings.Join(blocks, "\n"), "is 00-fairlead.conflist, which calls Fairlead; name the cluster's own network")
	require.NotContains(t, strings.Join(blocks, "\n"), "a network is not there", "once is enough")
}

// TestFairleadAsMultusDefaultNetwork: a network of ours is one like others.
func TestFairleadAsMultusDefaultNetwork(t *testing.T) {
	files := file(t, "00-multus.conf", besideOurs)
	require.True(t, files[0].nests(), "what it names is gone")
	own := filepath.Join(filepath.Dir(files[0].path), ours)
	require.NoError(t, os.WriteFile(own, []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"fairlead","clusterNetwork":"main"}]}`), 0o600))
	require.True(t, files[0].nests())
	require.NoError(t, os.WriteFile(own, []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"fairlead"}]}`), 0o600))
	require.False(t, files[0].nests())
	require.True(t, file(t, "00-multus.conflist", thinBesideOurs)[0].nests())
	own = strings.Replace(thinBesideOurs, `"delegates":[{"bridge":"br1","cniVersion":"1.0.0","name":"main","type":"bridge"}],`, "", 1)
	require.False(t, file(t, "00-multus.conflist", own)[0].nests())
	require.False(t, file(t, "00-multus.conf", before)[0].nests())
}

// TestRollbackLeavesAUsableConfiguration: Multus' daemon removes its file when it
// ends, writes ours into it when it starts beside ours, and empties it when ours
// goes while it starts.
func TestRollbackLeavesAUsableConfiguration(t *testing.T) {
	newer := strings.Replace(before, "10-main", "10-other", 1)
	for name, c := range map[string]struct{ have, want string }{
		"gone": {"", before}, "ours in it": {besideOurs, before}, "empty": {" ", before}, "torn": {before[:20], before},
		"written anew": {newer, newer}, "as it was": {before, before},
	} {
		dir := t.TempDir()
		conf := filepath.Join(dir, "00-multus.conf")
		if c.have != "" {
			require.NoError(t, os.WriteFile(conf, []byte(c.have), 0o600), name)
		}
		m := New(Config{ConfDir: dir, BinDir: dir, StateDir: filepath.Join(dir, "import"), Proc: dir})
		daemon := multusConf{keys: keys{"daemonSocketDir": quote(dir)}}
		require.NoError(t, os.WriteFile(m.ours(), nil, 0o600), name)
		var rep Report
		require.NoError(t, m.restoreFiles(daemon, state{Conf: conf, Content: []byte(before), Writes: true}, &rep), name)
		got, err := os.ReadFile(conf)
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
		require.NoFileExists(t, m.ours(), name)
		require.Empty(t, rep.Todo, name)
	}
}

// lateDaemon is an agent without containers. While it is asked for the last time
// Multus' daemon, which has just started beside ours, writes its file.
type lateDaemon struct {
	Agent
	conf  string
	asked int
}

func (a *lateDaemon) Export(context.Context, agent.Multus) (agent.ExportResult, error) {
	a.asked++
	if a.asked < 3 {
		return agent.ExportResult{}, nil
	}
	return agent.ExportResult{}, os.WriteFile(a.conf, []byte(besideOurs), 0o600)
}

// applied is an import that came to its end, of a node whose agent is a
// lateDaemon, and the configuration that Multus had.
func applied(t *testing.T) (m *Migration, a *lateDaemon, content string) {
	dir := t.TempDir()
	a = &lateDaemon{conf: filepath.Join(dir, "00-multus.conf")}
	m = New(Config{ConfDir: dir, BinDir: dir, StateDir: filepath.Join(dir, "import"), Proc: dir, Agent: a})
	content = strings.Replace(before, "{", `{"cniDir":"`+dir+`",`, 1)
	require.NoError(t, m.save(state{Phase: phaseApplied, Conf: a.conf, Content: []byte(content), Writes: true}))
	return m, a, content
}

// TestRollbackWaitsForADaemonThatStarts: it has chosen ours by then, and writes an
// empty file without it.
func TestRollbackWaitsForADaemonThatStarts(t *testing.T) {
	m, a, _ := applied(t)
	require.NoError(t, os.MkdirAll(filepath.Join(m.Proc, "77"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(m.Proc, "77", "cmdline"), []byte("/usr/src/multus-cni/bin/multus-daemon\x00"), 0o600))
	_, err := m.Rollback(t.Context(), false)
	require.ErrorAs(t, err, new(BlockedError))
	require.Zero(t, a.asked, "nothing was done")
	require.NoError(t, os.WriteFile(a.conf, []byte(besideOurs), 0o600))
	rep, err := m.Rollback(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, rep.Todo, 1)
	require.Contains(t, rep.Todo[0], "restart Multus' DaemonSet")
}

// TestRollbackAfterTheThinOneSawOurs: it has all of ours in its file.
func TestRollbackAfterTheThinOneSawOurs(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "00-multus.conflist")
	content := `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"multus","delegates":[{"bridge":"br1","name":"main","type":"bridge"}]}]}`
	require.NoError(t, os.WriteFile(conf, []byte(thinBesideOurs), 0o600))
	m := New(Config{ConfDir: dir, BinDir: dir, StateDir: filepath.Join(dir, "import"), Proc: dir})
	s := state{Phase: phaseApplied, Conf: conf, Content: []byte(content), Writes: true}
	files, err := readConfs(dir)
	require.NoError(t, err)
	c, err := findMultus(files, s)
	require.NoError(t, err)
	require.Equal(t, content, string(c.file.raw))
	require.NoError(t, m.restoreFiles(c, s, &Report{}))
	got, err := os.ReadFile(conf)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
}

func TestRollbackLooksTwice(t *testing.T) {
	m, a, content := applied(t)
	_, err := m.Rollback(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 3, a.asked)
	got, err := os.ReadFile(a.conf)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
}

// TestRollbackSaysWhoHasTheNode: a file of ours that was there before the import
// is the agent's, and still the runtime's first.
func TestRollbackSaysWhoHasTheNode(t *testing.T) {
	dir := t.TempDir()
	m := New(Config{ConfDir: dir, StateDir: filepath.Join(dir, "import")})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "00-multus.conf"), []byte(before), 0o600))
	var rep Report
	require.NoError(t, m.forget(&rep))
	require.Contains(t, rep.Done[0], "Multus has the node")
	require.Empty(t, rep.Todo)
	require.NoError(t, os.WriteFile(m.ours(), []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"fairlead"}]}`), 0o600))
	rep = Report{}
	require.NoError(t, m.forget(&rep))
	require.NotContains(t, rep.Done[0], "has the node")
	require.Contains(t, rep.Todo[0], "--cni-conf")
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
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "../../../cmd/fairlead-cni").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	conf := filepath.Join(dir, "00-multus.conf")
	require.NoError(t, os.WriteFile(conf, nil, 0o600))
	s, err := m.begin(Plan{
		Binaries: []Binary{{Type: "multus", Is: whoseOurs, Then: thenKeep}, {Type: "multus-shim", Is: isAbsent, Then: thenInstall}},
		state:    state{Phase: phaseNone}, multus: multusConf{file: confFile{path: conf}},
	})
	require.NoError(t, err)
	require.NoError(t, m.restoreFiles(multusConf{}, s, &Report{}))
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
