package macvlan_test

import (
	"errors"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/macvlan"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// vlanNode is a node whose kernel has VLAN links.
func vlanNode(t *testing.T, kind string) *node {
	t.Helper()
	n := newNode(t, kind)
	var out []byte
	err := n.host.Do(func() (err error) {
		out, err = osexec.Command("ip", "link", "add", "probe", "link", "m0", "type", "vlan", "id", "4094").CombinedOutput()
		return err
	})
	if err != nil && strings.Contains(string(out), "Unknown device type") {
		t.Skip("this kernel has no VLAN links")
	}
	require.NoError(t, err, string(out))
	n.ip(n.host, "link", "del", "probe")
	return n
}

func vlan(version, more string) string {
	return strings.ReplaceAll(conf(version, more), `"macvlan"`, `"vlan"`)
}

func TestVLANLikeTheProgram(t *testing.T) {
	for _, c := range []struct{ name, conf string }{
		{"plain", vlan("1.1.0", `"master":"m0","vlanId":7,`+four)},
		{"0.4.0, both families", vlan("0.4.0", `"master":"m0","vlanId":7,`+both)},
		{"0.2.0", vlan("0.2.0", `"master":"m0","vlanId":7,`+four)},
		{"mtu", vlan("1.0.0", `"master":"m0","vlanId":4094,"mtu":1400,`+four)},
		{"no tag but a priority", vlan("1.0.0", `"master":"m0",`+four)},
		{"static", vlan("1.0.0", `"master":"m0","vlanId":7,`+fix)},
	} {
		t.Run(c.name, func(t *testing.T) {
			sameAsProgram(t, vlanNode(t, macvlan.NameVLAN), newNode(t, macvlan.NameVLAN), c.conf, "")
		})
	}
}

// A master in the pod, and each refusal: the same codes, and nothing is left.
func TestVLANRefusedAsTheProgram(t *testing.T) {
	ours, theirs := vlanNode(t, macvlan.NameVLAN), newNode(t, macvlan.NameVLAN)
	for _, conf := range []string{
		vlan("1.0.0", `"vlanId":7,`+four), vlan("1.0.0", `"master":"nope","vlanId":7,`+four), vlan("1.0.0", `"master":"m0","vlanId":4095,`+four),
		vlan("1.0.0", `"master":"m0","vlanId":-1,`+four), vlan("1.0.0", `"master":"m0","vlanId":7,"mtu":9000,`+four), vlan("1.0.0", `"master":"m0","vlanId":7`),
		vlan("1.0.0", `"master":"m0","vlanId":7,"ipam":{"type":"static"}`), vlan("1.0.0", `"master":"m0","vlanId":7,"linkInContainer":true,`+four),
	} {
		a, b := ours.pod("c1"), theirs.pod("c1")
		_, want := theirs.program(core.Add, theirs.call(b, conf, "", nil))
		require.Error(t, want)
		_, err := ours.p.Add(t.Context(), ours.call(a, conf, "", nil))
		require.Error(t, err)
		t.Logf("theirs: %v\nours: %v", want, err)
		drivertest.RequireCode(t, want, err)
		ours.requireBare(a)
	}
	a := ours.pod("c1")
	ours.ip(a.ns, "link", "add", "in0", "type", "veth", "peer", "name", "in1")
	ours.ip(a.ns, "link", "set", "in0", "up")
	ours.ip(a.ns, "link", "set", "in1", "up")
	call := ours.call(a, vlan("1.0.0", `"master":"in0","vlanId":7,"linkInContainer":true,`+four), "", nil)
	out, err := ours.p.Add(t.Context(), call)
	require.NoError(t, err)
	require.Contains(t, ours.ip(a.ns, "-d", "link", "show", "net1"), "net1@in0")
	require.NoError(t, ours.p.Check(t.Context(), ours.call(a, string(call.Conf), "", out)))
	require.NoError(t, ours.p.Del(t.Context(), call))
	require.ElementsMatch(t, []string{"in0", "in1"}, ours.links(a.ns))
}

// TestVLANIsTaken: the kernel has each VLAN of a master once; who has it keeps it, and what
// is told is not that the interface is there. CHECK sees id and MTU that somebody changed,
// and a declared MAC is the interface's.
func TestVLANIsTaken(t *testing.T) {
	n := vlanNode(t, macvlan.NameVLAN)
	a, b := n.pod("c1"), n.pod("c2")
	cf := vlan("1.0.0", `"master":"m0","vlanId":7,"mtu":1400,"net.fairlead.io/settings":{"mac":"02:00:00:00:00:07"},`+four)
	out, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
	require.NoError(t, err)
	require.Contains(t, n.ip(a.ns, "link", "show", "net1"), "02:00:00:00:00:07")
	_, err = n.p.Add(t.Context(), n.call(b, cf, "", nil))
	require.ErrorContains(t, err, "the master has VLAN 7 already")
	require.False(t, errors.Is(err, core.ErrExists), "the interface is not there")
	require.NoError(t, n.p.Del(t.Context(), n.call(b, cf, "", nil)))
	require.NoError(t, n.p.Check(t.Context(), n.call(a, cf, "", out)))
	n.ip(a.ns, "link", "set", "net1", "mtu", "1300")
	require.ErrorContains(t, n.p.Check(t.Context(), n.call(a, cf, "", out)), "its MTU is 1300, not 1400")
	require.NoError(t, n.p.Del(t.Context(), n.call(a, cf, "", nil)))
	n.requireBare(a)
}

// tagged is a configuration with a declared VLAN.
func tagged(kind, more string) string {
	return strings.ReplaceAll(conf("1.0.0", `"master":"m0","net.fairlead.io/settings":{"vlan":7},`+more), `"macvlan"`, `"`+kind+`"`)
}

// TestVLANOfAMaster: pods with a declared VLAN stand on one link of the master, which comes
// with the first and goes with the last; packets have the tag; an agent that died half-way
// leaves nothing behind.
func TestVLANOfAMaster(t *testing.T) {
	for _, kind := range []string{macvlan.Name, macvlan.NameIpvlan} {
		t.Run(kind, func(t *testing.T) {
			n := vlanNode(t, kind)
			a, b := n.pod("c1"), n.pod("c2")
			cf := tagged(kind, four)
			out, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
			require.NoError(t, err)
			require.NoError(t, n.p.Check(t.Context(), n.call(a, cf, "", out)))
			require.Contains(t, n.ip(n.host, "-d", "link", "show", "m0.7"), "vlan protocol 802.1Q id 7")
			_, err = n.p.Add(t.Context(), n.call(b, cf, "", nil))
			require.NoError(t, err)

			wire := n.pod("wire")
			n.ip(n.host, "link", "add", "w7", "link", "m1", "netns", netnstest.Path(wire.ns), "type", "vlan", "id", "7") // the cable's other end, in that VLAN
			n.ip(wire.ns, "addr", "add", "10.1.2.200/24", "dev", "w7")
			n.ip(wire.ns, "link", "set", "w7", "up")
			netnstest.Do(t, a.ns, func() error { return ping("10.1.2.200") })
			t.Run("CHECK sees that the VLAN is down", func(t *testing.T) {
				n.ip(n.host, "link", "set", "m0.7", "down")
				require.ErrorContains(t, n.p.Check(t.Context(), n.call(a, cf, "", out)), "VLAN 7 of m0 is down")
				n.ip(n.host, "link", "set", "m0.7", "up")
			})
			_, err = n.p.Add(t.Context(), n.call(a, cf, "", nil))
			require.ErrorIs(t, err, core.ErrExists)
			require.NoError(t, n.p.Del(t.Context(), n.call(a, cf, "", nil)))
			require.Contains(t, n.links(n.host), "m0.7", "another pod stands on it")
			require.NoError(t, n.p.Del(t.Context(), n.call(a, cf, "", nil)))
			require.NoError(t, n.p.Del(t.Context(), n.call(b, cf, "", nil)))
			n.requireBare(a)
			n.requireBare(b)
			n.noMarks()
		})
	}
}

// TestVLANThatWasThere: a link of the VLAN that somebody else made is used, under whatever
// name, and left.
func TestVLANThatWasThere(t *testing.T) {
	n := vlanNode(t, macvlan.Name)
	n.ip(n.host, "link", "add", "storage", "link", "m0", "up", "type", "vlan", "id", "7")
	n.ip(n.host, "link", "add", "m0.8", "type", "bridge") // a name that another link has
	a := n.pod("c1")
	for _, cf := range []string{tagged("macvlan", four), strings.Replace(tagged("macvlan", four), `"vlan":7`, `"vlan":8`, 1)} {
		_, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
		require.NoError(t, err)
		require.NoError(t, n.p.Del(t.Context(), n.call(a, cf, "", nil)))
		require.ElementsMatch(t, []string{"m0", "m1", "storage", "m0.8"}, n.links(n.host))
	}
	n.noMarks()
}

// TestVLANThatOthersUse: a link that somebody has put on ours keeps it, until the last pod
// after that link.
func TestVLANThatOthersUse(t *testing.T) {
	n := vlanNode(t, macvlan.Name)
	a := n.pod("c1")
	cf := tagged("macvlan", four)
	_, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
	require.NoError(t, err)
	n.ip(n.host, "link", "add", "vm0", "link", "m0.7", "type", "macvlan")
	require.NoError(t, n.p.Del(t.Context(), n.call(a, cf, "", nil)))
	require.ElementsMatch(t, []string{"m0", "m1", "m0.7", "vm0"}, n.links(n.host))
	n.noMarks()
	n.ip(n.host, "link", "del", "vm0")
	_, err = n.p.Add(t.Context(), n.call(a, cf, "", nil))
	require.NoError(t, err)
	require.NoError(t, n.p.Del(t.Context(), n.call(a, cf, "", nil)))
	require.ElementsMatch(t, []string{"m0", "m1"}, n.links(n.host))
}

// TestVLANOfAFailedAdd: nothing is left of it, nor after a Del that comes without the namespace.
func TestVLANOfAFailedAdd(t *testing.T) {
	n := vlanNode(t, macvlan.Name)
	a := n.pod("c1")
	for _, more := range []string{`"mode":"sideways",` + four, `"mac":"01:00:00:00:00:07",` + four, `"ipam":{"type":"static"}`, `"master":"nope",` + four} {
		_, err := n.p.Add(t.Context(), n.call(a, tagged("macvlan", more), "", nil))
		require.Error(t, err)
		n.requireBare(a)
		n.noMarks()
	}
	cf := tagged("macvlan", four)
	_, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
	require.NoError(t, err)
	gone := n.call(a, cf, "", nil)
	gone.Netns = core.Netns{}
	require.NoError(t, n.p.Del(t.Context(), gone))
	n.requireBare(a)
	n.noMarks()
}
