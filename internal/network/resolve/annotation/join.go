package annotation

import (
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// ReadJoin reads what a controller gave a node in the network of nodes, from the
// annotations of its Node; false where it gave nothing yet, or nothing that can be
// used. Annotations that somebody else writes beside them do not count.
func ReadJoin(notes map[string]string) (j core.Join, ok bool) {
	n := Notes{All: map[string]string{}, Provider: v1.DefaultProvider}
	for _, field := range []string{v1.FieldIP, v1.FieldMAC, v1.FieldCIDR, v1.FieldGateway, v1.FieldAllocated} {
		key := n.Key(field)
		n.All[key] = notes[key]
	}
	a, err := n.Read()
	if err != nil || !a.Allocated || a.MAC == nil || len(a.IPs) == 0 {
		return core.Join{}, false
	}
	j.MAC = a.MAC
	j.QoS, _ = ReadNodeRates(notes) // what cannot be read the controller tells
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

// ReadNodeRates reads the rates of a node's gateway from the annotations of its Node, as
// a pod's are read. Where one cannot be read there are none; the error names it.
func ReadNodeRates(notes map[string]string) (core.QoS, error) {
	n := Notes{All: map[string]string{}, Provider: v1.DefaultProvider}
	for _, field := range nodeRates {
		key := n.Key(field)
		n.All[key] = notes[key]
	}
	a, err := n.Read()
	if err != nil {
		return core.QoS{}, err
	}
	return a.QoS, nil
}

// nodeRates are the fields of a Node's annotations about its gateway's rates.
var nodeRates = []string{v1.FieldIngressRate, v1.FieldEgressRate, v1.FieldIngressBurst, v1.FieldEgressBurst}
