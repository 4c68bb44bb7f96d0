package record

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func via(gw string) core.Route {
	a := netip.MustParseAddr(gw)
	return core.Route{Dst: core.Anywhere(a), GW: a}
}

func key(ifName string) core.Key { return core.Key{Container: "c", IfName: ifName} }

// nic is one of ours: its spec and link.
func nic(ifName, addr, gw string, routes ...core.Route) (core.Spec, core.Link) {
	s := core.Spec{
		Key: key(ifName), Driver: "ovs", Network: "n-" + ifName, Request: ifName,
		NIC: &core.NICSpec{
			Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, Gateways: addrs(gw), Settings: core.Settings{PodSide: core.PodSide{Routes: routes}},
			OVS: &core.OVSPort{HostIf: "h-" + ifName},
		},
	}
	if ifName == "eth0" {
		s.Default, s.Request = true, ""
	}
	n := s.NIC
	return s, core.Link{HostIf: n.OVS.HostIf, IfName: ifName, Addrs: n.Addrs, Gateways: n.Gateways, PodSide: core.PodSide{MAC: core.MAC{2, 0, 0, 0, 0, 1}, Routes: routes}}
}

// foreign is one of a plugin's, with a default route through gw.
func foreign(ifName, addr, gw string) (core.Spec, core.Link) {
	s := core.Spec{Key: key(ifName), Driver: "exec", Network: "n-" + ifName, Request: ifName, Exec: &core.Exec{Type: "p", CNIVersion: "1.0.0"}}
	if ifName == "eth0" {
		s.Default, s.Request = true, ""
	}
	result := fmt.Sprintf(`{"cniVersion":"1.0.0","interfaces":[{"name":%q,"sandbox":"/x"}],
		"ips":[{"address":%q,"gateway":%q,"interface":0}],"routes":[{"dst":"0.0.0.0/0","gw":%q}]}`, ifName, addr, gw, gw)
	return s, core.Link{IfName: ifName, CNIResult: []byte(result), Addrs: []netip.Prefix{netip.MustParsePrefix(addr)}, PodSide: core.PodSide{Routes: []core.Route{via(gw)}}}
}

func step(ifName string, gws ...string) (core.Spec, core.Link) {
	l := core.Link{IfName: ifName, Gateways: addrs(gws...)}
	for _, gw := range gws {
		l.Routes = append(l.Routes, via(gw))
	}
	return core.Spec{Key: key(ifName), Driver: core.DriverDefroute, Network: "n-" + ifName, Request: ifName, DefaultRoute: &core.DefaultRoute{Gateways: addrs(gws...)}}, l
}

type pair func() (core.Spec, core.Link)

func of(s core.Spec, l core.Link) pair { return func() (core.Spec, core.Link) { return s, l } }

func build(t *testing.T, pairs ...pair) core.Record {
	t.Helper()
	r := core.Record{Key: key("eth0"), Phase: core.Added, Netns: core.Netns{Path: "/x"}}
	for _, p := range pairs {
		s, l := p()
		r.Specs, r.Links = append(r.Specs, s), append(r.Links, l)
		if s.Kind() == core.KindNIC {
			r.Leases = append(r.Leases, core.Lease{Subnet: "s", Owner: core.Owner{Key: s.Key}, IPs: []netip.Addr{s.NIC.Addrs[0].Addr()}})
		}
	}
	whole, err := complete(r)
	require.NoError(t, err)
	return whole
}

func joined(t *testing.T, r core.Record, pairs ...pair) core.Record {
	t.Helper()
	var p core.Part
	var links []core.Link
	for _, pair := range pairs {
		s, l := pair()
		p.Specs, links = append(p.Specs, s), append(links, l)
	}
	out, err := Join(r, p, links)
	require.NoError(t, err)
	return out
}

// ways tells who has the default route of IPv4, by the status.
func ways(r core.Record) (out []string) {
	for _, n := range r.Statuses {
		for _, gw := range n.Gateway {
			out = append(out, n.Interface+" "+gw)
		}
	}
	return out
}

// toldDefault is whether the foreign plugin of a spec is told of a default route.
func toldDefault(t *testing.T, s core.Spec) bool {
	t.Helper()
	var res struct{ Routes []any }
	require.NoError(t, json.Unmarshal(s.Exec.Prev, &res))
	return len(res.Routes) > 0
}

