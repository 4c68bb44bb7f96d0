package leases

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
)

const (
	// perNode is how often an agent asks for a node at most that has addresses of a pool which
	// has none left.
	perNode = time.Second
	// idle is how long nobody has had a chosen address before any agent deletes its lease: that
	// which gave it back, and has that in mind, does so after reuseDelay.
	idle = 10 * time.Minute
	// furthest is how many candidates one who has lost races passes over at most.
	furthest = 256
)

// Seen is what is known of all leases, which may be a moment old: it spares attempts, and
// decides nothing.
type Seen interface {
	// Run follows them until ctx ends, from the first Known.
	Run(ctx context.Context)
	// Known waits until they were read once; core.ErrUnavailable where ctx ends before.
	Known(ctx context.Context) error
	Get(name string) (cluster.Record, bool)
	// Idle are the chosen addresses' leases that nobody has had since before.
	Idle(before time.Time) []string
	// Follow has Run follow them without waiting for Known.
	Follow()
	// Declared are the leases of what an object declares for which of says so.
	Declared(of func(declared string) bool) []cluster.Record
}

// choose makes an interface the holder of an address of its claim's pool: the lowest of which
// there is no lease, else the one that is free for the longest time, else one whose holder is
// proved dead. What an IPAMClaim has had before comes first for it, and last for others.
// core.ErrExhausted: there is none.
func (k *Keeper) choose(ctx context.Context, h lease.Holder, c core.Claim) (core.Claim, error) {
	ctx, stop := context.WithTimeout(ctx, bindLimit)
	defer stop()
	store := k.store()
	if err := k.mayChoose(ctx, store); err != nil {
		return c, core.WithCode(core.CodeTryAgain, "leases of interface "+h.Key.IfName, err)
	}
	err := k.first(ctx, h, &c, k.candidates(ctx, store, h, c))
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, core.ErrExhausted):
		return c, err
	}
	return c, core.WithCode(core.CodeTryAgain, "leases of interface "+h.Key.IfName, err)
}

// first has a claim be of the first candidate that h gets. Where another is faster it goes on a
// little further on, the further the more often, and to what it has passed over in the end: many
// agents that begin at once would else lose all races but one each.
func (k *Keeper) first(ctx context.Context, h lease.Holder, c *core.Claim, all iter.Seq[candidate]) error {
	var passed []candidate
	pass, spread := 0, 1
	try := func(a candidate) (done bool, err error) {
		c.Addr = a.addr
		err = k.take(ctx, h, c, a.known)
		if err == nil || core.ReasonOf(err) != core.ReasonAddressHeld {
			return true, err
		}
		spread = min(2*spread, furthest)
		pass = rand.IntN(spread) //nolint:gosec // nobody is to guess it, but others not to do the same
		return false, nil
	}
	for a := range all {
		if pass > 0 {
			pass--
			passed = append(passed, a)
			continue
		}
		if done, err := try(a); done {
			return err
		}
	}
	for _, a := range passed {
		if done, err := try(a); done {
			return err
		}
	}
	c.Addr = netip.Addr{}
	return fmt.Errorf("%s: %w", c.Pool.Label, core.ErrExhausted)
}

// mayChoose is nil where this node may bind, and the leases are known.
func (k *Keeper) mayChoose(ctx context.Context, store Store) error {
	if store == nil {
		return nil
	}
	n, err := store.NodeNow(ctx, k.Node)
	if err == nil {
		err = lease.Own(k.Node, k.BootID, n)
	}
	if err == nil {
		err = k.Seen.Known(ctx)
	}
	return err
}

// take binds one address, of which a lease is known or not. AddressHeld: another was faster,
// and nothing has changed.
func (k *Keeper) take(ctx context.Context, h lease.Holder, c *core.Claim, known bool) error {
	bare := core.Claim{Domain: c.Domain, Wire: c.Wire, Addr: c.Addr, Declared: c.Declared}
	before, err := k.book.Take(h, []core.Claim{bare}, time.Now())
	store := k.store()
	if err != nil || store == nil {
		return err
	}
	if known {
		c.Epoch, err = store.Bind(ctx, h, bare, k.ours(lease.Name(bare)), func() error { return nil }) // mayChoose has said it
	} else {
		c.Epoch, err = store.Create(ctx, h, bare)
	}
	switch {
	case err == nil:
		bare.Epoch = c.Epoch
		k.confirm(h, bare)
	case core.ReasonOf(err) == core.ReasonAddressHeld:
		k.book.Lost(h, bare, before[0])
	default:
		k.queue.Add(k.book.Undo(h, []core.Claim{bare}, before)...)
	}
	return err
}

// candidate is an address that may be had; known: there is a lease of it.
type candidate struct {
	addr  netip.Addr
	known bool
}

