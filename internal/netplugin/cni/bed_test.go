package cni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/cni"
)

// patience bounds waits; it decides only how late a failure is seen.
const patience = 20 * time.Second

// program is a CNI plugin that notes what it is called with, and refuses the
// commands for which there is a file. What pods really get is proved over
// upstream's plugins and ours, by the tests of internal/cri and test/e2e.
const program = `#!/bin/sh
dir=$(dirname "$0")/../calls
conf=$(cat)
if [ -e "$dir/refuse-$CNI_COMMAND" ]; then
	echo '{"code": 50, "msg": "refused", "details": "'"$(cat "$dir/refuse-$CNI_COMMAND")"'"}'
	exit 1
fi
own="$dir/refuse-$(basename "$0")-$CNI_COMMAND"
if [ -e "$own" ]; then
	cat "$own"
	exit 1
fi
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","0.4.0","1.0.0","1.1.0"]}';;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"host0"},{"name":"eth0","sandbox":"/x"}],
 "ips":[{"address":"10.5.0.1/24","interface":0},{"address":"10.5.0.9/24","interface":1},{"address":"fd05::9/64","interface":1}]}';;
esac
printf '%s' "$conf" >"$dir/conf-$CNI_COMMAND"
echo "$(basename "$0") $CNI_COMMAND ${CNI_CONTAINERID:--} ${CNI_NETNS:--}" >>"$dir/log"
`

// bed is a folder of configurations with plugins, and the host of the pods.
type bed struct {
	t    *testing.T
	dir  string
	log  buffer
	m    *netplugin.Manager
	ns   *netns.Handle
	path map[string]string
	port map[string][]netplugin.PortMapping
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newBed(t *testing.T, plugins ...string) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), ns: netnstest.New(t), path: map[string]string{}, port: map[string][]netplugin.PortMapping{}}
	for _, d := range []string{"conf", "bin", "calls"} {
		require.NoError(t, os.Mkdir(filepath.Join(b.dir, d), 0o755))
	}
	for _, p := range plugins {
		b.install(p)
	}
	b.start()
	return b
}

func (b *bed) install(plugin string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "bin", plugin), []byte(program), 0o755))
}

// start is the beginning of a process's life.
func (b *bed) start() {
	b.t.Helper()
	b.m = netplugin.NewManager(b.plugin("conf", 0), nil)
	require.NoError(b.t, b.m.Init(b.t.Context(), b, netplugin.Settings{}))
}

func (b *bed) plugin(conf string, period time.Duration) *cni.Plugin {
	return cni.New(cni.Config{
		ConfDir: filepath.Join(b.dir, conf), BinDirs: []string{filepath.Join(b.dir, "nowhere"), filepath.Join(b.dir, "bin")},
		CacheDir: filepath.Join(b.dir, "cache"), StateDir: filepath.Join(b.dir, "state"), SyncPeriod: period,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
}

func (b *bed) GetNetNS(_ context.Context, sandbox string) (string, error) {
	if p := b.path[sandbox]; p != "" {
		return p, nil
	}
	return "", netplugin.ErrNoNetns
}

func (b *bed) GetPodPortMappings(sandbox string) []netplugin.PortMapping { return b.port[sandbox] }

func (b *bed) pod(id string) netplugin.Pod {
	b.t.Helper()
	b.path[id] = netnstest.Bind(b.t, b.ns)
	return netplugin.Pod{Sandbox: id, Namespace: "default", Name: "pod-" + id, UID: "uid-" + id}
}

func (b *bed) conf(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "conf", name), []byte(text), 0o600))
}

func (b *bed) drop(names ...string) {
	b.t.Helper()
	for _, n := range names {
		require.NoError(b.t, os.Remove(filepath.Join(b.dir, n)))
	}
}

func (b *bed) refuse(command, why string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "calls", "refuse-"+command), []byte(why), 0o600))
}

// refuseOf has one plugin refuse a command.
func (b *bed) refuseOf(plugin, command string, code uint, why string) {
	b.t.Helper()
	text, err := json.Marshal(types.Error{Code: code, Msg: why})
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, "calls", "refuse-"+plugin+"-"+command), text, 0o600))
}

// calls are those since the last time, without VERSION and STATUS.
func (b *bed) calls() (out []string) {
	b.t.Helper()
	path := filepath.Join(b.dir, "calls/log")
	all, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(b.t, err)
	require.NoError(b.t, os.Remove(path))
	for line := range strings.Lines(string(all)) {
		if line = strings.TrimSpace(line); !strings.Contains(line, " VERSION ") && !strings.Contains(line, " STATUS ") {
			out = append(out, line)
		}
	}
	return out
}

// told is what the last call of a command had on its standard input.
func (b *bed) told(command string) (conf map[string]any) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "calls", "conf-"+command))
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text, &conf))
	return conf
}

func (b *bed) up(pod netplugin.Pod) {
	b.t.Helper()
	require.NoError(b.t, b.m.SetUpPod(b.t.Context(), pod))
}

func (b *bed) down(pod netplugin.Pod) {
	b.t.Helper()
	require.NoError(b.t, b.m.TearDownPod(b.t.Context(), pod))
}

// list is a configuration of one plugin, with more keys for it.
func list(version, name, plugin, more string) string {
	return `{"cniVersion":"` + version + `","name":"` + name + `","plugins":[{"type":"` + plugin + `"` + more + `}]}`
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
