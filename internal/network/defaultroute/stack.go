package defaultroute

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
)

// Links are the links of r's default-route steps: they settle who of the pod's
// networks has the default route.
func Links(r *core.Record) []core.Link {
	var out []core.Link
	for i, s := range r.Specs {
		if s.Kind() == core.KindDefaultRoute {
			out = append(out, r.Links[i])
		}
	}
	return out
}

// Owners are the specs that set r's default routes as they are, of the families
// of gws; of all families where gws is empty. What takes those routes and does
// not stay has them set again.
func Owners(r core.Record, gws []netip.Addr) []core.Spec {
	var out []core.Spec
	for _, v4 := range families {
		if s, ok := owner(r, v4); ok && (len(gws) == 0 || has(gws, v4)) {
			out = append(out, s)
		}
	}
	return out
}

// owner is the spec that sets the default route of a family as it is, of the
// last one that has it.
func owner(r core.Record, v4 bool) (core.Spec, bool) {
	for i, s := range slices.Backward(r.Specs) {
		var gws []netip.Addr
		if s.Kind() == core.KindDefaultRoute {
			gws = family(s.DefaultRoute.Gateways, v4)
		} else if i < len(r.Links) {
			gws = gateways(r.Links[i].Routes, v4)
		}
		if len(gws) > 0 {
			return Step(s, gws), true
		}
	}
	return core.Spec{}, false
}

// Take has a network, whose specs and links are to become part of r, take the
// default routes that its step sets: nobody else in r has them any more, and who
// had them is put on the stack. It gives the network's specs with those routes.
func Take(r *core.Record, specs []core.Spec) []core.Spec {
	r.Specs, r.Links = slices.Clone(r.Specs), slices.Clone(r.Links)
	out := slices.Clone(specs)
	for _, s := range specs {
		if s.Kind() != core.KindDefaultRoute {
			continue
		}
		for _, v4 := range families {
			if gws := family(s.DefaultRoute.Gateways, v4); len(gws) > 0 {
				r.Displaced = slices.Concat(r.Displaced, Owners(*r, gws))
				displace(r, v4)
				carry(out, s.Key, gws)
			}
		}
	}
	return out
}

// carry gives the interface of ours among specs the default route through gws,
// of one family, as it would have it from the ADD: CHECK takes any other that it
// finds there for somebody else's.
func carry(specs []core.Spec, key core.Key, gws []netip.Addr) {
	at := slices.IndexFunc(specs, func(s core.Spec) bool { return s.Key == key && s.Kind() == core.KindNIC })
	if at >= 0 && !ecmp(gws) {
		n := specs[at].ChangeNIC()
		n.Routes = slices.Concat(n.Routes, Via(gws))
	}
}

// displace takes the default routes of a family from everything in r.
func displace(r *core.Record, v4 bool) {
	for i := len(r.Specs) - 1; i >= 0; i-- {
		s, l := &r.Specs[i], &r.Links[i]
		l.Routes = without(l.Routes, v4)
		switch {
		case s.Kind() == core.KindNIC:
			n := s.ChangeNIC()
			n.Routes = without(n.Routes, v4)
			continue
		case s.Kind() != core.KindDefaultRoute || !has(s.DefaultRoute.Gateways, v4):
			continue
		}
		s.DefaultRoute = &core.DefaultRoute{Gateways: family(s.DefaultRoute.Gateways, !v4)}
		l.Gateways = family(l.Gateways, !v4)
		if len(s.DefaultRoute.Gateways) == 0 {
			r.Specs, r.Links = slices.Delete(r.Specs, i, i+1), slices.Delete(r.Links, i, i+1)
		}
	}
}

// Return gives back the default routes of interface ifName, which stands in
// before and has left r: to the network that each was taken from last and that
// is still there, else to the default network, unless that was to have none. It
// gives the specs that set them.
func Return(r *core.Record, before core.Record, ifName string) []core.Spec {
	r.Specs, r.Links = slices.Clone(r.Specs), slices.Clone(r.Links)
	r.Displaced = slices.DeleteFunc(slices.Clone(r.Displaced), func(s core.Spec) bool { return s.Key.IfName == ifName })
	var out []core.Spec
	for _, v4 := range families {
		if had, ok := owner(before, v4); !ok || had.Key.IfName != ifName {
			continue
		}
		next, ok := owner(*r, v4) // a plugin that has lost its route still says that it made it
		if !ok {
			next, ok = pop(r, v4)
		}
		if !ok {
			next, ok = fallBack(r, v4)
		}
		if ok {
			out = append(out, next)
		}
	}
	return out
}

