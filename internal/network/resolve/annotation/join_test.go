package annotation

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestReadJoin: what a controller writes on a Node; half of it is nothing.
func TestReadJoin(t *testing.T) {
	notes := map[string]string{
		"ovn.kubernetes.io/ip_address": "100.64.0.2,fd00:100:64::2", "ovn.kubernetes.io/cidr": "100.64.0.0/16,fd00:100:64::/112",
		"ovn.kubernetes.io/gateway": "100.64.0.1,fd00:100:64::1", "ovn.kubernetes.io/mac_address": "02:00:00:00:00:07",
		"ovn.kubernetes.io/logical_switch": "join", "ovn.kubernetes.io/port_name": "node-a", "ovn.kubernetes.io/allocated": "true",
	}
	// What somebody else writes beside it costs no node its way to the pods.
	notes["ovn.kubernetes.io/ingress_rate"], notes["ovn.kubernetes.io/routes"] = "10M", "junk"
	j, ok := ReadJoin(notes)
	require.True(t, ok)
	require.Equal(t, core.Join{
		MAC:      core.MAC{2, 0, 0, 0, 0, 7},
		Addrs:    []netip.Prefix{netip.MustParsePrefix("100.64.0.2/16"), netip.MustParsePrefix("fd00:100:64::2/112")},
		Gateways: []netip.Addr{netip.MustParseAddr("100.64.0.1"), netip.MustParseAddr("fd00:100:64::1")},
	}, j)
	notes["ovn.kubernetes.io/ingress_rate"], notes["ovn.kubernetes.io/egress_rate"], notes["ovn.kubernetes.io/egress_burst"] = "10", "5", "2"
	j, ok = ReadJoin(notes)
	require.True(t, ok)
	require.Equal(t, core.QoS{IngressMbps: 10, EgressMbps: 5, EgressBurstMbit: 2}, j.QoS)
	for _, field := range []string{"ip_address", "cidr", "gateway", "mac_address", "allocated"} {
		for _, value := range []string{"", "junk"} {
			less := maps.Clone(notes)
			less["ovn.kubernetes.io/"+field] = value
			j, ok := ReadJoin(less)
			require.False(t, ok, field)
			require.Zero(t, j)
		}
	}
}
