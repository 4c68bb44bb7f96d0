package leases

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
)

const (
	every = 30 * time.Second // between two rounds while there are leases
	quiet = 10 * time.Minute // while there are none
	grace = time.Minute      // for an ADD that is binding
)

// Audit has the leases compared with the book at once.
func (k *Keeper) Audit() {
	select {
	case k.audits <- struct{}{}:
	default:
	}
}

// look is a round and what goes with it; it tells when the next one is due: often while this node
// has leases, or the API server did not answer.
func (k *Keeper) look(ctx context.Context) time.Duration {
	store := k.store()
	if store == nil {
		return every
	}
	some, err := k.Round(ctx, store)
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("leases not compared with the journal", "err", err)
	}
	k.expire(ctx, store)
	k.reap(ctx, store)
	k.calm(ctx, store)
	if some || err != nil || len(k.book.All()) > 0 || k.waits() {
		return every
	}
	return quiet
}

// Round compares once, and tells whether this node has leases: the leases are read first,
// then who of this node has what. A lease of this node that no sandbox has, and of whose
// pod there is nothing here, goes in the second round that says so. What a sandbox has
// and the API server says otherwise is put right, unless another has it.
func (k *Keeper) Round(ctx context.Context, store Store) (some bool, err error) {
	mine, err := store.Mine(ctx)
	if err != nil {
		return false, err
	}
	seen, strays := k.compare(mine)
	k.drop(ctx, store, strays)
	k.settled()
	for _, e := range k.book.All() {
		if e.Free || seen[lease.Name(e.Claim)] || e.Claim.Epoch == 0 && time.Since(e.Since) < grace {
			continue
		}
		if one := k.restore(ctx, store, e); one != nil && err == nil {
			err = one
		}
	}
	return len(mine) > 0, err
}

// compare divides the leases that the API server says are this node's: those whose holder
// has them, and those of nobody here.
func (k *Keeper) compare(mine []cluster.Record) (seen map[string]bool, strays map[string]cluster.Record) {
	seen, strays = map[string]bool{}, map[string]cluster.Record{}
	for _, r := range mine {
		e, known := k.book.Get(r.Name)
		switch {
		case !known:
			if k.stray(r) {
				strays[r.Name] = r
			}
		case e.Free && e.Ours(r.Holder):
			k.queue.Add(r.Name)
		case !e.Free && e.Holder.Same(r.Holder) && e.Holder.SelfFence == r.Holder.SelfFence:
			seen[r.Name] = true
			k.peace(r.Name)
		}
	}
	return seen, strays
}

// stray tells a lease of this node whose pod is not here any more, or whose interface has what is
// leased in another domain.
func (k *Keeper) stray(r cluster.Record) bool {
	return r.Holder.Pod.IsZero() || k.Gone == nil || k.gone(r.Holder.Pod) || k.elsewhere(r)
}

// elsewhere tells that the book has a lease's interface with the same address or MAC in another
// domain: it goes from VLAN to VLAN, and the agent was killed between the claim and its journal.
// An interface whose record was lost, or whose lease was adopted, is not in the book with it.
func (k *Keeper) elsewhere(r cluster.Record) bool {
	return slices.ContainsFunc(k.book.All(), func(e lease.Entry) bool {
		same := e.Claim.Addr == r.Claim.Addr && slices.Equal(e.Claim.MAC, r.Claim.MAC)
		return same && !e.Free && e.Holder.Same(r.Holder) && e.Holder.Key.IfName == r.Holder.Key.IfName
	})
}

// drop releases strays that the round before has seen too.
func (k *Keeper) drop(ctx context.Context, store Store, strays map[string]cluster.Record) {
	k.mu.Lock()
	before := k.strays
	k.strays = strays
	k.mu.Unlock()
	for name, r := range strays {
		if was, ok := before[name]; !ok || was.Holder != r.Holder || was.Claim.Epoch != r.Claim.Epoch {
			continue
		}
		k.Log.Warn("a lease of this node that no sandbox has is given back", "lease", name, "pod", r.Holder.Pod, "container", r.Holder.Key.Container)
		err := store.Release(ctx, name, func(h lease.Holder) bool {
			_, known := k.book.Get(name)
			return !known && h == r.Holder
		}, "")
		if err == nil {
			err = k.left(ctx, store, r.Owner, r.Claim)
		}
		if err != nil {
			k.Log.Warn("it is not given back yet; tried again", "lease", name, "err", err)
		}
	}
}

