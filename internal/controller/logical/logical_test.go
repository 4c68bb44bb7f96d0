package logical_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
)

func subnet(name, v4, v6 string) logical.Subnet {
	n := logical.Subnet{Subnet: core.Subnet{Name: name, Vpc: v1.DefaultVpc}}
	for _, c := range []string{v4, v6} {
		p := netip.MustParsePrefix(c)
		n.CIDRs = append(n.CIDRs, p)
		n.Gateways = append(n.Gateways, p.Addr().Next())
	}
	return n
}

func TestDefaultRoutes(t *testing.T) {
	require.Equal(t, []logical.Route{
		{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Nexthop: netip.MustParseAddr("100.64.0.1")},
		{Prefix: netip.MustParsePrefix("::/0"), Nexthop: netip.MustParseAddr("fd00:100:64::1")},
	}, logical.DefaultRoutes(subnet("join", "100.64.0.0/16", "fd00:100:64::/112").Subnet))
}

// TestReadVpc: every wrong value is named, and so is every field that is set and
// not carried out.
func TestReadVpc(t *testing.T) {
	v, undone, err := logical.ReadVpc("red", v1.VpcSpec{
		StaticRoutes: []v1.StaticRoute{
			{CIDR: "10.1.0.7/16", NextHopIP: "10.0.0.1", Policy: v1.PolicySrc, RouteTable: "t", ECMPMode: "ecmp_symmetric_reply"},
			{CIDR: "10.2.0.9", NextHopIP: "10.0.0.1"}, {CIDR: "10.2.0.9", NextHopIP: "10.0.0.1", BfdID: "x"},
		},
		PolicyRoutes: []v1.PolicyRoute{
			{Priority: 7, Match: "ip4", Action: v1.RouteReroute, NextHopIP: "10.0.0.1, 10.0.0.2"}, {Match: "ip4.source == 10.0.0.1", Action: v1.RouteDrop},
		},
		DefaultSubnet: "s", Namespaces: []string{"n"}, EnableBfd: true, ExtraExternalSubnets: []string{"e"}, DynamicRouting: []byte("{}"),
	})
	require.NoError(t, err)
	require.Equal(t, []string{"spec.staticRoutes[2].bfdId",
		`spec.policyRoutes[1].match: "ip4.source" stands where a field or a constant should`, "spec.extraExternalSubnets", "spec.enableBfd", "spec.dynamicRouting"}, undone)
	require.Equal(t, []logical.Route{
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Nexthop: netip.MustParseAddr("10.0.0.1"), Source: true, Table: "t", Symmetric: true},
		{Prefix: netip.MustParsePrefix("10.2.0.9/32"), Nexthop: netip.MustParseAddr("10.0.0.1")},
	}, v.Routes)
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, v.Policies[0].Nexthops)

	_, _, err = logical.ReadVpc("red", v1.VpcSpec{
		StaticRoutes: []v1.StaticRoute{{CIDR: "x", NextHopIP: "10.0.0.1"}, {CIDR: "10.0.0.0/8", NextHopIP: "fd00::1"}, {CIDR: "10.0.0.0/8", NextHopIP: "10.0.0.1", Policy: "best"}},
		PolicyRoutes: []v1.PolicyRoute{{Action: v1.RouteReroute}, {Action: "fly"}, {Action: v1.RouteReroute, NextHopIP: "y"}, {Priority: 40000, Action: v1.RouteAllow}},
		VpcPeerings:  []v1.VpcPeering{{RemoteVpc: "blue", LocalConnectIP: "169.254.0.1"}, {RemoteVpc: "red", LocalConnectIP: "169.254.0.1/30"}},
	})
	for _, path := range []string{
		"staticRoutes[0].cidr", "staticRoutes[1].nextHopIP", "staticRoutes[2].policy", "policyRoutes[0].nextHopIP", "policyRoutes[1].action",
		"policyRoutes[2].nextHopIP", "policyRoutes[3].priority", "vpcPeerings[0].localConnectIP", "vpcPeerings[1].remoteVpc",
	} {
		require.ErrorContains(t, err, "spec."+path)
	}
}
