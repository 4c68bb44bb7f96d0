package leases

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
)

// Unusable notes that somebody on the network answers for an address which an interface
// has leased: the lease says so when it is given back. Other errors say nothing about it.
func (k *Keeper) Unusable(s core.Spec, err error) {
	wire := (*core.WireConflict)(nil)
	if !errors.As(err, &wire) {
		return
	}
	h := k.holder(s)
	for _, c := range s.Claims {
		if c.Addr == wire.Addr.Unmap() {
			k.book.Note(h, c, fmt.Sprintf("pod %s on node %s was refused: %v", h.Pod, k.Node, wire))
		}
	}
}

// unless has a lease that was given back say what it is to say: that the wire keeps it from
// the pod, which is looked at again until the pod is gone, or nothing of a conflict with
// another holder any more.
func (k *Keeper) unless(ctx context.Context, store Store, name string, e lease.Entry) error {
	k.mu.Lock()
	_, told := k.conflicts[name]
	if e.Conflict != "" {
		e.Leaving = true
		k.answered[name] = e
	}
	k.mu.Unlock()
	if !told {
		return nil
	}
	return store.Settle(ctx, name, cluster.ReasonHeldTwice)
}

// calm has leases that the wire kept from a pod say so no longer when the pod is gone. One
// that is bound again says it no more.
func (k *Keeper) calm(ctx context.Context, store Store) {
	k.mu.Lock()
	all := maps.Clone(k.answered)
	k.mu.Unlock()
	for name, e := range all {
		if _, busy := k.book.Get(name); busy || !k.gone(e.Holder.Pod) {
			continue
		}
		if err := store.Settle(ctx, name, core.ReasonAddressConflict); err != nil {
			k.Log.Warn("a lease still says that it is in conflict; tried again", "lease", name, "err", err)
			continue
		}
		k.calmed(name)
	}
}

// confirm notes that a holder has what it claims: that is in no conflict any more.
func (k *Keeper) confirm(h lease.Holder, c core.Claim) {
	k.book.Confirm(h, c)
	k.calmed(lease.Name(c))
}

func (k *Keeper) calmed(name string) {
	k.mu.Lock()
	_, was := k.answered[name]
	delete(k.answered, name)
	k.mu.Unlock()
	if was {
		k.save(true)
	}
}

// gone tells that no pod of that UID is here, where anybody can tell.
func (k *Keeper) gone(pod core.Pod) bool {
	if k.Gone == nil {
		return false
	}
	gone, err := k.Gone(pod)
	return gone && err == nil
}

// contested tells that another has what a sandbox of this node has: the pod, and in the lease
// whoever looks there.
func (k *Keeper) contested(ctx context.Context, store Store, name string, e lease.Entry, text string) {
	k.conflict(name, e, text)
	err := store.Contest(ctx, name, e.Ours, fmt.Sprintf("pod %s on node %s has it too, as the journal there says", e.Holder.Pod, k.Node))
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("a lease does not say yet that it is in conflict; tried again", "lease", name, "err", err)
	}
}

// waits tells that leases wait for pods to be gone.
func (k *Keeper) waits() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.answered) > 0
}
