package book

import "github.com/fairlead/fairlead/internal/core"

// Gathering collects leases of which no two have an address or a port. The zero value
// has none.
type Gathering struct {
	Leases []core.Lease
	taken  map[string]core.Owner // by Subnet and address or MAC, and by port
}

// Add takes a lease in; of one that claims what another has it gives that
// other.
func (g *Gathering) Add(l core.Lease) (by core.Owner, ok bool) {
	keys := []string{"port " + l.Owner.Key.IfName}
	for _, ip := range l.IPs {
		keys = append(keys, l.Subnet+" "+ip.String())
	}
	if len(l.MAC) > 0 {
		keys = append(keys, l.Subnet+" "+l.MAC.String())
	}
	for _, k := range keys {
		if by, has := g.taken[k]; has {
			return by, false
		}
	}
	if g.taken == nil {
		g.taken = map[string]core.Owner{}
	}
	for _, k := range keys {
		g.taken[k] = l.Owner
	}
	g.Leases = append(g.Leases, l)
	return core.Owner{}, true
}
