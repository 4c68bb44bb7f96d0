package record

import (
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Fixed are the interfaces of a record that are not among have, the networks
// that the pod's annotation asked for, with the devices that they hold.
func Fixed(r core.Record, have []resolve.Present) []resolve.Present {
	var out []resolve.Present
	for _, s := range AllSpecs(r) {
		own := slices.ContainsFunc(have, func(p resolve.Present) bool { return p.IfName == s.Key.IfName })
		if own {
			continue
		}
		p := resolve.Present{IfName: s.Key.IfName}
		if id := Device(s); id != "" {
			p.Devices = []string{id}
		}
		out = append(out, p)
	}
	return out
}

// LentLink is the link of an interface that a foreign plugin makes with addresses
// of ours, as far as we know it.
func LentLink(s core.Spec) core.Link {
	n := s.Lent
	return core.Link{IfName: s.Key.IfName, Addrs: n.Addrs, Gateways: n.Gateways, PodSide: n.PodSide}
}

// Held are the leases of all records, those of live attachments before those of
// attachments that come or go.
func Held(records []core.Record) []core.Lease {
	var live, others []core.Lease
	for _, r := range records {
		if r.Phase == core.Added {
			live = append(live, AllLeases(r)...)
		} else {
			others = append(others, AllLeases(r)...)
		}
	}
	return append(live, others...)
}
