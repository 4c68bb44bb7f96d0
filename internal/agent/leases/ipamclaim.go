package leases

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/network/resolve/element"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
)

const (
	fillings = 3 // of a status, where others write the claim too
	sample   = 4 // leases of IPAMClaims that a round asks about
)

// byClaim is the IPAMClaim that says of which address an interface is to be, nil for none.
func byClaim(claims []core.Claim) *core.IPAMClaim {
	for _, c := range claims {
		if c.Pool != nil && c.Pool.For != nil {
			return c.Pool.For
		}
	}
	return nil
}

// obtainFor makes a Spec's interface the holder of the addresses that an IPAMClaim names, or
// of chosen ones which it names from then on. Where the API server does not answer these are
// what this node has for it already.
func (k *Keeper) obtainFor(ctx context.Context, s *core.Spec, by core.IPAMClaim) error {
	store := k.store()
	if store == nil {
		return refusedClaim(by, "cannot be used: there are no IPAMClaims without a cluster")
	}
	for range fillings {
		part := *s
		claim, err := k.addressed(ctx, store, &part, by)
		if err == nil {
			err = k.obtainAll(ctx, &part)
		}
		if err != nil {
			return err
		}
		if claim != nil && len(claim.Status.IPs) == 0 {
			err = k.fill(ctx, store, claim, part.Claims)
		}
		if err == nil {
			s.Claims = part.Claims
			return nil
		}
		k.Free([]core.Spec{part})
		if !errors.Is(err, cluster.ErrFilled) {
			return core.WithCode(core.CodeTryAgain, by.Field, err)
		}
	}
	return core.Errorf(core.CodeTryAgain, "%s: %s: others write it all the time", by.Field, by)
}

// addressed gives a Spec's claims the addresses that its IPAMClaim names, if any. claim is nil
// where only the book says so.
func (k *Keeper) addressed(ctx context.Context, store Store, s *core.Spec, by core.IPAMClaim) (claim *cluster.IPAMClaim, err error) {
	claim, err = store.IPAMClaim(ctx, by.Namespace, by.Name)
	switch {
	case silent(err) && k.fromBook(s):
		return nil, nil //nolint:nilnil // nobody can read it
	case err != nil:
		return nil, core.WithCode(core.CodeTryAgain, by.Field, err)
	}
	s.Claims, err = named(s, by, claim)
	return claim, err
}

// fill has a claim name the addresses that were chosen for it.
func (k *Keeper) fill(ctx context.Context, store Store, claim *cluster.IPAMClaim, claims []core.Claim) error {
	var ips []netip.Prefix
	for _, c := range claims {
		if c.Pool != nil {
			ips = append(ips, netip.PrefixFrom(c.Addr, c.Pool.Bits))
		}
	}
	return store.Fill(ctx, claim, ips)
}

func refusedClaim(by core.IPAMClaim, format string, args ...any) error {
	return annotation.Refused(core.CodeValue, by.Field, by.Name, format, args...)
}

// named are an interface's claims with the addresses that its IPAMClaim names. Where it names
// none yet they are as they were.
//
// 102: it is for another network or interface, or names what is no address.
// AddressOutsideSubnet (103): an address that the network does not give.
func named(s *core.Spec, by core.IPAMClaim, claim *cluster.IPAMClaim) (out []core.Claim, err error) {
	if of := claim.Spec.Network; of != "" && !slices.Contains(by.Networks, of) {
		return nil, refusedClaim(by, "cannot be used: spec.network of %s is %q, and this network is %s", by, annotation.Clip(of), by.Networks[0])
	}
	if of := claim.Spec.Interface; of != "" && of != s.Key.IfName {
		return nil, refusedClaim(by, "cannot be used: spec.interface of %s is %q, and this interface is %s", by, annotation.Clip(of), s.Key.IfName)
	}
	if len(claim.Status.IPs) == 0 {
		return s.Claims, nil
	}
	var pools []core.Claim
	for _, c := range s.Claims {
		if c.Pool != nil {
			pools = append(pools, c)
		} else {
			out = append(out, c)
		}
	}
	for _, text := range claim.Status.IPs {
		c, err := fits(by, pools, text)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o core.Claim) bool { return o.Addr == c.Addr }) {
			out = append(out, c)
		}
	}
	return out, nil
}

