package record

import (
	"encoding/json"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Present are the networks that the pod's annotation asked for, in order. Of a
// record without AddCall they are all but the default network: what asked for them
// was not written down.
func Present(r core.Record) []resolve.Present {
	var out []resolve.Present
	for _, s := range r.Specs {
		if s.Request == "" && (r.AddCall != nil || s.Default || s.Kind() == core.KindDefaultRoute) {
			continue
		}
		at := slices.IndexFunc(out, func(p resolve.Present) bool { return p.IfName == s.Key.IfName })
		if at < 0 {
			at = len(out)
			out = append(out, resolve.Present{Request: s.Request, Network: s.Network, IfName: s.Key.IfName})
		}
		if id := Device(s); id != "" && !slices.Contains(out[at].Devices, id) {
			out[at].Devices = append(out[at].Devices, id)
		}
	}
	return out
}

// WithCall is r with what asks for its networks: those that the annotation asks
// for follow it from now on.
func WithCall(r core.Record, ask *core.AddCall, known []resolve.Present) core.Record {
	r.AddCall, r.Specs = ask, slices.Clone(r.Specs)
	for _, p := range known {
		for i := range r.Specs {
			if s := &r.Specs[i]; s.Key.IfName == p.IfName && !s.Default {
				s.Request = p.Request
			}
		}
	}
	return r
}

// Device is the id that a plugin was given, "" for none.
func Device(s core.Spec) string {
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
	specs := defaultroute.Take(&r, p.Specs)
	r.Specs, r.Links = append(r.Specs, specs...), append(r.Links, links...)
	r.Leases = slices.Concat(r.Leases, p.Leases)
	return complete(r)
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
	p.Restore = defaultroute.Return(&r, old, ifName)
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
			p.Restore = defaultroute.Owners(r, s.DefaultRoute.Gateways)
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