// pop gives the default route of a family to the network that it was taken from
// last, and the spec that sets it.
func pop(r *core.Record, v4 bool) (core.Spec, bool) {
	for at, s := range slices.Backward(r.Displaced) {
		gws := s.DefaultRoute.Gateways
		if !has(gws, v4) {
			continue
		}
		r.Displaced = slices.Delete(r.Displaced, at, at+1)
		for i, of := range r.Specs {
			if of.Key == s.Key && slices.Equal(ownGateways(of, r.Links[i], v4), gws) {
				return give(r, i, gws), true
			}
		}
		carry(r.Specs, s.Key, gws)
		r.Specs, r.Links = append(r.Specs, s), append(r.Links, Link(s))
		return s, true
	}
	return core.Spec{}, false
}

// fallBack gives the default network the default route of a family, and the spec
// that sets it; none where the network knows no gateway, or is to have none.
func fallBack(r *core.Record, v4 bool) (core.Spec, bool) {
	for i, s := range r.Specs {
		if !s.Default || i >= len(r.Links) || s.Kind() == core.KindNIC && s.NIC.NoDefault {
			continue
		}
		if gws := ownGateways(s, r.Links[i], v4); len(gws) > 0 {
			return give(r, i, gws), true
		}
	}
	return core.Spec{}, false
}

// give makes the default route through gws that of Specs[i], and returns the
// spec that sets it.
func give(r *core.Record, i int, gws []netip.Addr) core.Spec {
	s := r.Specs[i]
	if s.Kind() == core.KindNIC {
		r.Specs[i].ChangeNIC().Routes = slices.Concat(s.NIC.Routes, Via(gws))
	}
	r.Links[i].Routes = slices.Concat(r.Links[i].Routes, Via(gws))
	return Step(s, gws)
}

// ownGateways are the default gateways that an interface would have if no other
// had taken them: the subnet's, or those that its plugin set. A step that makes no
// interface has none.
func ownGateways(s core.Spec, l core.Link, v4 bool) []netip.Addr {
	switch s.Kind() {
	case core.KindNIC:
		return family(s.NIC.Gateways, v4)
	case core.KindDelegate:
	default:
		return nil
	}
	made, err := cniconf.LinkFromResult(l.CNIResult, s.Key.IfName)
	if err != nil {
		return nil // it made no interface
	}
	return gateways(made.Routes, v4)
}

// Tell gives Specs[at] of an ADD, if it is a default-route step that has none,
// the gateways that its network's plugins have told: those of its default routes,
// else of its addresses. Interfaces of ours lose the default routes that are its
// from now on. A network without a gateway is code 102.
func Tell(r *core.Record, at int) error {
	s := &r.Specs[at]
	if s.Kind() != core.KindDefaultRoute || len(s.DefaultRoute.Gateways) > 0 {
		return nil
	}
	gws := told(r, *s)
	if len(gws) == 0 {
		return core.Errorf(core.CodeValue, "network %s: default-route is an empty list, and its plugins told no gateway: name one", s.Network)
	}
	s.DefaultRoute = &core.DefaultRoute{Gateways: gws}
	for i := range r.Links {
		other, l := &r.Specs[i], &r.Links[i]
		if other.Kind() != core.KindNIC || other.Key == s.Key {
			continue
		}
		n := other.ChangeNIC()
		for _, v4 := range families {
			if has(gws, v4) {
				n.Routes, l.Routes = without(n.Routes, v4), without(l.Routes, v4)
			}
		}
	}
	return nil
}

// told are the gateways that the plugins of step's network have told, the last
// one's.
func told(r *core.Record, step core.Spec) []netip.Addr {
	for i, l := range slices.Backward(r.Links) {
		if of := r.Specs[i]; of.Key != step.Key || of.Network != step.Network {
			continue
		}
		var gws []netip.Addr
		for _, route := range l.Routes {
			if route.Dst.Bits() == 0 && route.GW.IsValid() {
				gws = append(gws, route.GW)
			}
		}
		if len(gws) == 0 {
			gws = slices.Clone(l.Gateways)
		}
		if len(gws) > 0 {
			return gws
		}
	}
	return nil
}
