package record

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// TellGateways gives a default-route step that has none the gateways that its
// network's plugins have told: those of its default routes, else of its
// addresses.
func TellGateways(s *core.Spec, rec *core.Record) error {
	if s.Kind() != core.KindDefaultRoute || len(s.DefaultRoute.Gateways) > 0 {
		return nil
	}
	for i, l := range slices.Backward(rec.Links) {
		if of := rec.Specs[i]; of.Key != s.Key || of.Network != s.Network {
			continue
		}
		var gws []netip.Addr
		for _, r := range l.Routes {
			if r.Dst.Bits() == 0 && r.GW.IsValid() {
				gws = append(gws, r.GW)
			}
		}
		if len(gws) == 0 {
			gws = slices.Clone(l.Gateways)
		}
		if len(gws) > 0 {
			s.DefaultRoute = &core.DefaultRoute{Gateways: gws}
			return nil
		}
	}
	return core.Errorf(core.CodeValue, "network %s: default-route is an empty list, and its plugins told no gateway: name one", s.Network)
}
