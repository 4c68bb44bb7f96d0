package macvlan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/hostlocal"
	"github.com/fairlead/fairlead/internal/driver/builtin/macvlan"
	"github.com/fairlead/fairlead/internal/driver/drivertest"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/tombstone"
)

const (
	four = `"ipam":{"type":"host-local","dataDir":"DATA","subnet":"10.1.2.0/24","routes":[{"dst":"0.0.0.0/0"},{"dst":"10.9.0.0/16","gw":"10.1.2.9"}]}`
	both = `"ipam":{"type":"host-local","dataDir":"DATA","ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00:1::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}`
	fix  = `"ipam":{"type":"static","addresses":[{"address":"10.1.2.5/24"},{"address":"fd00:1::5/64"}],
"routes":[{"dst":"10.9.0.0/16"},{"dst":"10.8.0.0/16","gw":"10.1.2.9","priority":7},{"dst":"10.7.0.0/16","scope":253},{"dst":"fd09::/64"}],
"dns":{"nameservers":["192.0.2.1"]}}`
)

func conf(version, more string) string {
	return `{"cniVersion":"` + version + `","name":"net","type":"macvlan",` + more + `}`
}

// likeTheProgram are configurations that both carry out.
var likeTheProgram = []struct{ name, conf, args string }{
	{"plain", conf("1.1.0", `"master":"m0",`+four), ""},
	{"master of the default route", conf("1.0.0", four), ""},
	{"both families", conf("1.0.0", `"master":"m0",`+both), ""},
	{"0.4.0", conf("0.4.0", `"master":"m0",`+both), ""},
	{"0.3.1", conf("0.3.1", `"master":"m0",`+four), ""},
	{"0.2.0", conf("0.2.0", `"master":"m0",`+four), ""},
	{"0.1.0", conf("0.1.0", `"master":"m0",`+four), ""},
	{"static, without gateway", conf("1.1.0", `"master":"m0",`+fix), ""},
	{"no addresses", conf("1.0.0", `"master":"m0"`), ""},
	{"no addresses, empty ipam", conf("1.0.0", `"master":"m0","ipam":{}`), ""},
	{"private", conf("1.0.0", `"master":"m0","mode":"private",`+four), ""},
	{"vepa", conf("1.0.0", `"master":"m0","mode":"vepa",`+four), ""},
	{"passthru", conf("1.0.0", `"master":"m0","mode":"passthru",`+four), ""},
	{"bridge", conf("1.0.0", `"master":"m0","mode":"bridge",`+four), ""},
	{"mtu", conf("1.0.0", `"master":"m0","mtu":1400,`+four), ""},
	{"bcqueuelen", conf("1.0.0", `"master":"m0","bcqueuelen":333,`+four), ""},
	{"mac", conf("1.0.0", `"master":"m0","mac":"02:00:00:00:00:07",`+four), ""},
	{"mac of CNI_ARGS", conf("1.0.0", `"master":"m0","mac":"02:00:00:00:00:08",`+four), "IgnoreUnknown=1;MAC=02:00:00:00:00:07"},
	{"mac of runtimeConfig", conf("1.0.0", `"master":"m0","capabilities":{"mac":true},"runtimeConfig":{"mac":"02:00:00:00:00:07","ips":["10.1.2.40/24"]},`+four), "IgnoreUnknown=1;MAC=02:00:00:00:00:08"},
	{"mac of args is no key of this plugin", conf("1.0.0", `"master":"m0","mac":"02:00:00:00:00:07","args":{"cni":{"mac":"02:00:00:00:00:08"}},`+four), ""},
	{"dns of the network", conf("1.0.0", `"master":"m0","dns":{"nameservers":["192.0.2.9"],"search":["x"]},`+fix), ""},
	{"route in another table", conf("1.1.0", `"master":"m0","ipam":{"type":"static","addresses":[{"address":"10.1.2.5/24"}],"routes":[{"dst":"10.8.0.0/16","table":100}]}`), ""},
	{"keys that the agent adds", conf("1.1.0", `"master":"m0","deviceID":"d","pciBusID":"d","cni.dev/attachments":[],`+four), ""},
}

// TestLikeTheProgram: the same call leaves the same and answers the same; each
// checks and removes what the other made.
func TestLikeTheProgram(t *testing.T) {
	for _, c := range likeTheProgram {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newNode(t, macvlan.Name), newNode(t, macvlan.Name)
			ours.dad, theirs.dad = c.name == "both families", c.name == "both families"
			sameAsProgram(t, ours, theirs, c.conf, c.args)
		})
	}
}

