// Package defaultroute says who of a pod's networks has its default route, per
// family: who gets it at the ADD (Settle, Routes, NeedsStep), who takes it from
// whom when a network comes to the running pod (Take), and who gets it back when
// that network goes (Return). The rules are those of the multi-network
// specification (multinet.md, rule 7); its tests have them as rows.
//
// A record holds the owners as a stack. On top is the owner: the interface with
// the default route among its routes, or a default-route step, which comes after
// all other steps and has the last word. Below it are Record.Displaced, and at
// the bottom the default network. The package is pure: what follows from an
// answer, the engine does, and drivers set the routes.
package defaultroute

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// families are IPv4 and IPv6, each told by whether it is IPv4.
var families = []bool{true, false}

// Via are the default routes through some gateways.
func Via(gws []netip.Addr) []core.Route {
	out := make([]core.Route, 0, len(gws))
	for _, gw := range gws {
		out = append(out, core.Route{Dst: core.Anywhere(gw), GW: gw})
	}
	return out
}

// Complete adds to the routes that somebody wrote for an interface the default
// routes through its gateways. Of a family that has a written one it adds none.
func Complete(written []core.Route, gws []netip.Addr) []core.Route {
	out := slices.Clone(written)
	for _, r := range Via(gws) {
		if !slices.ContainsFunc(written, func(w core.Route) bool { return w.Dst == r.Dst }) {
			out = append(out, r)
		}
	}
	return out
}

// Beside are the routes of an interface beside those of one that is there
// already, which keeps its default routes.
func Beside(routes, there []core.Route) []core.Route {
	return slices.DeleteFunc(slices.Clone(routes), func(r core.Route) bool {
		return r.Dst.Bits() == 0 && slices.ContainsFunc(there, func(t core.Route) bool { return t.Dst == r.Dst })
	})
}

// gateways are those of the default routes of a family.
func gateways(routes []core.Route, v4 bool) []netip.Addr {
	var out []netip.Addr
	for _, r := range routes {
		if isDefault(r, v4) && r.GW.IsValid() {
			out = append(out, r.GW)
		}
	}
	return out
}

// without are the routes but for the default routes of a family.
func without(routes []core.Route, v4 bool) []core.Route {
	return slices.DeleteFunc(slices.Clone(routes), func(r core.Route) bool { return isDefault(r, v4) })
}

func isDefault(r core.Route, v4 bool) bool {
	return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4
}

func family(addrs []netip.Addr, v4 bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a.Is4() != v4 })
}

func has(addrs []netip.Addr, v4 bool) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 })
}

// ecmp tells several gateways of one family: they make one route, which only a
// default-route step can set.
func ecmp(gws []netip.Addr) bool {
	return len(family(gws, true)) > 1 || len(family(gws, false)) > 1
}
