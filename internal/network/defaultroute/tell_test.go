package defaultroute

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestGatewaysThatPluginsTold: default routes before the gateways of addresses,
// of this network alone; the last plugin's word counts.
func TestGatewaysThatPluginsTold(t *testing.T) {
	gw := netip.MustParseAddr
	route := func(dst, via string) core.Route { return core.Route{Dst: netip.MustParsePrefix(dst), GW: gw(via)} }
	net1, net2 := core.Key{Container: "c", IfName: "net1"}, core.Key{Container: "c", IfName: "net2"}
	rec := core.Record{
		Specs: []core.Spec{{Key: net1, Network: "a"}, {Key: net1, Network: "a"}, {Key: net2, Network: "b"}},
		Links: []core.Link{
			{Gateways: []netip.Addr{gw("10.0.0.9")}, PodSide: core.PodSide{Routes: []core.Route{route("0.0.0.0/0", "10.0.0.1"), route("10.9.0.0/16", "10.0.0.7"), route("::/0", "fd00::1")}}},
			{},
			{Gateways: []netip.Addr{gw("10.2.0.1")}},
		},
	}
	for key, want := range map[core.Key]string{net1: "[10.0.0.1 fd00::1]", net2: "[10.2.0.1]"} {
		s := core.Spec{Driver: "defroute", Key: key, Network: map[core.Key]string{net1: "a", net2: "b"}[key], DefaultRoute: &core.DefaultRoute{}}
		with := rec
		with.Specs = append(slices.Clone(rec.Specs), s)
		require.NoError(t, Tell(&with, len(rec.Specs)))
		require.Equal(t, want, fmt.Sprint(with.Specs[len(rec.Specs)].DefaultRoute.Gateways))
	}
	none := core.Spec{Driver: "defroute", Key: net1, Network: "b", DefaultRoute: &core.DefaultRoute{}}
	rec.Specs = append(rec.Specs, none)
	require.Equal(t, core.CodeValue, core.CodeOf(Tell(&rec, len(rec.Specs)-1)))
}
