package up

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestArgs: another process is told what was said.
func TestArgs(t *testing.T) {
	o := Config{Dir: "/pods", Given: map[string][]string{"cni-bin-dir": {"/a b", "/c"}, "dir": {"/pods"}}, Socket: "/s/agent.sock"}
	require.Equal(t, []string{"up", "--cni-bin-dir=/a b", "--cni-bin-dir=/c", "--dir=/pods"}, o.args())
	require.Contains(t, o.unit("/bin/fairlead"), `ExecStart=/bin/fairlead up "--cni-bin-dir=/a b" --cni-bin-dir=/c --dir=/pods`)
	require.Equal(t, "unix:///s/cri.sock", o.endpoint(Runtime{}))
}

// TestUnitHasTheAgentsPriority: `up` is an agent too, and only its unit says what
// comes first where processors are scarce.
func TestUnitHasTheAgentsPriority(t *testing.T) {
	agents, err := os.ReadFile("../../deploy/systemd/fairlead.service")
	require.NoError(t, err)
	priority := regexp.MustCompile(`(?m)^(CPUWeight|Nice)=.*\n`)
	want := priority.FindAllString(string(agents), -1)
	require.Len(t, want, 2)
	o := Config{Dir: "/pods"}
	require.Equal(t, want, priority.FindAllString(o.unit("/bin/fairlead"), -1))
}

// TestSystemdWord: systemd.service(5), "Command lines".
func TestSystemdWord(t *testing.T) {
	for in, want := range map[string]string{
		"--dir=/a":   "--dir=/a",
		"--dir=/a b": `"--dir=/a b"`,
		"50%":        "50%%",
		"$HOME":      "$$HOME",
		`a"b\`:       `"a\"b\\"`,
		"":           `""`,
	} {
		require.Equal(t, want, systemdWord(in))
	}
}

// TestCallsUs: a configuration of ours may be somebody else's work.
func TestCallsUs(t *testing.T) {
	dir := t.TempDir()
	require.False(t, callsUs(filepath.Join(dir, "none")))
	write(t, dir, "10-other.conflist", `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge"}]}`)
	write(t, dir, "20-broken.conf", `{`)
	require.False(t, callsUs(dir))
	write(t, dir, "30-ours.conflist", `{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "fairlead"}]}`)
	require.True(t, callsUs(dir))
}

// TestRemoveOurs leaves what somebody has put in the place of our plugin.
func TestRemoveOurs(t *testing.T) {
	dir := t.TempDir()
	conf, plugin := write(t, dir, "00-fairlead.conflist", "{}"), write(t, dir, "fairlead", "another program")
	var out bytes.Buffer
	require.NoError(t, removeOurs([]string{conf, plugin, filepath.Join(dir, "gone.conflist")}, &out))
	require.NoFileExists(t, conf)
	require.FileExists(t, plugin)
	require.Contains(t, out.String(), "removed "+conf+"\n")
}

// TestSweep removes logs of this node's pods and halves of messages, and nothing
// beside them.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	o := Config{LogDir: filepath.Join(dir, "logs[1]"), NodeName: "blue", Socket: filepath.Join(dir, "agent.sock")}
	const uid = "041ec2eee1b4a74233c8add8ae75f096"
	ours, others := filepath.Join(o.LogDir, "default_web-blue_"+uid), filepath.Join(o.LogDir, "default_web-red_"+uid)
	intents := filepath.Join(dir, "intents")
	for _, d := range []string{ours, others, intents} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	half, whole := write(t, intents, ".17-3.json", "{"), write(t, intents, "17-3.json", "{}")
	require.NoError(t, o.sweep())
	require.NoDirExists(t, ours)
	require.NoFileExists(t, half)
	require.DirExists(t, others)
	require.FileExists(t, whole)
}

// TestLastLine: the error of a process that ended counts more than its log.
func TestLastLine(t *testing.T) {
	dir := t.TempDir()
	o := Config{}
	require.Equal(t, "not known", o.lastLine())
	o.LogFile = write(t, dir, "log", "{\"msg\":\"a\"}\n{\"msg\":\"b\"}\n")
	require.Equal(t, `{"msg":"b"}`, o.lastLine())
	o.LogFile = write(t, dir, "log", "fairlead: bad\n  next: do\n")
	require.Equal(t, "fairlead: bad   next: do", o.lastLine())
}
