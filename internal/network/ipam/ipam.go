// Package ipam chooses addresses and MACs for NICs from Subnets and knows who
// holds which. Everything is in memory: making a lease durable is the journal's
// business, and after a restart Restore rebuilds the allocator from what the
// journal kept. Two owners never hold the same address of a subnet.
//
// It must not know pods' annotations, files or the kernel, only Subnets and
// requests.
package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/internal/core"
)

// Request asks for one NIC's addresses.
type Request struct {
	Subnet core.Subnet
	Owner  core.Owner
	IPs    []netip.Addr // fixed, at most one per family; the others are chosen
	// Pool are candidates, each as IPs: the first whose addresses are all free
	// is taken. It excludes IPs.
	Pool [][]netip.Addr
	// Ranges are the only addresses that may be chosen of the families that they have,
	// sorted and disjoint, also those that Subnet excludes.
	Ranges []core.AddrRange
	// Family is the only one of which an address is given.
	Family core.Family
	// Within are the only parts of the subnet whose addresses may be given, at
	// most one a family; a family without one has all of them.
	Within []netip.Prefix
	// Given: somebody who serves all nodes has chosen IPs already.
	Given bool
	MAC   core.MAC // fixed, or nil
	NoMAC bool     // none is to be chosen: the interface is not ours
}

// Allocator holds all pools. Its methods may be called from any goroutine;
// requests for different subnets do not wait for each other.
type Allocator struct {
	seq    atomic.Uint64 // of the last release
	shares Shares        // nil: all addresses of all Subnets are this node's

	mu    sync.RWMutex
	pools map[string]*pool // by Subnet.Name; made at need, removed by Drop alone
}

// New is an allocator that knows no lease yet.
func New() *Allocator { return &Allocator{pools: map[string]*pool{}} }

// Restore replaces everything by what the journal kept. A lease that claims an
// address or MAC which one before it in the list holds gets the rest; the
// conflict is in the error returned, which wraps core.ErrHeld. Put the leases
// of live attachments before those of attachments under removal.
func (a *Allocator) Restore(leases []core.Lease, released []core.Released) error {
	pools, room := map[string]*pool{}, map[string]int{}
	for _, l := range leases {
		room[l.Subnet]++
	}
	at := func(name string) *pool {
		if pools[name] == nil {
			pools[name] = newPool(name, room[name])
		}
		return pools[name]
	}
	// The order of release decides which address is given next, and only
	// newer releases replace older ones.
	released = slices.SortedFunc(slices.Values(released), func(x, y core.Released) int { return cmp.Compare(x.Seq, y.Seq) })
	var last uint64
	for _, r := range released {
		at(r.Subnet).remember(r)
		last = max(last, r.Seq)
	}
	var errs []error
	for _, l := range leases {
		if err := at(l.Subnet).restore(l); err != nil {
			errs = append(errs, fmt.Errorf("restore lease of %s in subnet %s: %w", l.Owner.Key, l.Subnet, err))
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools = pools
	a.seq.Store(max(last, a.seq.Load()))
	return errors.Join(errs...)
}

// Acquire reserves one address per family that the subnet and the request have, and a MAC. Without a
// fixed request the pod's interface gets its former addresses while they are
// free, else the lowest never used, else the one released longest ago. An
// owner that holds a lease of this subnet gets the same lease again.
//
// Errors: core.ErrHeld names the holder, core.ErrExhausted, else a *core.Error
// with code 103 (the address cannot be given) or 102 (the request is not
// valid). They leave owner and subnet to the caller, who has both. After an
// error nothing is reserved.
func (a *Allocator) Acquire(r Request) (core.Lease, error) {
	var w wish
	if err := w.parse(&r); err != nil {
		return core.Lease{}, err
	}
	return a.pool(r.Subnet.Name).acquire(&w)
}

// Retire says what Release will say, and frees nothing yet: to be recorded
// (journal.Forget) before the addresses can go to somebody else. Were they
// freed first, another attachment could be on disk with the same address when
// the agent dies before Forget. What is not held yields a Released without IPs.
func (a *Allocator) Retire(l core.Lease) core.Released {
	return a.pool(l.Subnet).retire(l.Owner.Key, &a.seq)
}

// Release frees a lease and says what is to be remembered of it, the same as
// Retire did before. Releasing what is not held, or is held by another key,
// does nothing and yields a Released without IPs.
func (a *Allocator) Release(l core.Lease) core.Released {
	return a.pool(l.Subnet).release(l.Owner.Key, &a.seq)
}

// Cancel undoes one Acquire that never became durable, as if it had not been:
// the addresses are as fresh, or as old, as they were. Of an owner's repeated
// Acquires it undoes one, so that each caller cancels only what it did.
func (a *Allocator) Cancel(l core.Lease) { a.pool(l.Subnet).cancel(l.Owner.Key) }

// Drop forgets former addresses and the order of reuse of a subnet that is no more, unless
// somebody holds an address of it. Nobody may acquire one meanwhile.
func (a *Allocator) Drop(subnet string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pools[subnet]; p != nil && p.idle() {
		delete(a.pools, subnet)
	}
}

// Who holds addr: one lease per subnet that contains it, by subnet.
func (a *Allocator) Who(addr netip.Addr) []core.Lease {
	addr = addr.Unmap().WithZone("")
	var out []core.Lease
	for _, p := range a.all() {
		if l, ok := p.who(addr); ok {
			out = append(out, l)
		}
	}
	return out
}

// Held are the addresses of a subnet that somebody holds, in no order.
func (a *Allocator) Held(subnet string) []netip.Addr {
	p := a.known(subnet)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.holders))
}

// LeasesOf are the leases of a subnet, by first address.
func (a *Allocator) LeasesOf(subnet string) []core.Lease {
	p := a.known(subnet)
	if p == nil {
		return nil
	}
	return p.leases()
}

// Leases are all leases, by subnet, then by first address.
func (a *Allocator) Leases() []core.Lease {
	var out []core.Lease
	for _, p := range a.all() {
		out = append(out, p.leases()...)
	}
	return out
}

// known is the subnet's pool, nil when there is none.
func (a *Allocator) known(name string) *pool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.pools[name]
}

// pool is the subnet's pool, made when there is none.
func (a *Allocator) pool(name string) *pool {
	if p := a.known(name); p != nil {
		return p
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pools[name] == nil {
		a.pools[name] = newPool(name, 0)
	}
	return a.pools[name]
}

// all are the pools by name.
func (a *Allocator) all() []*pool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	out := make([]*pool, 0, len(a.pools))
	for _, p := range a.pools {
		out = append(out, p)
	}
	slices.SortFunc(out, func(x, y *pool) int { return cmp.Compare(x.name, y.name) })
	return out
}
