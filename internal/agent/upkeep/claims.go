package upkeep

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Leases says who has what interfaces claim for themselves.
type Leases interface {
	// Bind makes the Specs' interfaces the holders of all that they claim, or of nothing. It
	// may be called again. AddressHeld (11), MACInUse (103): another has it.
	Bind(ctx context.Context, specs []core.Spec) error
	// Free gives back what Specs claim. What they do not have is left alone.
	Free(specs []core.Spec)
}

// An interface that goes to another VLAN claims in both from before its record says so until
// it is there, or back: wherever it is meanwhile, it has what it uses.

// inVLAN is what a Spec's interface claims in the place of c in the VLAN that the Spec says.
// One that goes to no other VLAN while its pod runs claims what it did.
func inVLAN(c core.Claim, s core.Spec) core.Claim {
	switch {
	case s.Kind() == core.KindNIC:
		return lease.InVLAN(c, s.NIC.VLAN)
	case s.Kind() == core.KindDelegate && slices.Contains(declared.Live(s.Exec.Type), declared.VLAN):
		return lease.InVLAN(c, resolve.ConfVLAN(s.Exec.Conf))
	}
	return c
}

// claims divides what a Spec claims: in the VLAN that it says, and in those that it leaves.
func claims(s core.Spec) (here, left []core.Claim) {
	for _, c := range s.Claims {
		if inVLAN(c, s).Domain == c.Domain {
			here = append(here, c)
		} else {
			left = append(left, c)
		}
	}
	return here, left
}

// moves tells that a Spec's interface is on its way to another VLAN.
func moves(s core.Spec) bool {
	_, left := claims(s)
	return len(left) > 0
}

// lacking is what a Spec has yet to claim in the VLAN that it says.
func lacking(s core.Spec) (out []core.Claim) {
	have, left := claims(s)
	for _, c := range left {
		c = inVLAN(c, s)
		same := func(o core.Claim) bool { return lease.Name(o) == lease.Name(c) }
		if !slices.ContainsFunc(have, same) && !slices.ContainsFunc(out, same) {
			out = append(out, c)
		}
	}
	return out
}

// bind has the interfaces of changed Specs hold what they claim in another VLAN, beside what
// they have. A Spec that is refused is not changed. bound are the Specs with what is new.
func (k *Keeper) bind(ctx context.Context, changed map[int]core.Spec) (bound []core.Spec, refused error) {
	for _, i := range slices.Sorted(maps.Keys(changed)) {
		s := changed[i]
		one := []core.Spec{s}
		if one[0].Claims = lacking(s); len(one[0].Claims) == 0 {
			continue
		}
		if err := k.Leases.Bind(ctx, one); err != nil {
			delete(changed, i)
			refused = errors.Join(refused, core.WithCode(core.CodeTryAgain, "interface "+s.Key.IfName+" stays in its VLAN", err))
			continue
		}
		s.Claims = slices.Concat(s.Claims, one[0].Claims)
		changed[i], bound = s, append(bound, one[0])
		fail.Here("tune.bound")
	}
	return bound, refused
}

// free gives back what nobody uses.
func (k *Keeper) free(specs []core.Spec) {
	if len(specs) > 0 {
		k.Leases.Free(specs)
	}
}

// moved saves next, whose Spec at that place says what its interface is now, as the record, and
// gives back what it claims elsewhere.
func (k *Keeper) moved(ctx context.Context, rec *core.Record, next core.Record, at int) error {
	next.Specs = slices.Clone(next.Specs)
	gone := next.Specs[at]
	next.Specs[at].Claims, gone.Claims = claims(gone)
	if err := k.Journal.Save(ctx, next); err != nil {
		return err
	}
	*rec = next
	if len(gone.Claims) > 0 {
		k.free([]core.Spec{gone})
	}
	return nil
}
