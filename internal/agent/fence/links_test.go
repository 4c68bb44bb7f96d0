package fence_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/fence"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/sriov"
	"github.com/fairlead/fairlead/internal/testbed"
)

// TestLinkOfAPod: the link in the pod goes down and comes back with its addresses, of which the
// kernel forgets those of IPv6, and its routes, of which it forgets all. One that is gone is
// success.
func TestLinkOfAPod(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	p := n.NewPod("bank/db")
	p.Run("ip", "link", "add", "net1", "type", "veth", "peer", "name", "far")
	p.Run("ip", "link", "set", "far", "up")
	p.Run("ip", "link", "set", "net1", "up")
	p.Run("ip", "addr", "add", "10.9.0.3/24", "dev", "net1")
	p.Run("ip", "addr", "add", "fd00:9::3/64", "dev", "net1", "nodad")
	p.Run("ip", "route", "add", "10.20.0.0/16", "via", "10.9.0.1", "mtu", "1400")
	p.Run("ip", "-6", "route", "add", "fd00:20::/64", "via", "fd00:9::1")
	boot, err := netns.BootID()
	require.NoError(t, err)
	s := core.Spec{
		Key: core.Key{Container: p.ContainerID, IfName: "net1"}, Netns: core.Netns{Path: p.NetnsPath(), BootID: boot},
		Claims: []core.Claim{{Addr: netip.MustParseAddr("10.9.0.3")}},
		Exec:   &core.Exec{Type: "macvlan"},
	}
	links := fence.Kernel{Inside: func(core.Spec) bool { return true }}
	require.True(t, links.Can(s))
	state := func() string {
		return p.Run("ip", "-br", "link", "show", "net1") + p.Run("ip", "route") + p.Run("ip", "-6", "route", "show", "fd00:20::/64") + p.Run("ip", "-br", "addr", "show", "net1", "scope", "global")
	}
	before := state()
	saved, err := links.Look(s)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, links.Down(s, saved))
	}
	require.NotContains(t, p.Run("ip", "link", "show", "net1"), ",UP")
	require.NotContains(t, state(), "10.20.0.0/16")
	for range 2 {
		require.NoError(t, links.Up(s, saved))
	}
	require.Equal(t, before, state())
	p.Run("ip", "link", "del", "net1")
	require.NoError(t, links.Down(s, saved))
	require.NoError(t, links.Up(s, saved))

	// Whatever it is called meanwhile, it is the one that has what is leased, and later the one that was found.
	for _, claim := range []core.Claim{{Addr: netip.MustParseAddr("fd00:9::4")}, {MAC: core.MAC{2, 0, 0, 9, 0, 3}}} {
		s.Claims = []core.Claim{claim}
		p.Run("ip", "link", "add", "mine", "address", "02:00:00:09:00:03", "type", "veth", "peer", "name", "near")
		p.Run("ip", "link", "set", "near", "up")
		p.Run("ip", "link", "set", "mine", "up")
		p.Run("ip", "addr", "add", "fd00:9::4/64", "dev", "mine", "nodad")
		saved, err := links.Look(s)
		require.NoError(t, err)
		require.NoError(t, links.Down(s, saved))
		require.NotContains(t, p.Run("ip", "link", "show", "mine"), ",UP")
		require.Contains(t, p.Run("ip", "link", "show", "near"), ",UP", "another one")
		p.Run("ip", "link", "set", "mine", "name", "hidden") // the kernel has forgotten its IPv6 addresses
		p.Run("ip", "link", "set", "hidden", "up")
		require.NoError(t, links.Down(s, saved))
		require.NotContains(t, p.Run("ip", "link", "show", "hidden"), ",UP")
		require.NoError(t, links.Up(s, saved))
		require.Contains(t, p.Run("ip", "link", "show", "hidden"), ",UP")
		require.Contains(t, p.Run("ip", "addr", "show", "hidden"), "fd00:9::4/64")
		p.Run("ip", "link", "del", "hidden")
	}

	foreign := s
	foreign.Exec = &core.Exec{Type: "somebodys"}
	require.False(t, links.Can(foreign), "which links it made is not known")
	require.False(t, fence.Kernel{Inside: func(core.Spec) bool { return false }}.Can(s))
}

// TestVFWhosePhysicalOneFails: what the physical function cannot be told, for whatever reason,
// the link in the pod is, and its addresses are known when it comes back.
func TestVFWhosePhysicalOneFails(t *testing.T) {
	t.Parallel()
	const pf, vf = "0000:01:00.0", "0000:01:10.0"
	root := t.TempDir()
	devices := filepath.Join(root, "bus/pci/devices")
	for _, dir := range []string{pf + "/net/nobody0", vf + "/net/net1"} {
		require.NoError(t, os.MkdirAll(filepath.Join(devices, dir), 0o755))
	}
	for link, to := range map[string]string{pf + "/virtfn0": "../" + vf, vf + "/physfn": "../" + pf, vf + "/driver": "../../drivers/igbvf"} {
		require.NoError(t, os.Symlink(to, filepath.Join(devices, link)))
	}
	p := testbed.New(t).NewPod("bank/db")
	p.Run("ip", "link", "add", "net1", "type", "veth", "peer", "name", "far")
	p.Run("ip", "link", "set", "net1", "up")
	p.Run("ip", "addr", "add", "10.9.0.3/24", "dev", "net1")
	boot, err := netns.BootID()
	require.NoError(t, err)
	s := core.Spec{
		Key: core.Key{Container: p.ContainerID, IfName: "net1"}, Netns: core.Netns{Path: p.NetnsPath(), BootID: boot},
		Exec: &core.Exec{Type: "sriov", Conf: json.RawMessage(`{"deviceID":"` + vf + `"}`)},
	}
	links := fence.Kernel{Inside: func(core.Spec) bool { return true }, VFs: sriov.At(root)}
	saved, err := links.Look(s)
	require.NoError(t, err)
	require.Len(t, saved.Addrs, 1)
	require.NoError(t, links.Down(s, saved))
	require.NotContains(t, p.Run("ip", "link", "show", "net1"), ",UP")
	require.Error(t, links.Up(s, saved), "whether its state is what it was is not known")
}