func sameAsProgram(t *testing.T, ours, theirs *node, conf, args string) {
	t.Helper()
	a, b := ours.pod("c1"), theirs.pod("c1")
	add := ours.call(a, conf, args, nil)
	require.NoError(t, ours.p.Accepts(add.Conf))
	got, err := ours.p.Add(t.Context(), add)
	require.NoError(t, err)
	want, err := theirs.program(core.Add, theirs.call(b, conf, args, nil))
	require.NoError(t, err)
	require.Equal(t, sorted(t, want), sorted(t, got))
	require.Equal(t, theirs.state(b), ours.state(a))
	require.Equal(t, theirs.held(), ours.held())

	mine, yours := ours.call(a, conf, args, got), theirs.call(b, conf, args, want)
	if v := versionOf(t, conf); v >= "0.4.0" {
		require.NoError(t, ours.p.Check(t.Context(), mine), "ours of ours")
		require.NoError(t, theirs.p.Check(t.Context(), yours), "ours of theirs")
		_, err = ours.program(core.Check, mine)
		switch {
		case strings.Contains(conf, "table"): // it looks into table main only
		case ours.kind == macvlan.NameIpvlan && !strings.Contains(conf, "master"): // it does not look for the default route's
		default:
			require.NoError(t, err, "theirs of ours")
		}
	} else {
		mine, yours = ours.call(a, conf, args, nil), theirs.call(b, conf, args, nil) // none hands prevResult on
	}
	_, err = ours.program(core.Del, mine)
	require.NoError(t, err, "theirs of ours")
	require.NoError(t, theirs.p.Del(t.Context(), yours), "ours of theirs")
	require.NoError(t, ours.p.Del(t.Context(), mine), "nothing left to remove")
	ours.requireBare(a)
	theirs.requireBare(b)
}

func versionOf(t *testing.T, conf string) string {
	var c struct{ CNIVersion string }
	require.NoError(t, json.Unmarshal([]byte(conf), &c))
	return c.CNIVersion
}

// TestRefusedAsTheProgram: an Add that fails leaves nothing, and both give the
// error the same code.
func TestRefusedAsTheProgram(t *testing.T) {
	for _, c := range []struct{ name, conf, args string }{
		{"no such master", conf("1.0.0", `"master":"nope",`+four), ""},
		{"mode", conf("1.0.0", `"master":"m0","mode":"source",`+four), ""},
		{"mtu above the master's", conf("1.0.0", `"master":"m0","mtu":9000,`+four), ""},
		{"negative mtu", conf("1.0.0", `"master":"m0","mtu":-1,`+four), ""},
		{"mac", conf("1.0.0", `"master":"m0","mac":"zz",`+four), ""},
		{"multicast mac", conf("1.0.0", `"master":"m0","mac":"01:00:00:00:00:07",`+four), ""},
		{"CNI_ARGS", conf("1.0.0", `"master":"m0",`+four), "FOO=1"},
		{"no range", conf("1.0.0", `"master":"m0","ipam":{"type":"host-local","dataDir":"DATA"}`), ""},
		{"no address", conf("1.0.0", `"master":"m0","ipam":{"type":"static"}`), ""},
		{"unreachable gateway", conf("1.0.0", `"master":"m0","ipam":{"type":"host-local","dataDir":"DATA","subnet":"10.1.2.0/24","routes":[{"dst":"10.9.0.0/16","gw":"10.3.0.1"}]}`), ""},
		{"no address for 0.2.0", conf("0.2.0", `"master":"m0"`), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := newNode(t, macvlan.Name), newNode(t, macvlan.Name)
			a, b := ours.pod("c1"), theirs.pod("c1")
			_, want := theirs.program(core.Add, theirs.call(b, c.conf, c.args, nil))
			require.Error(t, want)
			_, err := ours.p.Add(t.Context(), ours.call(a, c.conf, c.args, nil))
			require.Error(t, err)
			t.Logf("theirs: %v\nours: %v", want, err)
			drivertest.RequireCode(t, want, err)
			ours.requireBare(a)
		})
	}
}

