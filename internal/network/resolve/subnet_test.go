package resolve

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestSubnetOfSeveral: of the Subnets of a namespace it is the one that has the addresses
// asked for, else the first of the lowest rank; one that an annotation names stays it.
func TestSubnetOfSeveral(t *testing.T) {
	w := standard()
	for i, name := range []string{"ns-a", "ns-b", "ns-c"} {
		c := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 50, byte(i), 0}), 24)
		w.subnets = append(w.subnets, core.Subnet{Name: name, Provider: "ovn", Namespaces: []string{"default"}, CIDRs: []netip.Prefix{c}, Gateways: []netip.Addr{c.Addr().Next()}})
	}
	full := map[string]int{"ns-a": 2, "ns-b": 1, "ns-c": 1}
	rank := func(s core.Subnet, _ core.Family) int { return full[s.Name] }
	for _, c := range []struct {
		key, value, want string
		rank             func(core.Subnet, core.Family) int
	}{
		{"", "", "ns-a", nil}, {"", "", "ns-b", rank},
		{"ovn.kubernetes.io/ip_address", "10.50.2.9", "ns-c", rank}, {"ovn.kubernetes.io/ip_address", "10.50.2.9", "ns-c", nil},
		{ipPool, "10.50.2.9;10.50.2.10", "ns-c", rank}, {"ovn.kubernetes.io/logical_switch", "ns-a", "ns-a", rank},
	} {
		w.pods["default/p"] = &Pod{Pod: core.Pod{Namespace: "default", Name: "p"}, Annotations: map[string]string{c.key: c.value}}
		req := request()
		req.Pod.Name = "p"
		wants, err := Resolve(t.Context(), w, Input{Request: req, Rank: c.rank})
		require.NoError(t, err, c)
		require.Equal(t, c.want, wants[0].Steps[0].NIC.Subnet.Name, c)
	}
}
