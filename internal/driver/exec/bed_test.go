package exec_test

import (
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// upstream builds the plugins of containernetworking/plugins that the tests
// call, as pinned in tools/go.mod, where `make` keeps them too.
var upstream = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".cache", "bin")
	args := []string{"-C", filepath.Join(root, "tools"), "build", "-trimpath", "-ldflags", "-s -w", "-o", dir + "/"}
	for _, p := range []string{"main/bridge", "main/macvlan", "main/loopback", "ipam/host-local", "ipam/static", "meta/portmap", "meta/tuning"} {
		args = append(args, "github.com/containernetworking/plugins/plugins/"+p)
	}
	cmd := osexec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

func upstreamDir(t testing.TB) string {
	t.Helper()
	dir, err := upstream()
	require.NoError(t, err)
	return dir
}

// script installs a shell script as a plugin and gives its directory.
func script(t testing.TB, name, body string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return dir
}

// pod is a namespace that a path leads to, as a runtime makes it.
func pod(t testing.TB) (*netns.Handle, core.Netns) {
	t.Helper()
	ns := netnstest.New(t)
	id, err := netns.Identify(netnstest.Bind(t, ns))
	require.NoError(t, err)
	return ns, id
}

// chain parses a network and gives the Exec of its plugin number i.
func call(t testing.TB, conf string, i int, dirs ...string) *core.Exec {
	t.Helper()
	c, err := cniconf.ParseChain([]byte(conf), "")
	require.NoError(t, err)
	raw, err := cniconf.PluginConf(c, c.Plugins[i], cniconf.Inject{RuntimeConfig: map[string]json.RawMessage{
		"mac": json.RawMessage(`"02:00:00:00:00:07"`),
	}})
	require.NoError(t, err)
	return &core.Exec{
		Type: c.Plugins[i].Type, CNIVersion: c.CNIVersion, Conf: raw, Path: dirs,
		Args: "K8S_POD_NAME=p;IgnoreUnknown=1", Network: c.Name, NoCheck: c.DisableCheck, DisableGC: c.DisableGC,
	}
}

func spec(ns core.Netns, x *core.Exec) core.Spec {
	return core.Spec{Driver: "exec", Network: "default/" + x.Network, Key: core.Key{Container: "c1", IfName: "net1"}, Netns: ns, Exec: x}
}

// ip runs iproute2 inside ns: the tests look with other eyes than the driver.
func ip(t testing.TB, ns *netns.Handle, args ...string) string {
	t.Helper()
	var out []byte
	netnstest.Do(t, ns, func() (err error) {
		out, err = osexec.Command("ip", args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return err
	})
	return string(out)
}

func linkNames(t testing.TB, ns *netns.Handle) (names []string) {
	t.Helper()
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer c.Close()
	all, err := c.Links()
	require.NoError(t, err)
	for _, l := range all {
		names = append(names, l.Name)
	}
	return names
}
