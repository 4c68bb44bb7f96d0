package manifest

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNetworks: each pair of networks that overlap is refused by name, in both
// families, and so is what is no network; all faults are told at once.
func TestNetworks(t *testing.T) {
	there := Cluster{
		Nodes:    map[string][]netip.Addr{"n1": {netip.MustParseAddr("192.168.1.7"), netip.MustParseAddr("fd00:1::7")}, "n2": nil, "n3": nil, "n4": nil},
		Subnets:  map[string][]netip.Prefix{"old": {netip.MustParsePrefix("10.50.0.0/16")}, "join": {netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd00:100:64::/112")}},
		Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/112")},
	}
	for _, c := range []struct{ pods, join, services, want string }{
		{"10.40.0.0/16,fd00:10:40::/112", "", "", ""},
		{"", "", "10.96.0.0/12", ""},
		{"10.40.0.0/16", "10.40.3.0/24", "", "ovn.podCIDR 10.40.0.0/16 overlaps ovn.joinCIDR 10.40.3.0/24"},
		{"fd00:10:40::/48", "100.64.0.0/16,fd00:10:40::/112", "", "ovn.podCIDR fd00:10:40::/48 overlaps ovn.joinCIDR fd00:10:40::/112"},
		{"10.100.0.0/16", "", "", "ovn.podCIDR 10.100.0.0/16 overlaps the API server's network of Services 10.96.0.0/12"},
		{"10.40.0.0/16", "10.97.0.0/24", "", "ovn.joinCIDR 10.97.0.0/24 overlaps the API server's network of Services 10.96.0.0/12"},
		{"10.96.0.0/12", "", "10.96.0.0/12", "ovn.podCIDR 10.96.0.0/12 overlaps ovn.serviceCIDR 10.96.0.0/12"},
		{"", "", "10.0.0.0/24", "ovn.serviceCIDR 10.0.0.0/24: the API server gives Services addresses of 10.96.0.0/12, fd00:10:96::/112"},
		{"192.168.0.0/16", "", "", "ovn.podCIDR 192.168.0.0/16 has the address 192.168.1.7 of node n1"},
		{"fd00:1::/64", "", "", "ovn.podCIDR fd00:1::/64 has the address fd00:1::7 of node n1"},
		{"10.50.7.0/24", "", "", "ovn.podCIDR 10.50.7.0/24 overlaps 10.50.0.0/16 of Subnet old"},
		{"", "100.64.0.0/17,fd00:100:64::/112", "", "ovn.joinCIDR 100.64.0.0/17 overlaps 100.64.0.0/16 of Subnet join"},
		{"10.40.0.0/16,fd00:10:40::/112", "100.65.0.0/16", "", "ovn.podCIDR fd00:10:40::/112: ovn.joinCIDR has no network of that family"},
		{"", "100.70.0.0/30", "", "ovn.joinCIDR 100.70.0.0/30 has 1 addresses for 4 nodes"},
		{"10.40.0.1/16", "", "", "ovn.podCIDR: 10.40.0.1/16 has bits set behind its prefix length; the network is 10.40.0.0/16"},
		{"10.40.0.0/16,10.41.0.0/16", "", "", "ovn.podCIDR: 10.41.0.0/16 is the second network of one family"},
		{"0.0.0.0/0", "", "", "ovn.podCIDR: 0.0.0.0/0 is no range for addresses"},
		{"ten", "", "", `ovn.podCIDR: "ten" is not a network in CIDR form`},
	} {
		v, err := Defaults()
		require.NoError(t, err)
		for _, set := range []string{"ovn.enabled=true", "ovn.podCIDR=" + c.pods, "ovn.joinCIDR=" + c.join, "ovn.serviceCIDR=" + c.services} {
			require.NoError(t, v.Set(set))
		}
		err = v.CheckNetworks(there)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.NoError(t, v.Set("ovn.enabled=false"))
		require.NoError(t, v.CheckNetworks(there), "without OVN nothing is made of them")
	}
}
