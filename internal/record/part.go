package record

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

// Present are the networks that the pod's annotation asked for, in order. Of a
// record without Ask they are all but the default network: what asked for them
// was not written down.
func Present(r core.Record) []resolve.Present {
	var out []resolve.Present
	for _, s := range r.Specs {
		if s.Request == "" && (r.Ask != nil || s.Default || s.Kind() == core.KindDefaultRoute) {
			continue
		}
		at := slices.IndexFunc(out, func(p resolve.Present) bool { return p.IfName == s.Key.IfName })
		if at < 0 {
			at = len(out)
			out = append(out, resolve.Present{Request: s.Request, Network: s.Network, IfName: s.Key.IfName})
		}
		if id := device(s); id != "" && !slices.Contains(out[at].Devices, id) {
			out[at].Devices = append(out[at].Devices, id)
		}
	}
	return out
}

// Asked is r with what asks for its networks: those that the annotation asks
// for follow it from now on.
func Asked(r core.Record, ask *core.Ask, known []resolve.Present) core.Record {
	r.Ask, r.Specs = ask, slices.Clone(r.Specs)
	for _, p := range known {
		for i := range r.Specs {
			if s := &r.Specs[i]; s.Key.IfName == p.IfName && !s.Default {
				s.Request = p.Request
			}
		}
	}
	return r
}

// device is the id that a plugin was given, "" for none.
func device(s core.Spec) string {
	var conf struct {
		DeviceID string `json:"deviceID"`
	}
	if s.Kind() != core.KindDelegate || json.Unmarshal(s.Exec.Conf, &conf) != nil {
		return ""
	}
	return conf.DeviceID
}

// Join is r with a network more, whose part is complete: links are those of its
// specs. A default route that the new network has taken is no other's any more.
func Join(r core.Record, p core.Part, links []core.Link) (core.Record, error) {
	r.Specs, r.Links = slices.Clone(r.Specs), slices.Clone(r.Links)
	for _, s := range p.Specs {
		if s.Kind() == core.KindDefaultRoute {
			for _, v4 := range []bool{true, false} {
				if hasFamily(s.DefaultRoute.Gateways, v4) {
					r.Yielded = slices.Concat(r.Yielded, holders(r, v4))
					disclaim(&r, v4)
				}
			}
		}
	}
	r.Specs, r.Links = append(r.Specs, claimed(p.Specs)...), append(r.Links, links...)
	r.Leases = slices.Concat(r.Leases, p.Leases)
	return complete(r)
}

// claimed are a network's specs when its default route is set: a NIC of ours has
// it among its own routes, as from the ADD. Several gateways of one family are
// a route that only the default-route step knows.
func claimed(specs []core.Spec) []core.Spec {
	out := slices.Clone(specs)
	for _, s := range specs {
		if s.Kind() != core.KindDefaultRoute {
			continue
		}
		for _, gw := range s.DefaultRoute.Gateways {
			at := slices.IndexFunc(out, func(o core.Spec) bool { return o.Key == s.Key && o.Kind() == core.KindNIC })
			if at >= 0 && len(family(s.DefaultRoute.Gateways, gw.Is4())) == 1 {
				n := out[at].ChangeNIC()
				n.Routes = append(slices.Clone(n.Routes), core.Route{Dst: core.Anywhere(gw), GW: gw})
			}
		}
	}
	return out
}

