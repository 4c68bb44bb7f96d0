package defaultroute

import (
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// Conflict is a network, wants[At], that asks for a default route for which
// wants[By] asks too. All: that one asks for the default routes of all families.
type Conflict struct {
	At, By int
	All    bool
}

// Own makes a further network's annotation default_route, and an empty
// `default-route`, the same as one with the gateways of the network's own
// Subnet, nic's. first tells the default network.
func Own(w *core.Want, nic *core.NIC, first bool) {
	if !w.TakesDefault && (first || !nic.DefaultRoute) {
		return
	}
	nic.DefaultRoute, w.TakesDefault = false, false
	if len(w.Gateways) == 0 {
		w.Gateways = slices.Clone(nic.Subnet.Gateways)
	}
}

// Claim takes out of w, a network that comes to a running pod, what it asks the
// default route for, or writes one for: the gateways, none where its plugins have
// yet to tell them. takes is false where it does neither. Another network has the default
// route until all else of w is attached.
func Claim(w *core.Want) (gws []netip.Addr, takes bool) {
	gws, takes = w.Gateways, w.TakesDefault
	for _, v4 := range families {
		if has(w.Gateways, v4) || w.TakesDefault {
			overrule(w, v4)
		} else if wrote := written(w, v4); len(wrote) > 0 {
			gws = slices.Concat(gws, wrote)
			overrule(w, v4)
		}
	}
	w.TakesDefault, w.Gateways = false, nil
	return gws, takes || len(gws) > 0
}

// Settle proves that no two networks of a pod ask for the default route of one
// family; nil is no conflict. Where none asks, a further network whose
// configuration writes a default route takes it, the last one of several.
func Settle(wants []core.Want) *Conflict {
	taker := slices.IndexFunc(wants, func(w core.Want) bool { return w.TakesDefault })
	owner := map[bool]int{} // by family
	for i, w := range wants {
		if taker >= 0 && i != taker && (w.TakesDefault || len(w.Gateways) > 0) {
			return &Conflict{At: i, By: taker, All: true}
		}
		for _, v4 := range families {
			if !has(w.Gateways, v4) {
				continue
			}
			if by, ok := owner[v4]; ok {
				return &Conflict{At: i, By: by}
			}
			owner[v4] = i
			overrule(&wants[i], v4)
		}
	}
	for _, v4 := range families {
		if _, asked := owner[v4]; !asked && taker < 0 {
			settleWritten(wants, v4)
		}
	}
	return nil
}

// settleWritten has the last further network that writes a default route of a
// family ask for it: that is the one which the kernel would keep.
func settleWritten(wants []core.Want, v4 bool) {
	for i := range slices.Backward(wants) {
		w := &wants[i]
		if gws := written(w, v4); !w.Default && len(gws) > 0 {
			w.Gateways = slices.Concat(w.Gateways, gws)
			overrule(w, v4)
			return
		}
	}
}

// written are the gateways of the default routes of a family that somebody wrote
// for w's interfaces of ours, as far as those can reach them.
func written(w *core.Want, v4 bool) []netip.Addr {
	var out []netip.Addr
	for _, s := range w.Steps {
		if s.NIC == nil {
			continue
		}
		near := slices.Clone(s.NIC.Subnet.CIDRs)
		for _, r := range s.NIC.Routes {
			if !r.GW.IsValid() {
				near = append(near, r.Dst)
			}
		}
		for _, gw := range gateways(s.NIC.Routes, v4) {
			if slices.ContainsFunc(near, func(p netip.Prefix) bool { return p.Masked().Contains(gw) }) {
				out = append(out, gw)
			}
		}
	}
	return out
}

// overrule takes the written default routes of a family from w's interfaces of
// ours: what is asked for comes before.
func overrule(w *core.Want, v4 bool) {
	for _, s := range w.Steps {
		if s.NIC != nil {
			s.NIC.Routes = without(s.NIC.Routes, v4)
		}
	}
}

// Routes are those of nic, an interface of wants[at]: the written ones, and the
// default routes of its gateways, without those that another network has. subnet
// are the gateways of its addresses. Several gateways of one family are left to a
// step.
func Routes(wants []core.Want, at int, nic *core.NIC, subnet []netip.Addr) []core.Route {
	gws := wants[at].Gateways
	if len(gws) == 0 && nic.DefaultRoute {
		gws = subnet
	}
	if ecmp(gws) {
		gws = nil
	}
	gone := func(r core.Route) bool { return r.Dst.Bits() == 0 && lost(wants, at, r.Dst.Addr().Is4()) }
	return slices.DeleteFunc(Complete(nic.Routes, gws), gone)
}

// lost tells that another network than wants[at] asks for the default route of
// a family.
func lost(wants []core.Want, at int, v4 bool) bool {
	for i, w := range wants {
		if i != at && has(w.Gateways, v4) {
			return true
		}
	}
	return false
}

// NeedsStep tells that the default route of wants[at] is set after all chains: a
// foreign plugin cannot be told to leave the default route alone, so that what
// it did is put right when it is done. An interface of ours among our own
// carries its default route among its routes, unless there are several gateways
// of one family.
func NeedsStep(wants []core.Want, at int) bool {
	w := &wants[at]
	foreign := slices.ContainsFunc(wants, func(w core.Want) bool {
		return slices.ContainsFunc(w.Steps, func(s core.Step) bool { return s.Kind() == core.KindDelegate })
	})
	return (w.TakesDefault || len(w.Gateways) > 0) && (foreign || ecmp(w.Gateways))
}

// Link is what a default-route step, s, makes.
func Link(s core.Spec) core.Link {
	gws := slices.Clone(s.DefaultRoute.Gateways)
	return core.Link{IfName: s.Key.IfName, Gateways: gws, PodSide: core.PodSide{Routes: Via(gws)}}
}

// Step is the spec that makes a pod's default routes go through gws on the
// interface of a spec. Without gateways it gets those that the network's plugins
// tell (Tell).
func Step(of core.Spec, gws []netip.Addr) core.Spec {
	return core.Spec{
		Driver: core.DriverDefroute, Key: of.Key, Network: of.Network, Request: of.Request, Default: of.Default,
		Pod: of.Pod, Netns: of.Netns, DefaultRoute: &core.DefaultRoute{Gateways: slices.Clone(gws)}, CNIVersion: of.CNIVersion,
	}
}
