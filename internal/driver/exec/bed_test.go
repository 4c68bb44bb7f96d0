package exec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// upstreamDir has the plugins of containernetworking/plugins that the tests call.
func upstreamDir(t testing.TB) string {
	t.Helper()
	return drivertest.Programs(t, "main/bridge", "main/macvlan", "main/loopback", "ipam/host-local", "ipam/static", "meta/portmap", "meta/tuning")
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
	return inside.Run(t, ns, "ip", args...)
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
