package exec_test

import (
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/driver/exec"
)

// refusals are configurations that upstream's plugins refuse in ADD and DEL
// alike, with what the message says of them.
var refusals = []struct {
	plugin string
	code   uint
	says   []string
}{
	{`{"type":"bridge","mtu":"1500"}`, 7, []string{`plugin "bridge"`, `key "mtu": "1500" is not a whole number`}},
	{`{"type":"bridge","mtu":1500.5}`, 7, []string{`key "mtu": 1500.5`}},
	{`{"type":"bridge","MTU":"1500"}`, 7, []string{`key "MTU": "1500"`}},
	{`{"type":"bridge","mtu":-1}`, 7, []string{`key "mtu": -1`}},
	{`{"type":"bridge","bridge":5}`, 7, []string{`key "bridge": 5 is not a string`}},
	{`{"type":"bridge","ipMasq":"yes"}`, 7, []string{`key "ipMasq": "yes" is not true or false`}},
	{`{"type":"bridge","vlanTrunk":[{"id":"7"}]}`, 7, []string{`key "vlanTrunk[0].id": "7"`}},
	{`{"type":"bridge","ipam":"host-local"}`, 7, []string{`key "ipam": "host-local" is not an object`}},
	{`{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/99"}}`, 7,
		[]string{`plugin "host-local"`, `key "ipam.subnet": "10.1.0.0/99" is not a network in CIDR form`}},
	{`{"type":"bridge","ipMasq":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/99"}]]}}`, 7,
		[]string{`key "ipam.ranges[0][0].subnet": "10.1.0.0/99"`}},
	{`{"type":"bridge","ipam":{"type":"host-local"}}`, 7, []string{"no IP ranges specified"}},
	{`{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/24","rangeStart":"10.2.0.1"}}`, 7, []string{"10.2.0.1"}},
	{`{"type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/24"},"args":{"cni":{"ips":["junk"]}}}`, 7,
		[]string{`key "args.cni.ips[0]": "junk" is not an IP address`}},
	{`{"type":"bridge","ipam":{"type":"static","addresses":[{"address":"10.1.0.5"}]}}`, 7,
		[]string{`plugin "static"`, `key "ipam.addresses[0].address": "10.1.0.5"`}},
	{`{"type":"bridge","ipam":{"type":"not-there"}}`, 7, []string{`key "ipam.type"`, `plugin "not-there" is in none of`}},
	{`{"type":"bridge","ipam":{"type":"../x"}}`, 7, []string{`key "ipam.type"`, `"../x" is not a plain file name`}},
	{`{"type":"not-there"}`, 7, []string{`plugin "not-there" is in none of`}},
	{`{"type":"macvlan","mode":"sideways"}`, 7, []string{`key "mode"`, `sideways`}},
	{`{"type":"ptp","mtu":"1500"}`, 7, []string{`plugin "ptp"`, `key "mtu": "1500"`}},
	{`{"type":"tuning","sysctl":{"a":1}}`, 7, []string{`key "sysctl.a": 1 is not a string`}},
	{`{"type":"old"}`, 1, []string{`key "cniVersion": "1.1.0" is none of those that`, `["0.3.1" "1.0.0"]`}},
	{`{"type":"bridge","ipam":{"type":"old"}}`, 1, []string{`key "ipam.type"`, `"1.1.0" is none of those that`}},
	{`{"type":"bridge","ipam":{"type":"dhcp","daemonSocketPath":"SOCKET"}}`, 11, []string{"no DHCP daemon listens at SOCKET"}},
}

// proven makes the driver and the directories of these tests.
func proven(t *testing.T, plugins map[string]driver.Plugin) (d *exec.Driver, dirs []string) {
	t.Helper()
	own := script(t, "old", `[ "$CNI_COMMAND" = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.1","1.0.0"]}'; echo $CNI_COMMAND >>`+
		filepath.Join(t.TempDir(), "calls"))
	return exec.New(plugins), []string{drivertest.Programs(t, "main/bridge", "main/macvlan", "main/ptp", "ipam/host-local", "ipam/static", "meta/tuning"), own, dhcpDir(t)}
}

// dhcpDir has a program that says of itself that it is upstream's dhcp, whose
// modules the tests have not: it asks a daemon, as that does.
func dhcpDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, "plugins", "ipam", "dhcp")
	require.NoError(t, os.MkdirAll(src, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module github.com/containernetworking/plugins\n\ngo 1.26\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(src, "main.go"), []byte(`package main

import "os"

func main() {
	if os.Getenv("CNI_COMMAND") == "VERSION" {
		os.Stdout.WriteString("{\"supportedVersions\":[\"1.0.0\",\"1.1.0\"]}")
		return
	}
	os.Exit(1)
}
`), 0o600))
	cmd := osexec.Command("go", "build", "-o", filepath.Join(dir, "dhcp"), "./plugins/ipam/dhcp")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

