package macvlan_test

import (
	"encoding/json"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/macvlan"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// ipvlanNode is a node whose kernel has ipvlan.
func ipvlanNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t, macvlan.NameIpvlan)
	var out []byte
	err := n.host.Do(func() (err error) {
		out, err = osexec.Command("ip", "link", "add", "probe", "link", "m0", "type", "ipvlan", "mode", "l2").CombinedOutput()
		return err
	})
	if err != nil && strings.Contains(string(out), "Unknown device type") {
		t.Skip("this kernel has no ipvlan")
	}
	require.NoError(t, err, string(out))
	n.ip(n.host, "link", "del", "probe")
	return n
}

func ipvlan(more string) string {
	return strings.ReplaceAll(conf("1.0.0", more), `"macvlan"`, `"ipvlan"`)
}

func TestIpvlanLikeTheProgram(t *testing.T) {
	for _, c := range []struct{ name, conf string }{
		{"plain", ipvlan(`"master":"m0",` + four)},
		{"master of the default route", ipvlan(four)},
		{"both families", ipvlan(`"master":"m0",` + both)},
		{"l2", ipvlan(`"master":"m0","mode":"l2",` + four)},
		{"l3", ipvlan(`"master":"m0","mode":"l3",` + four)},
		{"l3s", ipvlan(`"master":"m0","mode":"l3s",` + four)},
		{"mtu", ipvlan(`"master":"m0","mtu":1400,` + four)},
		{"negative mtu", ipvlan(`"master":"m0","mtu":-1,` + four)},
		{"static", ipvlan(`"master":"m0",` + fix)},
	} {
		t.Run(c.name, func(t *testing.T) {
			sameAsProgram(t, ipvlanNode(t), newNode(t, macvlan.NameIpvlan), c.conf, "")
		})
	}
}

// chained is what an earlier plugin of the chain answered.
const chained = `{"cniVersion":"1.0.0","interfaces":[{"name":"m0"}],"ips":[{"address":"10.1.2.7/24","gateway":"10.1.2.1"}],"routes":[{"dst":"10.9.0.0/16"}]}`

// Master and addresses of an earlier plugin.
func TestIpvlanInAChain(t *testing.T) {
	ours, theirs := ipvlanNode(t), newNode(t, macvlan.NameIpvlan)
	a, b := ours.pod("c1"), theirs.pod("c1")
	cf := ipvlan(`"mode":"l2"`)
	got, err := ours.p.Add(t.Context(), ours.call(a, cf, "", json.RawMessage(chained)))
	require.NoError(t, err)
	want, err := theirs.program(core.Add, theirs.call(b, cf, "", json.RawMessage(chained)))
	require.NoError(t, err)
	require.Equal(t, sorted(t, want), sorted(t, got))
	require.Equal(t, theirs.state(b), ours.state(a))
	require.NoError(t, ours.p.Del(t.Context(), ours.call(a, cf, "", json.RawMessage(chained))))
	ours.requireBare(a)
}

// What can be seen on every kernel: the master is found, and the kernel is
// asked for an ipvlan; where it has none nothing is left.
func TestIpvlanFindsItsMaster(t *testing.T) {
	n := newNode(t, macvlan.NameIpvlan)
	for _, c := range []struct{ conf, prev, want string }{
		{ipvlan(`"master":"nope",` + four), "", "failed to lookup master"},
		{ipvlan(four), `{"cniVersion":"1.0.0","interfaces":[{"name":"a"},{"name":"b"}]}`, "chained master failure"},
		{ipvlan(four), `{"cniVersion":"1.0.0","interfaces":[{"name":"nope"}]}`, "failed to lookup master"},
		{ipvlan(`"master":"m0","mode":"bridge",` + four), "", "unknown ipvlan mode"},
	} {
		a := n.pod("c1")
		call := n.call(a, c.conf, "", json.RawMessage(c.prev))
		_, want := n.program(core.Add, call)
		require.Error(t, want)
		_, err := n.p.Add(t.Context(), call)
		require.ErrorContains(t, err, c.want)
		n.requireBare(a)
	}
	for _, c := range []struct{ conf, prev string }{{ipvlan(`"master":"m0",` + four), ""}, {ipvlan(four), ""}, {ipvlan(`"mode":"l3"`), chained}} {
		a := n.pod("c1")
		call := n.call(a, c.conf, "", json.RawMessage(c.prev))
		_, want := n.program(core.Add, call)
		require.NoError(t, n.p.Del(t.Context(), call))
		_, err := n.p.Add(t.Context(), call)
		require.Equal(t, want == nil, err == nil, "%v, %v", want, err)
		require.NoError(t, n.p.Del(t.Context(), call))
		netnstest.Unbind(t, a.id.Path)
		n.requireBare(a)
	}
}

// TestIpvlanFreesItsAddresses: the next pod has the addresses of one whose link the
// kernel has not deleted yet.
func TestIpvlanFreesItsAddresses(t *testing.T) {
	n := ipvlanNode(t)
	a, b := n.pod("c1"), n.pod("c2")
	cf := ipvlan(`"master":"m0",` + fix)
	_, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
	require.NoError(t, err)
	conn, err := rtnl.Open(a.ns)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, macvlan.BuryLink(conn, "net1"))
	require.Contains(t, n.ip(a.ns, "-d", "link"), "ipvlan", "it is still there")
	_, err = n.p.Add(t.Context(), n.call(b, cf, "", nil))
	require.NoError(t, err)
	for _, p := range []pod{a, b} {
		require.NoError(t, n.p.Del(t.Context(), n.call(p, cf, "", nil)))
		n.requireBare(p)
	}
}
