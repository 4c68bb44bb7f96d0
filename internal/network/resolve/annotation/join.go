package annotation

import (
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// ReadJoin reads what a controller gave a node in the network of nodes, from the
// annotations of its Node; false where it gave nothing yet, or nothing that can be
// used.
func ReadJoin(notes map[string]string) (j core.Join, ok bool) {
	n := Notes{All: notes, Provider: v1.DefaultProvider}
	a, err := n.Read()
	if err != nil || !a.Allocated || a.MAC == nil || len(a.IPs) == 0 {
		return core.Join{}, false
	}
	j.MAC = a.MAC
	for _, ip := range a.IPs {
		c := slices.IndexFunc(a.CIDRs, func(p netip.Prefix) bool { return p.Contains(ip) })
		g := slices.IndexFunc(a.Gateways, func(g netip.Addr) bool { return g.Is4() == ip.Is4() })
		if c < 0 || g < 0 {
			return core.Join{}, false
		}
		j.Addrs = append(j.Addrs, netip.PrefixFrom(ip, a.CIDRs[c].Bits()))
		j.Gateways = append(j.Gateways, a.Gateways[g])
	}
	return j, true
}