// restore has the API server say what a sandbox of this node has. It may say otherwise
// because its database is an older one, or because somebody wrote it.
func (k *Keeper) restore(ctx context.Context, store Store, e lease.Entry) error {
	name := lease.Name(e.Claim)
	r, there, err := store.Get(ctx, name)
	if err != nil {
		return err
	}
	theirs, err := k.rebind(ctx, store, e, r.Stolen)
	if err == nil && theirs == "" && (!there || !e.Holder.Same(r.Holder)) { // else it was told how it is fenced
		k.Log.Warn("the API server did not know who has a lease: it is told again", "lease", name, "pod", e.Holder.Pod, "container", e.Holder.Key.Container)
	}
	return err
}

// rebind writes a lease as its sandbox has it, whatever it says, unless another has it: who
// does is theirs, and is told. stolen is the sandbox from which it was taken by hand last.
func (k *Keeper) rebind(ctx context.Context, store Store, e lease.Entry, stolen string) (theirs string, err error) {
	name := lease.Name(e.Claim)
	if stolen != "" && stolen == e.Holder.Key.Container {
		theirs = fmt.Sprintf("%s of interface %s was taken from it by hand (AddressLease %s); it has it as long as it runs", e.Claim, e.Holder.Key.IfName, name)
		k.contested(ctx, store, name, e, theirs)
		return theirs, nil
	}
	epoch, err := store.Bind(ctx, e.Holder, e.Claim, e.Ours, func() error { return nil })
	switch reason := core.ReasonOf(err); {
	case reason == core.ReasonAddressHeld || reason == core.ReasonMACInUse:
		theirs = fmt.Sprintf("the API server gives what interface %s has to another: %v", e.Holder.Key.IfName, err)
		k.contested(ctx, store, name, e, theirs)
		return theirs, nil
	case err != nil:
		return "", err
	}
	e.Claim.Epoch = epoch
	k.confirm(e.Holder, e.Claim)
	k.peace(name)
	return "", nil
}

// Reclaim has the API server say anew that an interface of this node has what it claims. Each
// lease is written, also one that says so already: a node that has proved this one dead a
// moment before, and has yet to write, is refused then. theirs says that another has one by
// now, or that the interface has given it back.
func (k *Keeper) Reclaim(ctx context.Context, s core.Spec) (theirs string, err error) {
	store, h := k.store(), k.holder(s)
	for _, c := range s.Claims {
		e, ok := k.book.Get(lease.Name(c))
		if !ok || e.Free || !e.Holder.Same(h) {
			return fmt.Sprintf("%s is given back", c), nil
		}
		if store == nil {
			return "", core.ErrUnavailable
		}
		r, _, err := store.Get(ctx, lease.Name(c))
		if err != nil {
			return "", err
		}
		if theirs, err = k.rebind(ctx, store, e, r.Stolen); theirs != "" || err != nil {
			return theirs, err
		}
	}
	return "", nil
}

// conflict tells once that another may have what a pod has, of a holder that has it still.
func (k *Keeper) conflict(name string, e lease.Entry, text string) {
	pod := e.Holder.Pod
	k.mu.Lock()
	_, told := k.conflicts[name]
	now, there := k.book.Get(name)
	has := there && !now.Free && now.Holder.Same(e.Holder)
	if has {
		k.conflicts[name] = pod
	}
	k.mu.Unlock()
	if told || !has {
		return
	}
	k.save(false)
	k.Log.Error("two may have one address", "lease", name, "pod", pod, "reason", text)
	if k.Conflict != nil {
		k.Conflict(pod, text)
	}
}

// peace tells that a conflict is over, unless the pod has another.
func (k *Keeper) peace(name string) {
	k.mu.Lock()
	pod, told := k.conflicts[name]
	delete(k.conflicts, name)
	more := slices.Contains(slices.Collect(maps.Values(k.conflicts)), pod)
	k.mu.Unlock()
	if !told {
		return
	}
	if k.Conflict != nil && !more {
		k.Conflict(pod, "")
	}
	k.save(true)
}

// settled tells the end of conflicts about what nobody here has any more.
func (k *Keeper) settled() {
	for name := range k.Conflicts() {
		if _, there := k.book.Get(name); !there {
			k.peace(name)
		}
	}
}

// Conflicts are the leases of pods of this node that the API server says are another's.
func (k *Keeper) Conflicts() map[string]core.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.conflicts)
}

// expire deletes leases that nobody declares, when nobody has had them for a while.
func (k *Keeper) expire(ctx context.Context, store Store) {
	k.mu.Lock()
	due := maps.Clone(k.expiring)
	k.mu.Unlock()
	if k.Seen != nil {
		for _, name := range k.Seen.Idle(time.Now().Add(-idle)) {
			due[name] = time.Time{}
		}
	}
	for name, when := range due {
		if time.Now().Before(when) || store.Remove(ctx, name) != nil {
			continue
		}
		k.mu.Lock()
		delete(k.expiring, name)
		k.mu.Unlock()
	}
}