// Leave is r without the network on interface ifName, which is its last part
// then. A default route that goes with it is again that of the network from which
// it was taken, else the default network's.
func Leave(r core.Record, ifName string) (core.Record, error) {
	p := core.Part{}
	old := r
	r.Specs, r.Links, r.Leases = nil, nil, nil
	for i, s := range old.Specs {
		if s.Key.IfName == ifName && s.Request != "" {
			p.Specs = append(p.Specs, s)
			continue
		}
		r.Specs = append(r.Specs, s)
		if i < len(old.Links) {
			r.Links = append(r.Links, old.Links[i])
		}
	}
	for _, l := range old.Leases {
		if l.Owner.Key.IfName == ifName {
			p.Leases = append(p.Leases, l)
		} else {
			r.Leases = append(r.Leases, l)
		}
	}
	p.Begun = len(p.Specs)
	r.Yielded = slices.DeleteFunc(slices.Clone(r.Yielded), func(s core.Spec) bool { return s.Key.IfName == ifName })
	for _, v4 := range []bool{true, false} {
		if has := holders(old, v4); len(has) == 0 || has[0].Key.IfName != ifName {
			continue
		}
		next := holders(r, v4) // a plugin that has lost its route still says that it made it
		if len(next) == 0 {
			next = regain(&r, v4)
		}
		if len(next) == 0 {
			next = reclaim(&r, v4)
		}
		p.Restore = append(p.Restore, next...)
	}
	r.Parts = append(slices.Clone(r.Parts), p)
	r.Plugs = slices.DeleteFunc(slices.Clone(r.Plugs), func(p core.Plug) bool { return p.IfName == ifName })
	return complete(r)
}

// complete brings what follows from specs and links up to date.
func complete(r core.Record) (core.Record, error) {
	r.Begun, r.Procs = len(r.Specs), nil
	if err := Seal(&r); err != nil {
		return r, err
	}
	r.Statuses = cniconf.Status(r.Specs, r.Links)
	return r, nil
}

// WithPart is r with an addition that is on its way to it.
func WithPart(r core.Record, rec core.Record) core.Record {
	Unmade(&rec)
	p := core.Part{Specs: rec.Specs, Begun: rec.Begun, Leases: rec.Leases}
	for _, s := range rec.Specs {
		if s.Kind() == core.KindDefaultRoute {
			p.Restore = Restores(r, s.DefaultRoute.Gateways)
		}
	}
	r.Parts, r.Procs = append(slices.Clone(r.Parts), p), rec.Procs
	return r
}

// Beyond are the elements of a whose interface is not among those of b.
func Beyond(a, b []core.Net) []core.Net {
	return slices.DeleteFunc(slices.Clone(a), func(n core.Net) bool {
		return slices.ContainsFunc(b, func(m core.Net) bool { return m.Interface == n.Interface && m.Name == n.Name })
	})
}

// Restores are the default routes to set again should a network that takes over
// those of gateways not stay; of all families where it does not know yet which.
func Restores(r core.Record, gateways []netip.Addr) []core.Spec {
	var out []core.Spec
	for _, v4 := range []bool{true, false} {
		if len(gateways) == 0 || hasFamily(gateways, v4) {
			out = append(out, holders(r, v4)...)
		}
	}
	return out
}

// holders is the default route of a family as the spec that would set it, none
// without one. A default-route step comes after all others and has the last
// word.
func holders(r core.Record, v4 bool) []core.Spec {
	var out []core.Spec
	for i, s := range r.Specs {
		var gws []netip.Addr
		if s.Kind() == core.KindDefaultRoute {
			gws = family(s.DefaultRoute.Gateways, v4)
		} else if i < len(r.Links) {
			gws = defaultGateways(r.Links[i].Routes, v4)
		}
		if len(gws) > 0 {
			out = append(out, steer(s, gws))
		}
	}
	if last := len(out) - 1; last >= 0 {
		return out[last:]
	}
	return nil
}

// steer is the spec that makes the default route go through s' interface.
func steer(s core.Spec, gws []netip.Addr) core.Spec {
	return core.Spec{
		Driver: Defroute, Key: s.Key, Network: s.Network, Request: s.Request, Default: s.Default,
		Pod: s.Pod, Netns: s.Netns, DefaultRoute: &core.DefaultRoute{Gateways: gws}, CNIVersion: s.CNIVersion,
	}
}