// A name that is taken in the pod is left to whose it is.
func TestNameIsTaken(t *testing.T) {
	n := newNode(t, macvlan.Name)
	a := n.pod("c1")
	n.ip(a.ns, "link", "add", "net1", "type", "bridge")
	_, err := n.p.Add(t.Context(), n.call(a, conf("1.0.0", `"master":"m0",`+four), "", nil))
	require.ErrorIs(t, err, core.ErrExists)
	require.Equal(t, []string{"net1"}, n.links(a.ns))
	require.Empty(t, n.held())
}

// The host may have a link of the pod's name; older kernels mistake it.
func TestNameIsTakenOnTheHost(t *testing.T) {
	n := newNode(t, macvlan.Name)
	n.ip(n.host, "link", "add", "net1", "type", "bridge")
	a := n.pod("c1")
	_, err := n.p.Add(t.Context(), n.call(a, conf("1.0.0", `"master":"m0",`+four), "", nil))
	require.NoError(t, err)
	require.Contains(t, n.ip(a.ns, "-d", "link", "show", "net1"), "macvlan mode bridge")
	require.Contains(t, n.ip(n.host, "-d", "link", "show", "net1"), "bridge")
}

// failing is an IPAM plugin that gives an address and then the caller's context
// ends.
type failing struct {
	driver.Plugin
	then func()
}

func (f failing) Add(ctx context.Context, c driver.PluginCall) (json.RawMessage, error) {
	out, err := f.Plugin.Add(ctx, c)
	f.then()
	return out, err
}

// A caller that gives up half-way gets the same clearing up.
func TestCancelledHalfWay(t *testing.T) {
	n := newNode(t, macvlan.Name)
	n.dad = true
	a := n.pod("c1")
	ctx, cancel := context.WithCancel(t.Context())
	n.ipam[hostlocal.Name] = failing{hostlocal.New(), cancel}
	_, err := n.p.Add(ctx, n.call(a, conf("1.0.0", `"master":"m0",`+both), "", nil))
	require.ErrorIs(t, err, context.Canceled, "it waits for duplicate address detection")
	n.requireBare(a)
}

// An IPAM plugin that fails is not called to free anything: it holds nothing.
func TestIPAMThatFails(t *testing.T) {
	n := newNode(t, macvlan.Name)
	a := n.pod("c1")
	c := n.call(a, conf("1.0.0", `"master":"m0",`+four), "", nil)
	var ops []core.Op
	c.IPAM = func(_ context.Context, op core.Op) (json.RawMessage, error) {
		ops = append(ops, op)
		return nil, &core.Error{Code: 103, Msg: "none left"}
	}
	_, err := n.p.Add(t.Context(), c)
	require.Equal(t, uint(103), core.CodeOf(err))
	require.Equal(t, []core.Op{core.Add}, ops)
	n.requireBare(a)

	ops = nil
	c.IPAM = func(_ context.Context, op core.Op) (json.RawMessage, error) {
		ops = append(ops, op)
		return json.RawMessage(`{"cniVersion":"1.0.0","ips":[]}`), nil
	}
	_, err = n.p.Add(t.Context(), c)
	require.ErrorContains(t, err, "missing IP config")
	require.Equal(t, []core.Op{core.Add, core.Del}, ops)
	n.requireBare(a)
}

// The namespace is gone: addresses are freed all the same.
func TestDelWithoutNamespace(t *testing.T) {
	n := newNode(t, macvlan.Name)
	for _, gone := range []func(p pod, c *driver.PluginCall){
		func(_ pod, c *driver.PluginCall) { c.Netns = core.Netns{} },
		func(p pod, _ *driver.PluginCall) { netnstest.Unbind(t, p.id.Path) },
	} {
		a := n.pod("c1")
		c := n.call(a, conf("1.0.0", `"master":"m0",`+four), "", nil)
		_, err := n.p.Add(t.Context(), c)
		require.NoError(t, err)
		require.Len(t, n.held(), 1)
		gone(a, &c)
		require.NoError(t, n.p.Del(t.Context(), c))
		require.Empty(t, n.held())
	}
}

