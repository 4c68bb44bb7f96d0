package interconnect

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn/ic"
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func port(zone string, networks ...string) ic.Port {
	p := ic.Port{Zone: zone, Name: "ts-" + zone}
	for _, n := range networks {
		p.Networks = append(p.Networks, prefix(n))
	}
	return p
}

// TestAddresses: a zone keeps its address, takes none that another has, and of two that took
// one at the same moment one moves.
func TestAddresses(t *testing.T) {
	t.Parallel()
	n := prefix("169.254.100.0/24")
	of := func(zone string, ports ...ic.Port) string {
		t.Helper()
		a, err := address(zone, n, ports)
		require.NoError(t, err)
		require.Equal(t, n, a.Masked())
		return a.Addr().String()
	}
	free := of("az1")
	require.Equal(t, free, of("az1"), "it follows from the name")
	require.NotEqual(t, free, of("az1", port("az2", free+"/24")))
	require.Equal(t, "169.254.100.7", of("az1", port("az1", "169.254.100.7/24"), port("az2", "169.254.100.8/24")))
	both := []ic.Port{port("az1", "169.254.100.7/24"), port("az2", "169.254.100.7/24")}
	require.Equal(t, "169.254.100.7", of("az1", both...))
	require.NotEqual(t, "169.254.100.7", of("az2", both...))

	six, err := address("az1", prefix("fe80:a9fe:64::/112"), nil)
	require.NoError(t, err)
	require.True(t, prefix("fe80:a9fe:64::/112").Contains(six.Addr()))
	_, err = address("az1", prefix("192.0.2.0/30"), []ic.Port{port("a", "192.0.2.1/30"), port("b", "192.0.2.2/30")})
	require.ErrorIs(t, err, core.ErrExhausted)
	for _, small := range []string{"192.0.2.0/31", "192.0.2.0/32"} {
		_, err = address("az1", prefix(small), nil)
		require.ErrorIs(t, err, core.ErrExhausted)
	}
}

// TestDenied: of IPv6 nothing is denied by which OVN 23.03 would tell no network of pods either.
func TestDenied(t *testing.T) {
	t.Parallel()
	nodes := objecttest.Shelf[object.Node]{"/n": {IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}}}
	p := &pass{Keeper: New(Config{World: object.World{Readers: object.Readers{Nodes: nodes}}}), outside: map[string]string{
		"enable-external-gw": "true", "external-gw-nic": "eth1", "nic-ip": "198.51.100.9/24", "external-gw-addr": "198.51.100.1",
	}}
	closed := []netip.Prefix{prefix("100.64.0.0/16"), prefix("fd00:100:64::/112")}
	both := []string{"100.64.0.0/16", "192.0.2.1/32", "2001:db8::1/128", "198.51.100.0/24"}
	require.Equal(t, both, p.deny(map[netip.Prefix]string{prefix("10.16.0.0/16"): "web", prefix("fd00:10:16::/112"): "web"}, closed))
	require.Equal(t, slices.Insert(slices.Clone(both), 1, "fd00:100:64::/112"), p.deny(map[netip.Prefix]string{prefix("fd00:10:16::/64"): "web"}, closed))
}

// TestLearned: neither what this cluster has itself, or a part of it, nor a default route, nor
// what is behind no address of the transit switch.
func TestLearned(t *testing.T) {
	t.Parallel()
	route := func(zone, to, by string) ic.Route {
		return ic.Route{Zone: zone, Prefix: prefix(to), Nexthop: netip.MustParseAddr(by)}
	}
	now := ic.State{Networks: []netip.Prefix{prefix("169.254.100.0/24")}, Routes: []ic.Route{
		route("az2", "10.2.0.0/16", "169.254.100.2"), route("az2", "10.0.0.0/8", "169.254.100.2"),
		route("az1", "10.9.0.0/16", "169.254.100.1"), route("az2", "10.1.0.0/16", "169.254.100.2"), route("az2", "10.1.7.0/24", "169.254.100.2"),
		route("az2", "0.0.0.0/0", "169.254.100.2"), route("az2", "10.3.0.0/16", "192.0.2.9"), route("az2", "100.64.3.0/24", "169.254.100.2"),
	}}
	p := &pass{Keeper: New(Config{})}
	got := p.learned("az1", now, map[netip.Prefix]string{prefix("10.1.0.0/16"): "web"}, []netip.Prefix{prefix("100.64.0.0/16")})
	require.Equal(t, now.Routes[:2], got)
	require.Len(t, p.said, 3)
}
