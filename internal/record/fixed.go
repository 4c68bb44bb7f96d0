package record

import (
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
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
		if id := device(s); id != "" {
			p.Devices = []string{id}
		}
		out = append(out, p)
	}
	return out
}
