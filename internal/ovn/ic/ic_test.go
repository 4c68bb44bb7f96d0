package ic_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn/ic"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestShared: the first who claims a zone's name has it, and takes out what is the zone's and
// nothing else.
func TestShared(t *testing.T) {
	t.Parallel()
	bed := ovn.NewShared(t, testbed.Bare(t), "")
	d := ic.Databases{NB: bed.NB(), SB: bed.SB()}
	look := func() ic.State {
		t.Helper()
		s, err := ic.Look(t.Context(), d)
		require.NoError(t, err)
		return s
	}
	require.False(t, look().Made)
	for _, owner := range []string{"one", "two", "one"} {
		require.NoError(t, ic.Claim(t.Context(), d, "az1", owner))
	}
	require.NoError(t, ic.Claim(t.Context(), d, "az2", "two"))
	now := look()
	require.True(t, now.Made)
	require.Equal(t, map[string]string{"az1": "one", "az2": "two"}, now.Owners)
	require.Equal(t, "[169.254.100.0/24 fe80:a9fe:64::/112]", text(now.Networks))

	for i, zone := range []string{"az1", "az2"} { // as ovn-ic does
		n := string(rune('1' + i))
		bed.Sbctl("--id=@z", "create", "Availability_Zone", "name="+zone,
			"--", "--id=@e", "create", "Encap", "type=geneve", "ip=192.0.2."+n, "gateway_name=gw"+n,
			"--", "create", "Gateway", "name=gw"+n, "availability_zone=@z", "encaps=@e",
			"--", "create", "Port_Binding", "logical_port=ts-"+zone, "transit_switch=ts", "availability_zone=@z", "tunnel_key="+n,
			`address="00:00:00:00:00:0`+n+` 169.254.100.`+n+`/24 fe80:a9fe:64::`+n+`/112"`,
			"--", "create", "Route", "transit_switch=ts", "availability_zone=@z", "ip_prefix=10."+n+".0.1/16", "nexthop=169.254.100."+n, "origin=connected")
	}
	bed.Sbctl("create", "Datapath_Binding", "transit_switch=ts", "tunnel_key=16711682")
	now = look()
	require.ElementsMatch(t, []string{"az1", "az2"}, now.Zones)
	require.Equal(t, 16711682, now.Key)
	require.ElementsMatch(t, []ic.Gateway{{Zone: "az1", Name: "gw1"}, {Zone: "az2", Name: "gw2"}}, now.Gateways)
	require.ElementsMatch(t, []ic.Route{
		{Zone: "az1", Prefix: netip.MustParsePrefix("10.1.0.0/16"), Nexthop: netip.MustParseAddr("169.254.100.1")},
		{Zone: "az2", Prefix: netip.MustParsePrefix("10.2.0.0/16"), Nexthop: netip.MustParseAddr("169.254.100.2")},
	}, now.Routes)
	require.Len(t, now.Ports, 2)
	for _, p := range now.Ports {
		require.Equal(t, map[string]string{"ts-az1": "az1 [169.254.100.1/24 fe80:a9fe:64::1/112]", "ts-az2": "az2 [169.254.100.2/24 fe80:a9fe:64::2/112]"}[p.Name], p.Zone+" "+text(p.Networks))
	}

	found, err := ic.Forget(t.Context(), d, "az1", "two")
	require.NoError(t, err)
	require.False(t, found, "it is another's")
	require.Len(t, look().Zones, 2)
	for _, want := range []bool{true, false, false} {
		found, err = ic.Forget(t.Context(), d, "az1", "one")
		require.NoError(t, err)
		require.Equal(t, want, found)
	}
	now = look()
	require.Equal(t, "az2", now.Zones[0])
	require.Equal(t, map[string]string{"az2": "two"}, now.Owners)
	require.Len(t, now.Routes, 1)
	require.Len(t, now.Ports, 1)
	require.Len(t, now.Gateways, 1)

	_, err = ic.Look(t.Context(), ic.Databases{NB: d.NB, SB: "unix:/nowhere"})
	require.ErrorIs(t, err, core.ErrUnavailable)
}

func text(list []netip.Prefix) string { return fmt.Sprint(list) }
