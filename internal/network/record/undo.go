package record

import (
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// Unmade marks the foreign plugins of a record under way whose ADD did not
// succeed: those without a link. After a crash that may be one too many, of
// which no runtime was told. Specs are replaced, not changed: others may be
// reading them.
func Unmade(r *core.Record) {
	if r.Phase != core.Adding || len(r.Links) >= len(r.Specs) {
		return
	}
	r.Specs = slices.Clone(r.Specs)
	for i := len(r.Links); i < len(r.Specs); i++ {
		if s := &r.Specs[i]; s.Kind() == core.KindDelegate && s.Exec.Failed == nil {
			s.ChangeExec().Failed = &core.Failure{}
		}
	}
}

// NeverMade tells that nothing is left of a record but foreign plugins whose ADD
// did not succeed: no runtime was ever told of them.
func NeverMade(r core.Record) bool {
	return len(r.Parts) == 0 && !slices.ContainsFunc(Begun(r), func(s core.Spec) bool { return Own(s) || s.Exec.Failed == nil })
}

// OnlyForeign tells a record of which nothing is left but foreign plugins.
func OnlyForeign(r core.Record) bool {
	return len(r.Parts) == 0 && !slices.ContainsFunc(Begun(r), Own)
}

// OwnParts tells a record whose parts need no foreign plugin to be removed.
func OwnParts(r core.Record) bool {
	return !slices.ContainsFunc(r.Parts, func(p core.Part) bool { return slices.ContainsFunc(p.Specs, Foreign) })
}

// Own tells a spec that the agent carries out itself, without a foreign plugin.
func Own(s core.Spec) bool { return !Foreign(s) }

// Foreign is the contrary of Own.
func Foreign(s core.Spec) bool { return s.Kind() == core.KindDelegate }

// Keep divides the leases of some specs by those of the specs that are left: the
// leases that these need, and the free ones. An interface of our own has its
// lease to itself, whatever plugins stand behind it in its chain; a lease of no
// interface that is known is a plugin's.
func Keep(specs, left []core.Spec, leases []core.Lease) (kept, free []core.Lease) {
	for _, l := range leases {
		if holds(specs, left, l.Owner.Key) {
			kept = append(kept, l)
		} else {
			free = append(free, l)
		}
	}
	return kept, free
}

// holds tells that one of the specs that are left needs the lease of key.
func holds(specs, left []core.Spec, key core.Key) bool {
	at := func(s core.Spec) bool { return s.Key == key }
	own := func(s core.Spec) bool { return at(s) && s.Kind() == core.KindNIC }
	switch {
	case slices.ContainsFunc(specs, own):
		return slices.ContainsFunc(left, own)
	case slices.ContainsFunc(specs, at):
		return slices.ContainsFunc(left, at)
	}
	return slices.ContainsFunc(left, Foreign)
}

// WithoutForeignLeases is r without the leases that foreign plugins have.
func WithoutForeignLeases(r core.Record) (core.Record, []core.Lease) {
	own := slices.DeleteFunc(slices.Clone(r.Specs), Foreign)
	var free []core.Lease
	r.Leases, free = Keep(r.Specs, own, r.Leases)
	return r, free
}

// Remain is a folded record of which left is still to be removed, and the leases
// that it does not need any more.
func Remain(r core.Record, left []core.Spec) (core.Record, []core.Lease) {
	kept, free := Keep(r.Specs, left, r.Leases)
	r.Specs, r.Leases, r.Begun, r.Links, r.Procs = left, kept, len(left), nil, nil
	return r, free
}

// Claims tells that one of specs claims something.
func Claims(specs []core.Spec) bool {
	return slices.ContainsFunc(specs, func(s core.Spec) bool { return len(s.Claims) > 0 })
}

// Without are those of specs that claim something and are not among rest.
func Without(specs, rest []core.Spec) (out []core.Spec) {
	for _, s := range specs {
		stays := func(o core.Spec) bool { return o.Key == s.Key && len(o.Claims) > 0 }
		if len(s.Claims) > 0 && !slices.ContainsFunc(rest, stays) {
			out = append(out, s)
		}
	}
	return out
}
