package external

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/source/declare"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// outside is an external gateway of both families.
var outside = declare.External{
	Nodes: []string{"n2", "n1"}, Networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.254/24"), netip.MustParsePrefix("2001:db8::fe/64")}, Gateways: addrs("192.0.2.1", "2001:db8::1"),
}

// TestAddressesOfPods: an address that is none, or another's, is told the pod that asks
// for it; who had one before keeps it, and those that share one do.
func TestAddressesOfPods(t *testing.T) {
	t.Parallel()
	pod := func(name, eip, snat string, ips ...string) Pod {
		return Pod{Object: object.Object{Key: object.KindPod.Named("ns", name)}, IPs: addrs(ips...), EIP: eip, SNAT: snat}
	}
	_, faults := rows(outside, nil, nil, []Pod{
		pod("good", "192.0.2.50, 2001:db8::50", "", "10.0.0.2", "fd00::2"),
		pod("both", "192.0.2.51", "192.0.2.60", "10.0.0.3"), // eip does both
		pod("shares", "", "192.0.2.61", "10.0.0.4"), pod("shares-too", "", "192.0.2.61", "10.0.0.5"),
		pod("twice", "192.0.2.50", "", "10.0.0.6"), pod("taken", "", "192.0.2.50", "10.0.0.7"), pod("shared", "192.0.2.61", "", "10.0.0.8"),
		pod("router", "192.0.2.254", "", "10.0.0.9"), pod("gateway", "", "192.0.2.1", "10.0.0.10"), pod("none", "x", "", "10.0.0.11"),
		pod("family", "2001:db8::51", "", "10.0.0.12"), pod("unserved", "192.0.2.52", ""), pod("more", "", "192.0.2.62,192.0.2.63", "10.0.0.13"), pod("node", "192.0.2.77", "", "10.0.0.14"),
		{Object: object.Object{Key: object.KindPod.Named("ns", "far")}, EIP: "192.0.2.78", Elsewhere: "Subnet s is in Vpc red"},
	}, map[netip.Addr]bool{netip.MustParseAddr("192.0.2.77"): true})
	var said []string
	for _, f := range faults {
		said = append(said, f.of.Name+": "+f.text)
	}
	require.Equal(t, []string{
		"twice: annotation ovn.kubernetes.io/eip: 192.0.2.50 is another pod's already",
		"taken: annotation ovn.kubernetes.io/snat: 192.0.2.50 is another pod's already",
		"shared: annotation ovn.kubernetes.io/eip: 192.0.2.61 is another pod's already",
		"router: annotation ovn.kubernetes.io/eip: 192.0.2.254 is a router's",
		"gateway: annotation ovn.kubernetes.io/snat: 192.0.2.1 is a router's",
		`none: annotation ovn.kubernetes.io/eip: "x" is not an address`,
		"family: annotation ovn.kubernetes.io/eip: 2001:db8::51 is of a family that the pod or the external gateway has not",
		"unserved: annotation ovn.kubernetes.io/eip: 192.0.2.52 is of a family that the pod or the external gateway has not",
		"more: annotation ovn.kubernetes.io/snat: 192.0.2.63 is a second one of its family",
		"node: annotation ovn.kubernetes.io/eip: 192.0.2.77 is a node's",
		"far: annotations ovn.kubernetes.io/eip and snat: Subnet s is in Vpc red",
	}, said)
}