// fits is the claim of an address in the pool that has it.
func fits(by core.IPAMClaim, pools []core.Claim, text string) (c core.Claim, err error) {
	one, err := element.ParseIP(text)
	if err != nil {
		return c, refusedClaim(by, "cannot be used: status.ips of %s has %q, which is no address", by, annotation.Clip(text))
	}
	var labels []string
	for _, c := range pools {
		if c.Pool.Has(one.Addr) && (one.Bits < 0 || one.Bits == c.Pool.Bits) {
			c.Addr = one.Addr
			return c, nil
		}
		labels = append(labels, c.Pool.Label)
	}
	return c, core.Reasoned(core.CodeAddress, core.ReasonAddressOutsideSubnet, "%s: status.ips of %s has %s, which is no address that %s gives: it is outside, excluded, declared of a pod or of another prefix length",
		by.Field, by, text, strings.Join(labels, ", "))
}

// fromBook gives a Spec's claims the addresses that this node has for its pod's interface by the
// same IPAMClaim; false where it has none.
func (k *Keeper) fromBook(s *core.Spec) (all bool) {
	h := k.holder(*s)
	var out []core.Claim
	for _, c := range s.Claims {
		if c.Pool == nil {
			out = append(out, c)
			continue
		}
		for _, e := range k.book.All() {
			mine := e.Holder.Pod.String() == h.Pod.String() && e.Holder.Key.IfName == h.Key.IfName && had([]lease.Entry{e}, h)
			if mine && e.Claim.Declared == c.Declared && e.Claim.Domain == c.Domain && c.Pool.Has(e.Claim.Addr) {
				c.Addr = e.Claim.Addr
				out, all = append(out, c), true
			}
		}
	}
	s.Claims = out
	return all
}

// kept are the addresses of a claim's pool that are leased for its IPAMClaim already: an agent
// that was killed, or was not answered, has not told it so.
func (k *Keeper) kept(c core.Claim) (out []candidate) {
	if _, is := core.ParseIPAMClaim(c.Declared); !is {
		return nil
	}
	add := func(one core.Claim) {
		if one.Declared == c.Declared && one.Domain == c.Domain && c.Pool.Has(one.Addr) {
			out = append(out, candidate{one.Addr, true})
		}
	}
	for _, e := range k.book.All() {
		add(e.Claim)
	}
	if k.Seen != nil {
		for _, r := range k.Seen.Declared(func(by string) bool { return by == c.Declared }) {
			add(r.Claim)
		}
	}
	return out
}

// says tells whether what a pod had is declared of it still. What cannot be told is taken for
// declared.
func (k *Keeper) says(ctx context.Context, store Store, pod core.Pod, c core.Claim) bool {
	if by, is := core.ParseIPAMClaim(c.Declared); is {
		if k.Seen != nil {
			k.Seen.Follow() // for reap: it may be gone later
		}
		claim, err := store.IPAMClaim(ctx, by.Namespace, by.Name)
		return err == nil && claim.Names(c.Addr) || err != nil && !errors.Is(err, core.ErrNotFound)
	}
	return k.Declared == nil || k.Declared(ctx, pod, c)
}

// left has a lease that was given back be gone, now or in a while, where nobody declares it or
// keeps it for ever.
func (k *Keeper) left(ctx context.Context, store Store, pod core.Pod, c core.Claim) error {
	if c.Declared != "" {
		if c.Forever || k.says(ctx, store, pod, c) {
			return nil
		}
		return store.Remove(ctx, lease.Name(c))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expiring[lease.Name(c)] = time.Now().Add(reuseDelay)
	return nil
}

// reap deletes leases that nobody has, of IPAMClaims that are gone or name another address.
// Each round asks about a few, whichever: all agents do.
func (k *Keeper) reap(ctx context.Context, store Store) {
	if k.Seen == nil {
		return
	}
	all := k.Seen.Declared(func(by string) bool { _, is := core.ParseIPAMClaim(by); return is })
	all = slices.DeleteFunc(all, func(r cluster.Record) bool { return !r.Holder.IsZero() })
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] }) //nolint:gosec // which come first matters to nobody
	for _, r := range all[:min(sample, len(all))] {
		if k.says(ctx, store, r.Owner, r.Claim) {
			continue
		}
		if err := store.Remove(ctx, r.Name); err != nil {
			k.Log.Warn("a lease whose IPAMClaim is gone is not deleted yet; tried again", "lease", r.Name, "err", err)
		}
	}
}