// TestDefaultRouteGoesAndComesBack: between NICs of ours, and with a foreign
// default network whose plugin is told the truth at each time.
func TestDefaultRouteGoesAndComesBack(t *testing.T) {
	before := build(t, of(nic("eth0", "10.16.0.2/16", "10.16.0.1", via("10.16.0.1"))))
	require.Equal(t, []string{"eth0 10.16.0.1"}, ways(before))
	require.Equal(t, addrs("10.16.0.1"), defaultroute.Owners(before, addrs("10.20.0.1"))[0].DefaultRoute.Gateways)
	require.Empty(t, defaultroute.Owners(before, addrs("fd00::1")), "another family")
	require.Len(t, defaultroute.Owners(before, nil), 1, "not known yet which")

	with := joined(t, before, of(nic("net1", "10.20.0.2/24", "10.20.0.1")), of(step("net1", "10.20.0.1")))
	require.Equal(t, []string{"net1 10.20.0.1"}, ways(with))
	require.Empty(t, with.Specs[0].NIC.Routes, "not eth0's any more")
	require.Equal(t, []core.Route{via("10.20.0.1")}, with.Specs[1].NIC.Routes)
	require.Equal(t, []core.Route{via("10.16.0.1")}, before.Specs[0].NIC.Routes, "what was is not changed")

	again := joined(t, with, of(nic("net2", "10.30.0.2/24", "10.30.0.1")), of(step("net2", "10.30.0.1")))
	require.Equal(t, []string{"net2 10.30.0.1"}, ways(again))
	require.Len(t, again.Specs, 4, "the step that was overruled is gone")

	back, err := Leave(again, "net2")
	require.NoError(t, err)
	require.Equal(t, []string{"net1 10.20.0.1"}, ways(back), "that it was taken from, whose annotation asks for it")
	part := back.Parts[0]
	require.Equal(t, []string{"net2", "net2"}, []string{part.Specs[0].Key.IfName, part.Specs[1].Key.IfName})
	require.Equal(t, 2, part.Begun)
	require.Equal(t, "net1", part.Restore[0].Key.IfName)
	require.Equal(t, addrs("10.20.0.1"), part.Restore[0].DefaultRoute.Gateways)
	back, err = Leave(back, "net1")
	require.NoError(t, err)
	require.Equal(t, []string{"eth0 10.16.0.1"}, ways(back))
	require.Empty(t, back.Displaced)
	first, err := Leave(again, "net1")
	require.NoError(t, err)
	last, err := Leave(first, "net2")
	require.NoError(t, err)
	require.Equal(t, []string{"eth0 10.16.0.1"}, ways(last), "net1 has gone before")

	plain := build(t, of(foreign("eth0", "10.1.0.2/16", "10.1.0.1")))
	require.True(t, toldDefault(t, plain.Specs[0]))
	taken := joined(t, plain, of(nic("net1", "10.20.0.2/24", "10.20.0.1")), of(step("net1", "10.20.0.1")))
	require.Equal(t, []string{"net1 10.20.0.1"}, ways(taken))
	require.False(t, toldDefault(t, taken.Specs[0]))
	back, err = Leave(taken, "net1")
	require.NoError(t, err)
	require.Equal(t, []string{"eth0 10.1.0.1"}, ways(back))
	require.True(t, toldDefault(t, back.Specs[0]))
	require.Equal(t, addrs("10.1.0.1"), back.Parts[0].Restore[0].DefaultRoute.Gateways)
	require.Equal(t, core.KindDelegate, back.Specs[0].Kind())
	require.Nil(t, back.Specs[0].NIC)

	// The ADD gave it away: the plugin's own result still says that it has one.
	given := build(t, of(foreign("eth0", "10.1.0.2/16", "10.1.0.1")), of(foreign("net1", "10.2.0.2/16", "10.2.0.1")), of(step("net1", "10.2.0.1")))
	require.Equal(t, []string{"net1 10.2.0.1"}, ways(given))
	back, err = Leave(given, "net1")
	require.NoError(t, err)
	require.Equal(t, "eth0", back.Parts[0].Restore[0].Key.IfName)
	require.Equal(t, []string{"eth0 10.1.0.1"}, ways(back))
}

// TestLeaveTakesWhatBelongsToIt: specs, links, leases and how it came.
func TestLeaveTakesWhatBelongsToIt(t *testing.T) {
	r := build(t, of(nic("eth0", "10.16.0.2/16", "10.16.0.1")), of(nic("net1", "10.20.0.2/24", "10.20.0.1")),
		of(foreign("net2", "10.1.0.2/16", "10.1.0.1")))
	r.Plugs = []core.Plug{{IfName: "net1"}, {IfName: "net2"}}
	out, err := Leave(r, "net1")
	require.NoError(t, err)
	require.Len(t, out.Specs, 2)
	require.Len(t, out.Links, 2)
	require.Len(t, out.Statuses, 2)
	require.Equal(t, []core.Plug{{IfName: "net2"}}, out.Plugs)
	require.Equal(t, "net1", out.Parts[0].Leases[0].Owner.Key.IfName)
	require.Equal(t, "eth0", out.Leases[0].Owner.Key.IfName)
	require.Len(t, AllSpecs(out), 3)
	require.Len(t, AllLeases(out), 2)
	require.Len(t, r.Specs, 3, "what was is not changed")

	Fold(&out)
	require.Len(t, out.Specs, 3)
	require.Equal(t, 3, out.Begun)
	require.Len(t, out.Leases, 2)
	require.Empty(t, out.Parts)
	require.Equal(t, "net1", out.Specs[2].Key.IfName, "what came last goes first")

	_, err = Leave(core.Record{Specs: r.Specs, Links: r.Links[:1]}, "net1")
	require.Error(t, err, "an unfinished record")
}

// TestFoldLeavesOutWhatWasNotBegun: a foreign plugin that never ran gets no DEL.
func TestFoldLeavesOutWhatWasNotBegun(t *testing.T) {
	eth0, _ := nic("eth0", "10.16.0.2/16", "10.16.0.1")
	net1, _ := foreign("net1", "10.1.0.2/16", "10.1.0.1")
	r := core.Record{Specs: []core.Spec{eth0}, Begun: 1, Parts: []core.Part{{Specs: []core.Spec{net1}}}}
	Fold(&r)
	require.Equal(t, []core.Spec{eth0}, r.Specs)
}

// TestPresent: what the annotation asked for, with the devices it has.
func TestPresent(t *testing.T) {
	r := build(t, of(nic("eth0", "10.16.0.2/16", "10.16.0.1")), of(foreign("net1", "10.1.0.2/16", "10.1.0.1")), of(step("net1", "10.1.0.1")))
	r.Specs[1].Exec.Conf = []byte(`{"deviceID":"0000:00:01.0"}`)
	require.Equal(t, []resolve.Present{{Request: "net1", Network: "n-net1", IfName: "net1", Devices: []string{"0000:00:01.0"}}}, Present(r))
}
