//go:build vm

package fence_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/fence"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
)

// TestKernelVFFenced: a function of the emulated card, whose driver has no state of it, goes off the
// network by its link in the pod, and comes back with its address and route.
func TestKernelVFFenced(t *testing.T) {
	to, err := os.Readlink("/sys/class/net/pf0/device/virtfn0")
	require.NoError(t, err)
	v, err := sriov.At("").VF(filepath.Base(to))
	require.NoError(t, err)
	require.False(t, sriov.HasState(v))
	name, err := sriov.At("").Netdev(v.PCI)
	require.NoError(t, err)
	pod := netnstest.New(t)
	path := netnstest.Bind(t, pod)
	id, err := netns.Identify(path)
	require.NoError(t, err)
	run := func(argv ...string) string {
		t.Helper()
		out, err := exec.CommandContext(context.Background(), argv[0], argv[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", argv, out)
		return string(out)
	}
	in := func(argv ...string) string {
		t.Helper()
		return run(append([]string{"nsenter", "--net=" + path}, argv...)...)
	}
	run("ip", "link", "set", name, "netns", path)
	t.Cleanup(func() {
		in("ip", "link", "set", "net1", "down")
		in("ip", "link", "set", "net1", "name", name)
		in("ip", "link", "set", name, "netns", "1")
	})
	in("ip", "link", "set", name, "name", "net1")
	in("ip", "link", "set", "net1", "up")
	in("ip", "addr", "add", "10.9.0.3/24", "dev", "net1")
	in("ip", "route", "add", "10.20.0.0/16", "via", "10.9.0.1")

	s := core.Spec{
		Key: core.Key{Container: "c", IfName: "net1"}, Netns: id,
		Exec: &core.Exec{Type: "sriov", Conf: json.RawMessage(`{"deviceID":"` + v.PCI + `"}`)},
	}
	links := fence.Kernel{Inside: func(core.Spec) bool { return true }, VFs: sriov.At("")}
	require.True(t, links.Can(s))
	routes := in("ip", "route")
	saved, err := links.Look(s)
	require.NoError(t, err)
	require.Equal(t, sriov.LinkAuto, *saved.VFState)
	require.NoError(t, links.Down(s, saved))
	require.NotContains(t, in("ip", "link", "show", "net1"), ",UP")
	require.NoError(t, links.Up(s, saved))
	require.Contains(t, in("ip", "link", "show", "net1"), ",UP")
	require.Contains(t, in("ip", "addr", "show", "net1"), "10.9.0.3/24")
	require.Equal(t, routes, in("ip", "route"))
}
