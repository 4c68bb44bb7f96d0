// Package record holds what can be said of a core.Record without touching
// anything: which specs make one chain, what a plugin is told of its chain, and
// how a network becomes part of a record and leaves it. It is pure; the engine
// does what follows from it.
package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
)

// aside tells a step that makes no interface and is no part of its network's
// chain: no plugin knows it.
func aside(s core.Spec) bool {
	return s.Kind() == core.KindDefaultRoute || s.Kind() == core.KindHostPorts
}

// SameChain tells that b goes on where a left off. A default-route step has
// its network's name too and is no part of the chain; nor are host ports.
func SameChain(a, b core.Spec) bool {
	return a.Network == b.Network && a.Key == b.Key && !aside(a) && !aside(b)
}

// Prev is the prevResult of Specs[i]: the result of the step before it in the
// same chain, in the chain's version; nil for the first one.
func Prev(r *core.Record, i int) (json.RawMessage, error) {
	if i == 0 || !SameChain(r.Specs[i-1], r.Specs[i]) {
		return nil, nil
	}
	l, version := r.Links[i-1], r.Specs[i].Exec.CNIVersion
	if l.CNIResult != nil {
		return cniconf.Convert(l.CNIResult, version)
	}
	return cniconf.Result([]core.Link{l}, r.Netns.Path, version)
}

// Startable is how many specs may start once the record says so: up to the
// next foreign plugin that is a program, which is recorded (with its process)
// just before it runs. inside tells those that start no process.
func Startable(specs []core.Spec, from int, inside func(core.Spec) bool) int {
	for i := from; i < len(specs); i++ {
		if !inside(specs[i]) {
			return i
		}
	}
	return len(specs)
}

// Seal gives every foreign plugin the final result of its chain, without the
// default routes that were moved: that is the prevResult CHECK and DEL are to
// get (CNI spec 1.1, section 4). Every spec must have its link. Execs are
// replaced, not changed: others may be reading them.
func Seal(r *core.Record) error {
	if len(r.Links) != len(r.Specs) {
		return errors.New("the record is not finished: it has specs without links")
	}
	for from := 0; from < len(r.Specs); {
		to := from + 1
		for to < len(r.Specs) && SameChain(r.Specs[from], r.Specs[to]) {
			to++
		}
		if err := sealChain(r, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// sealChain completes the foreign plugins of one chain, Specs[from:to].
func sealChain(r *core.Record, from, to int) error {
	links := append(slices.Clone(r.Links[from:to]), defaultroute.Links(r)...)
	for i := from; i < to; i++ {
		s := &r.Specs[i]
		if s.Kind() != core.KindDelegate {
			continue
		}
		final, err := cniconf.Final(links, r.Netns.Path, s.Exec.CNIVersion)
		if err != nil {
			return err
		}
		s.ChangeExec().Prev = final
	}
	return nil
}

// DefaultLinks are what the runtime's result is made of: the links of the
// default network, in order, and the default routes.
func DefaultLinks(r *core.Record) []core.Link {
	var out []core.Link
	for i, s := range r.Specs {
		if s.Default && !aside(s) {
			out = append(out, r.Links[i])
		}
	}
	return append(out, defaultroute.Links(r)...)
}

// FinalLink is what the interface of Specs[i] became after the plugins behind it
// in its chain had their turn: `tuning` changes MAC and MTU, others add routes.
// Default routes that were asked for on the interface count too. Of a foreign
// plugin's interface it is what the plugin said.
func FinalLink(r core.Record, i int) core.Link {
	s, l := r.Specs[i], r.Links[i]
	if s.Kind() == core.KindDelegate { // its result is final in Exec.Prev, but for the MTU, which old versions do not tell
		for j := i + 1; j < len(r.Specs) && SameChain(r.Specs[j], s); j++ {
			l.MTU = cmp.Or(r.Links[j].MTU, l.MTU)
		}
		return l
	}
	for j := i + 1; j < len(r.Specs) && SameChain(r.Specs[j], s); j++ {
		l = Overlay(l, r.Links[j])
	}
	for j, other := range r.Specs {
		if other.Kind() == core.KindDefaultRoute && other.Key == s.Key {
			l = Overlay(l, r.Links[j])
		}
	}
	return l
}

// Overlay lays what a later plugin says over a link.
func Overlay(l, later core.Link) core.Link {
	if len(later.MAC) > 0 {
		l.MAC = later.MAC
	}
	if later.MTU > 0 {
		l.MTU = later.MTU
	}
	l.Routes = slices.Concat(l.Routes, later.Routes)
	return l
}

// AllSpecs are those of the record and of its parts.
func AllSpecs(r core.Record) []core.Spec {
	out := slices.Clone(r.Specs)
	for _, p := range r.Parts {
		out = append(out, p.Specs...)
	}
	return out
}

// ByAge are the records with the oldest first. Of two sandboxes of one pod the
// later one counts.
func ByAge(records []core.Record) []core.Record {
	return slices.SortedStableFunc(slices.Values(records), func(a, b core.Record) int { return a.Called().Compare(b.Called()) })
}

// Begun are those specs of the record and of its parts that may have been
// started: the others have made nothing, and nobody will undo them.
func Begun(r core.Record) []core.Spec {
	out := slices.Clone(r.Specs[:min(r.Begun, len(r.Specs))])
	for _, p := range r.Parts {
		out = append(out, p.Specs[:min(p.Begun, len(p.Specs))]...)
	}
	return out
}

// AllLeases are those of the record and of its parts.
func AllLeases(r core.Record) []core.Lease {
	out := slices.Clone(r.Leases)
	for _, p := range r.Parts {
		out = append(out, p.Leases...)
	}
	return out
}

// Fold makes the parts of a record that is to be removed ordinary specs, behind
// the others: what came last goes first. Their links are of no use any more.
func Fold(r *core.Record) {
	if len(r.Parts) == 0 {
		return
	}
	specs := Begun(*r)
	r.Specs, r.Leases, r.Begun, r.Parts = specs, AllLeases(*r), len(specs), nil
}