// TestDelFreesLast: an address is free when nobody has it any more, and the name
// of the link too; what an earlier Del left aside goes with the next.
func TestDelFreesLast(t *testing.T) {
	for _, mode := range []string{"bridge", "passthru"} {
		n := newNode(t, macvlan.Name)
		a := n.pod("c1")
		c := n.call(a, conf("1.0.0", `"master":"m0","mode":"`+mode+`",`+four), "", nil)
		ipam, there := c.IPAM, "the address is not freed"
		c.IPAM = func(ctx context.Context, op core.Op) (json.RawMessage, error) {
			if op == core.Del {
				there = n.ip(a.ns, "-4", "-br", "addr", "show", "up", "scope", "global")
			}
			return ipam(ctx, op)
		}
		for range 2 {
			_, err := n.p.Add(t.Context(), c)
			require.NoError(t, err, "the name is free, and a master that only one can have")
			require.NoError(t, n.p.Del(t.Context(), c))
			require.Empty(t, there)
		}
		n.requireBare(a)
		n.ip(n.host, "link", "add", "link", "m0", "name", "fltomb9", "netns", netnstest.Path(a.ns), "group", fmt.Sprint(tombstone.Group), "type", "macvlan")
		require.Equal(t, []string{"fltomb9"}, n.links(a.ns))
		require.NoError(t, n.p.Del(t.Context(), c))
		n.requireBare(a)
	}
}

// TestCheckFindsDrift: whatever is changed, ours says it, and upstream's too.
func TestCheckFindsDrift(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(n *node, p pod)
	}{
		{"address", func(n *node, p pod) { n.ip(p.ns, "addr", "del", "10.1.2.2/24", "dev", "net1") }},
		{"route", func(n *node, p pod) { n.ip(p.ns, "route", "del", "10.9.0.0/16") }},
		{"gateway of a route", func(n *node, p pod) { n.ip(p.ns, "route", "replace", "10.9.0.0/16", "via", "10.1.2.10") }},
		{"default route", func(n *node, p pod) { n.ip(p.ns, "route", "del", "default") }},
		{"mac", func(n *node, p pod) { n.ip(p.ns, "link", "set", "net1", "address", "02:00:00:00:00:55") }},
		{"mode", func(n *node, p pod) { n.ip(p.ns, "link", "set", "net1", "type", "macvlan", "mode", "private") }},
		{"link", func(n *node, p pod) { n.ip(p.ns, "link", "del", "net1") }},
		{"another kind", func(n *node, p pod) {
			n.ip(p.ns, "link", "del", "net1")
			n.ip(p.ns, "link", "add", "net1", "type", "bridge")
		}},
		{"master", func(n *node, _ pod) { n.ip(n.host, "link", "set", "m0", "down", "name", "m9") }},
		{"lease", func(n *node, _ pod) { n.data = n.TempDir() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, macvlan.Name)
			a := n.pod("c1")
			cf := conf("1.0.0", `"master":"m0",`+four)
			res, err := n.p.Add(t.Context(), n.call(a, cf, "", nil))
			require.NoError(t, err)
			require.NoError(t, n.p.Check(t.Context(), n.call(a, cf, "", res)))
			c.do(n, a)
			_, err = n.program(core.Check, n.call(a, cf, "", res))
			require.Error(t, err)
			require.Error(t, n.p.Check(t.Context(), n.call(a, cf, "", res)))
		})
	}
	n := newNode(t, macvlan.Name)
	require.ErrorContains(t, n.p.Check(t.Context(), n.call(n.pod("c1"), conf("1.0.0", `"master":"m0"`), "", nil)), "prevResult")
}