// TestProveRefusesWhatThePluginWould: by programs and inside alike, and the
// message names network, plugin, key and value.
func TestProveRefusesWhatThePluginWould(t *testing.T) {
	_, inside := agentHost(t)
	for way, plugins := range map[string]map[string]driver.Plugin{"programs": nil, "inside": exec.Plugins(inside.Driver)} {
		d, dirs := proven(t, plugins)
		socket := filepath.Join(t.TempDir(), "dhcp.sock")
		for _, r := range refusals {
			if way == "programs" && (strings.Contains(r.plugin, "rangeStart") || strings.Contains(r.plugin, `{"type":"host-local"}`) ||
				strings.Contains(r.plugin, "sideways") || strings.Contains(r.plugin, "-1")) {
				continue // more than the type of a value: who reads it inside knows
			}
			conf := strings.ReplaceAll(`{"cniVersion":"1.1.0","name":"n","plugins":[`+r.plugin+`]}`, "SOCKET", socket)
			err := d.Prove(t.Context(), spec(core.Netns{}, call(t, conf, 0, dirs...)))
			require.Error(t, err, "%s: %s", way, conf)
			require.Equal(t, r.code, core.CodeOf(err), "%s: %s: %v", way, conf, err)
			require.ErrorContains(t, err, "network default/n: ")
			for _, words := range r.says {
				require.ErrorContains(t, err, strings.ReplaceAll(words, "SOCKET", socket), way)
			}
		}
	}
}

// TestProveLetsThrough: what can work, and what only its own program knows.
func TestProveLetsThrough(t *testing.T) {
	_, inside := agentHost(t)
	d, dirs := proven(t, exec.Plugins(inside.Driver))
	socket := filepath.Join(t.TempDir(), "dhcp.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	defer l.Close()
	own := script(t, "own", `[ "$CNI_COMMAND" = VERSION ] && exit 1; exit 0`)
	for _, plugin := range []string{
		`{"type":"bridge","mtu":1500,"bridge":"cni7","ipMasq":null,"ipam":{"type":"host-local","subnet":"10.1.0.0/24"}}`,
		`{"type":"bridge","ipMasq":true,"somebodys":{"mtu":"x"},"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24","gateway":""}]]}}`,
		`{"type":"bridge","ipam":{"type":"dhcp","daemonSocketPath":"` + socket + `"}}`,
		`{"type":"bridge","ipam":{}}`,
		`{"type":"tuning","mtu":1400,"sysctl":{"net.core.somaxconn":"500"}}`,
		`{"type":"own","mtu":"1500","bridge":5,"ipam":{"type":"within"}}`, // no upstream's: nobody knows its keys
	} {
		conf := `{"cniVersion":"1.1.0","name":"n","plugins":[` + plugin + `]}`
		require.NoError(t, d.Prove(t.Context(), spec(core.Netns{}, call(t, conf, 0, append(dirs, own)...))), plugin)
	}
}

// TestVersionIsAskedOnce: once for each file, and again for a new one.
func TestVersionIsAskedOnce(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	body := `echo $CNI_COMMAND >>` + calls + `; echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0","1.1.0"]}'`
	dir := script(t, "p", body)
	d := exec.New(nil)
	x := call(t, `{"cniVersion":"1.1.0","name":"n","plugins":[{"type":"p"}]}`, 0, dir)
	for range 3 {
		require.NoError(t, d.Prove(t.Context(), spec(core.Netns{}, x)))
	}
	said := func() string {
		raw, err := os.ReadFile(calls)
		require.NoError(t, err)
		return string(raw)
	}
	require.Equal(t, "VERSION\n", said())
	next := filepath.Join(dir, "next")
	require.NoError(t, os.WriteFile(next, []byte("#!/bin/sh\n"+strings.Replace(body, `,"1.1.0"`, "", 1)+"\n"), 0o755))
	require.NoError(t, os.Rename(next, filepath.Join(dir, "p")))
	require.Equal(t, core.CodeVersion, core.CodeOf(d.Prove(t.Context(), spec(core.Netns{}, x))))
	require.Equal(t, "VERSION\nVERSION\n", said())
}

// TestSettingsThatNoProgramKnows: what is declared of a pod and only the agent's own plugin
// can do is refused where a program is somebody's own, and that is not called.
func TestSettingsThatNoProgramKnows(t *testing.T) {
	_, inside := agentHost(t)
	_, id := pod(t)
	called := filepath.Join(t.TempDir(), "called")
	own := script(t, "macvlan", `[ "$CNI_COMMAND" = ADD ] && touch `+called+`; echo '{"cniVersion":"1.0.0"}'`)
	for _, c := range []struct {
		key, dir string
		refused  bool
	}{{`"net.fairlead.io/settings":{"vlan":7},`, own, true}, {"", own, false}, {`"net.fairlead.io/settings":{"vlan":7},`, t.TempDir(), false}} {
		s := spec(id, call(t, `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"macvlan",`+c.key+`"master":"m0"}]}`, 0, c.dir))
		err := inside.Prove(t.Context(), s)
		if !c.refused {
			require.NoError(t, err, c)
			continue
		}
		for range 2 {
			require.Equal(t, []any{core.CodeValue, core.ReasonDriverCannot}, []any{core.CodeOf(err), core.ReasonOf(err)}, "%v", err)
			_, err = inside.Attach(t.Context(), driver.Run{}, s)
		}
		require.NoFileExists(t, called)
		require.NoError(t, inside.Detach(t.Context(), driver.Run{}, s))
	}
}
