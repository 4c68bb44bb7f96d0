package upkeep

import (
	"github.com/fairlead/fairlead/internal/core"
)

// Ways are those by which NICs of underlay Subnets under OVN leave the node, each once: that
// of the Subnet, and where it has none any more that with which the NIC was made.
func Ways(records []core.Record, subnets []core.Subnet) (out []core.Way) {
	now := map[string]core.Way{}
	for _, s := range subnets {
		now[s.Name] = core.Way{Network: s.Underlay, VLAN: s.VLAN}
	}
	seen := map[core.Way]bool{}
	for _, r := range records {
		for _, s := range r.Specs {
			if s.NIC == nil || s.NIC.OVS == nil {
				continue
			}
			w := now[s.NIC.Subnet]
			if w.Network == "" {
				w = s.NIC.OVS.Way
			}
			if w.Network != "" && !seen[w] {
				seen[w] = true
				out = append(out, w)
			}
		}
	}
	return out
}