// candidates are the addresses of a claim's pool that h may have, the best first.
func (k *Keeper) candidates(ctx context.Context, store Store, h lease.Holder, c core.Claim) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		for _, one := range k.kept(c) {
			if !yield(one) {
				return
			}
		}
		of := map[chance][]cluster.Record{}
		for a := range addresses(c.Pool.Ranges) {
			r, what := k.chance(ctx, store, h, core.Claim{Domain: c.Domain, Addr: a})
			if what == best && !yield(candidate{a, r.Name != ""}) || ctx.Err() != nil {
				return
			}
			if what > best {
				of[what] = append(of[what], r)
			}
		}
		for _, some := range of {
			slices.SortStableFunc(some, func(x, y cluster.Record) int { return x.Since.Compare(y.Since) })
		}
		for _, some := range []func() []cluster.Record{
			func() []cluster.Record { return of[free] },
			func() []cluster.Record { return k.dead(ctx, store, of[held]) },
			func() []cluster.Record { return of[reserved] },
		} {
			for _, r := range some() {
				if !yield(candidate{r.Claim.Addr, true}) {
					return
				}
			}
		}
	}
}

// chance is how good a candidate is.
type chance int

const (
	none     chance = iota // somebody of this node has it, or it is reserved
	best                   // there is no lease of it, or one of the same pod's from an ADD that came to nothing
	free                   // there is a lease that nobody has
	held                   // on another node
	reserved               // nobody has it, and an IPAMClaim may name it, which Bind asks
)

// chance is what is known of an address, with its lease where there is one.
func (k *Keeper) chance(ctx context.Context, store Store, h lease.Holder, c core.Claim) (cluster.Record, chance) {
	name := lease.Name(c)
	e, here := k.book.Get(name)
	switch {
	case here && (!e.Free || unclaimed(e.Claim) == reserved):
		return cluster.Record{}, none
	case here: // it is about to be given back
		return cluster.Record{Name: name, Claim: c, Since: e.Since}, free
	case store == nil:
		return cluster.Record{}, best
	}
	r, known := k.Seen.Get(name)
	switch {
	case !known:
		return r, best
	case r.Holder.IsZero():
		return r, k.unheld(ctx, r)
	case r.Holder.Node != k.Node:
		return r, held
	case r.Holder.Key.IfName == h.Key.IfName && (h.Same(r.Holder) || h.Reincarnates(r.Holder)):
		return r, best
	}
	return r, none
}

// unheld is the chance of an address whose lease nobody has: none as long as it is declared of
// a pod, or kept for it.
func (k *Keeper) unheld(ctx context.Context, r cluster.Record) chance {
	what := unclaimed(r.Claim)
	if what == free && r.Claim.Declared != "" && (r.Claim.Forever || k.Declared == nil || k.Declared(ctx, r.Owner, r.Claim)) {
		return none
	}
	return what
}

// unclaimed is the chance of an address that nobody has, as far as IPAMClaims go.
func unclaimed(c core.Claim) chance {
	if _, is := core.ParseIPAMClaim(c.Declared); is {
		return reserved
	}
	return free
}

// dead are those of held leases whose node is proved to be no more, or another boot's.
func (k *Keeper) dead(ctx context.Context, store Store, held []cluster.Record) (out []cluster.Record) {
	now, asked := map[string]lease.Node{}, map[string]lease.Holder{}
	for _, r := range held { // one that is fenced is told more of
		if asked[r.Holder.Node].IsZero() || r.Holder.SelfFence {
			asked[r.Holder.Node] = r.Holder
		}
	}
	for _, r := range held {
		n, known := now[r.Holder.Node]
		if !known {
			if k.lately(r.Holder.Node) {
				continue
			}
			var err error
			if n, err = store.NodeOf(ctx, asked[r.Holder.Node]); err != nil {
				return out
			}
			now[r.Holder.Node] = n
		}
		if lease.Dead(r.Holder, n) != "" {
			out = append(out, r)
		}
	}
	return out
}

// lately tells that a node was asked for a while ago, the longer the more nodes there are;
// else it notes that it is now.
func (k *Keeper) lately(node string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if was, ok := k.looked[node]; ok && time.Since(was) < perNode*time.Duration(len(k.looked)) {
		return true
	}
	k.looked[node] = time.Now()
	return false
}

// addresses are those of ranges, in order.
func addresses(ranges []core.AddrRange) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for _, r := range ranges {
			for a := r.From; a.IsValid() && a.Compare(r.To) <= 0; a = a.Next() {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// obtain makes a Spec's interface the holder of all that it claims, or of nothing.
func (k *Keeper) obtain(ctx context.Context, s *core.Spec) error {
	if by := byClaim(s.Claims); by != nil {
		return k.obtainFor(ctx, s, *by)
	}
	return k.obtainAll(ctx, s)
}

func (k *Keeper) obtainAll(ctx context.Context, s *core.Spec) (err error) {
	h := k.claimant(*s)
	var have, pools []core.Claim
	for _, c := range s.Claims {
		if c.Pool != nil && !c.Addr.IsValid() {
			pools = append(pools, c)
		} else {
			have = append(have, c)
		}
	}
	if len(have) > 0 {
		if have, err = k.bind(ctx, h, have); err != nil {
			return err
		}
	}
	for _, c := range pools {
		one, err := k.choose(ctx, h, c)
		if err != nil {
			part := *s
			part.Claims = have
			k.Free([]core.Spec{part})
			return err
		}
		have = append(have, one)
	}
	s.Claims = have
	return nil
}