// disclaim takes the default routes of a family from everything in r.
func disclaim(r *core.Record, v4 bool) {
	for i := len(r.Specs) - 1; i >= 0; i-- {
		s, l := &r.Specs[i], &r.Links[i]
		l.Routes = withoutDefault(l.Routes, v4)
		switch {
		case s.Kind() == core.KindNIC:
			n := s.ChangeNIC()
			n.Routes = withoutDefault(n.Routes, v4)
			continue
		case s.Kind() != core.KindDefaultRoute || !hasFamily(s.DefaultRoute.Gateways, v4):
			continue
		}
		s.DefaultRoute = &core.DefaultRoute{Gateways: family(s.DefaultRoute.Gateways, !v4)}
		l.Gateways = family(l.Gateways, !v4)
		if len(s.DefaultRoute.Gateways) == 0 {
			r.Specs, r.Links = slices.Delete(r.Specs, i, i+1), slices.Delete(r.Links, i, i+1)
		}
	}
}

// regain gives the default route of a family to the network that it was taken
// from last, and the spec that sets it; none where it was taken from nobody who
// is still there.
func regain(r *core.Record, v4 bool) []core.Spec {
	for at, s := range slices.Backward(r.Yielded) {
		gws := s.DefaultRoute.Gateways
		if !hasFamily(gws, v4) {
			continue
		}
		r.Yielded = slices.Delete(r.Yielded, at, at+1)
		for i, of := range r.Specs {
			if of.Key == s.Key && slices.Equal(ownGateways(of, r.Links[i], v4), gws) {
				return []core.Spec{give(r, i, gws)}
			}
		}
		l := core.Link{IfName: s.Key.IfName, Gateways: gws, PodSide: core.PodSide{Routes: defaults(gws)}}
		r.Specs, r.Links = append(r.Specs, s), append(r.Links, l)
		return []core.Spec{s}
	}
	return nil
}

// reclaim gives the default network the default route of a family, and the spec
// that sets it; none where the network knows no gateway, or is to have none.
func reclaim(r *core.Record, v4 bool) []core.Spec {
	for i, s := range r.Specs {
		if !s.Default || i >= len(r.Links) || s.Kind() == core.KindNIC && s.NIC.NoDefault {
			continue
		}
		if gws := ownGateways(s, r.Links[i], v4); len(gws) > 0 {
			return []core.Spec{give(r, i, gws)}
		}
	}
	return nil
}

// give makes the default route through gws that of Specs[i], and returns the
// spec that sets it.
func give(r *core.Record, i int, gws []netip.Addr) core.Spec {
	s := r.Specs[i]
	if s.Kind() == core.KindNIC {
		r.Specs[i].ChangeNIC().Routes = slices.Concat(s.NIC.Routes, defaults(gws))
	}
	r.Links[i].Routes = slices.Concat(r.Links[i].Routes, defaults(gws))
	return steer(s, gws)
}

// defaults are the default routes through some gateways.
func defaults(gws []netip.Addr) []core.Route {
	out := make([]core.Route, 0, len(gws))
	for _, gw := range gws {
		out = append(out, core.Route{Dst: core.Anywhere(gw), GW: gw})
	}
	return out
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
	return defaultGateways(made.Routes, v4)
}

func defaultGateways(routes []core.Route, v4 bool) []netip.Addr {
	var out []netip.Addr
	for _, r := range routes {
		if r.Dst.Bits() == 0 && r.GW.IsValid() && r.Dst.Addr().Is4() == v4 {
			out = append(out, r.GW)
		}
	}
	return out
}

func withoutDefault(routes []core.Route, v4 bool) []core.Route {
	is := func(r core.Route) bool { return r.Dst.Bits() == 0 && r.Dst.Addr().Is4() == v4 }
	return slices.DeleteFunc(slices.Clone(routes), is)
}

func family(addrs []netip.Addr, v4 bool) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a.Is4() != v4 })
}

func hasFamily(addrs []netip.Addr, v4 bool) bool { return len(family(addrs, v4)) > 0 }