// TestManyAtOnce: twenty pods get twenty addresses that reach each other.
func TestManyAtOnce(t *testing.T) {
	n := newNode(t, macvlan.Name)
	const pods = 20
	cf := conf("1.0.0", `"master":"m0",`+four)
	all, calls := make([]pod, pods), make([]driver.PluginCall, pods)
	for i := range all {
		all[i] = n.pod(fmt.Sprintf("c%d", i))
		calls[i] = n.call(all[i], cf, "", nil)
	}
	each := func(do func(i int) error) {
		errs := make([]error, pods)
		var wg sync.WaitGroup
		for i := range all {
			wg.Go(func() { errs[i] = do(i) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
	}
	results := make([]json.RawMessage, pods)
	each(func(i int) (err error) { results[i], err = n.p.Add(t.Context(), calls[i]); return err })
	require.Len(t, n.held(), pods)
	var seen []string
	for _, raw := range results {
		var r struct{ IPs []struct{ Address string } }
		require.NoError(t, json.Unmarshal(raw, &r))
		require.NotContains(t, seen, r.IPs[0].Address)
		seen = append(seen, r.IPs[0].Address)
	}
	netnstest.Do(t, all[0].ns, func() error { return ping(strings.TrimSuffix(seen[pods-1], "/24")) })
	each(func(i int) error { return n.p.Del(t.Context(), calls[i]) })
	for _, p := range all {
		n.requireBare(p)
	}
}

func TestStatusAsksForAddresses(t *testing.T) {
	n := newNode(t, macvlan.Name)
	c := n.call(n.pod("c1"), conf("1.1.0", `"master":"m0",`+four), "", nil)
	require.NoError(t, n.p.Status(t.Context(), c))
	require.NoError(t, n.p.GC(t.Context(), c))
	c.IPAM = func(context.Context, core.Op) (json.RawMessage, error) {
		return nil, &core.Error{Code: 50, Msg: "full"}
	}
	require.Equal(t, uint(50), core.CodeOf(n.p.Status(t.Context(), c)))
}

func TestAccepts(t *testing.T) {
	for keys, ok := range map[string]bool{
		`"master":"m0"`:                         true,
		`"linkInContainer":false`:               true,
		`"linkInContainer":true`:                false,
		`"promiscMode":true`:                    false,
		`"Master":"m0"`:                         false,
		`"mtu":"1400"`:                          false,
		`"ipam":{"type":"whereabouts","x":1}`:   true,
		`"runtimeConfig":{"portMappings":[{}]}`: true,
		`"args":{"cni":{}}`:                     true,
		`"net.fairlead.io/settings":{"vlan":7}`: true,
		`"net.fairlead.io/settings":{"mac":""}`: false,
	} {
		for _, p := range []*macvlan.Plugin{macvlan.New(nil, nil, nil), macvlan.NewIpvlan(nil, nil, nil)} {
			err := p.Accepts(json.RawMessage(conf("1.0.0", keys)))
			require.Equal(t, ok, err == nil, "%s: %v", keys, err)
		}
	}
	require.NoError(t, macvlan.New(nil, nil, nil).Accepts(json.RawMessage(conf("1.0.0", `"mac":"x","bcqueuelen":1`))))
	require.Error(t, macvlan.NewIpvlan(nil, nil, nil).Accepts(json.RawMessage(conf("1.0.0", `"mac":"x"`))))
	require.Error(t, macvlan.NewIpvlan(nil, nil, nil).Accepts(json.RawMessage(conf("1.0.0", `"bcqueuelen":1`))))
	vlan := macvlan.NewVLAN(nil, nil)
	for keys, ok := range map[string]bool{
		`"master":"m0","vlanId":7,"mtu":1400`: true, `"linkInContainer":true`: true, `"net.fairlead.io/settings":{"mac":"x"}`: true,
		`"mode":"bridge"`: false, `"mac":"x"`: false, `"vlanID":7`: false, `"net.fairlead.io/settings":{"vlan":7}`: false,
	} {
		require.Equal(t, ok, vlan.Accepts(json.RawMessage(conf("1.0.0", keys))) == nil, keys)
	}
}

// TestAddressOfAnother: an address that the link is to have to itself is not set where
// somebody answers for it, whose MAC the error names; nothing is left. One that nobody
// answers for is set, and an address that need not be the link's alone is not asked for.
func TestAddressOfAnother(t *testing.T) {
	t.Parallel()
	n := newNode(t, macvlan.Name)
	static := func(addr string) string {
		return `{"cniVersion":"1.0.0","name":"lan","type":"macvlan","master":"m0","mode":"bridge","ipam":{"type":"static","addresses":[{"address":"` + addr + `/24"}]}}`
	}
	add := func(container, addr string, alone ...netip.Addr) (pod, error) {
		p := n.pod(container)
		c := n.call(p, static(addr), "", nil)
		c.Alone = alone
		_, err := n.p.Add(t.Context(), c)
		return p, err
	}
	for _, addr := range []string{"10.7.0.5", "fd07::5"} {
		a := netip.MustParseAddr(addr)
		first, err := add("first"+addr, addr, a)
		require.NoError(t, err)
		second, err := add("second"+addr, addr, a)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err), err)
		require.Equal(t, core.ReasonAddressConflict, core.ReasonOf(err))
		wire := (*core.WireConflict)(nil)
		require.ErrorAs(t, err, &wire)
		require.Equal(t, a, wire.Addr)
		require.ErrorContains(t, err, strings.Fields(n.ip(first.ns, "-br", "link", "show", "net1"))[2]+" answers for address "+addr)
		require.Empty(t, n.links(second.ns))
		_, err = add("third"+addr, addr)
		require.NoError(t, err)
	}
}
