package ipam

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/internal/core"
)

// maxReleased bounds what is remembered of released addresses, per subnet (by
// interface) and per subnet and family (by address). What is forgotten counts
// as never used.
const maxReleased = 1 << 16

// pool is one subnet. It can hold leases before its CIDRs are known, because
// Restore knows leases and no Subnets.
type pool struct {
	name string

	mu      sync.Mutex
	subnet  core.Subnet // what spaces follow from, and so do within
	within  [families]netip.Prefix
	spaces  [families]*space
	holders map[netip.Addr]*holding
	macs    map[[6]byte]*holding
	owners  map[core.Key]*holding
	freed   [families]*aged[netip.Addr]
	former  map[interfaceID]core.Released
	formers *aged[interfaceID]
}

// interfaceID names a pod's interface across restarts of the pod.
type interfaceID struct{ namespace, name, ifName string }

func idOf(p core.Pod, ifName string) interfaceID { return interfaceID{p.Namespace, p.Name, ifName} }

// holding is one lease and what it takes to undo it.
type holding struct {
	lease    core.Lease
	acquired int // Acquires not cancelled; Restore counts as one
	// ages are the places in the order of reuse that the addresses had;
	// missing = never used, nil = none of them was.
	ages    map[netip.Addr]uint64
	retired uint64 // Seq that Retire gave out, 0 = none
}

// newPool knows no CIDR yet: the first Acquire brings the Subnet. It has room for
// some leases, and grows.
func newPool(name string, room int) *pool {
	p := &pool{
		name:    name,
		holders: make(map[netip.Addr]*holding, room),
		macs:    make(map[[6]byte]*holding, room),
		owners:  make(map[core.Key]*holding, room),
		former:  map[interfaceID]core.Released{},
		formers: newAged[interfaceID](),
	}
	for f := range p.freed {
		p.freed[f] = newAged[netip.Addr]()
	}
	return p
}

// acquire serves a wish. Nothing changes before all of it can be served.
func (p *pool) acquire(w *wish) (core.Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.owners[w.owner.Key]; h != nil {
		return h.again(w)
	}
	if !w.subnet.Implied {
		p.configure(w)
	}
	w.former = p.remembered(w.owner)
	if err := p.pick(w); err != nil {
		return core.Lease{}, err
	}
	if err := p.free(w); err != nil {
		return core.Lease{}, err
	}
	l := core.Lease{Subnet: p.name, Owner: w.owner}
	for f := range families {
		if !w.wants(f) {
			continue
		}
		ip := w.fixed[f]
		if !ip.IsValid() {
			var ok bool
			if ip, ok = p.choose(f, w); !ok {
				return core.Lease{}, fmt.Errorf("%s: %w", w.places(f), core.ErrExhausted)
			}
		}
		l.IPs = append(l.IPs, ip)
	}
	l.MAC = p.mac(w, l.IPs)
	l.Quiet = p.quiet(w, l)
	p.hold(&holding{lease: l, acquired: 1})
	return clone(l), nil
}

// again answers an owner that has a lease already.
func (h *holding) again(w *wish) (core.Lease, error) {
	for _, ip := range w.fixed {
		if ip.IsValid() && !slices.Contains(h.lease.IPs, ip) {
			return core.Lease{}, core.Errorf(core.CodeConflict, "%s is requested, and %v are held already", ip, h.lease.IPs)
		}
	}
	if w.mac != nil && !slices.Equal(w.mac, h.lease.MAC) {
		return core.Lease{}, core.Errorf(core.CodeConflict, "MAC %s is requested, and %s is held already", w.mac, h.lease.MAC)
	}
	h.acquired++
	return clone(h.lease), nil
}

// free is nil when the fixed addresses and the MAC of w are nobody else's, and says
// who has one otherwise.
func (p *pool) free(w *wish) error {
	for _, ip := range w.fixed {
		if h := p.holders[ip]; h != nil {
			return fmt.Errorf("%s is %w", ip, h.err())
		}
	}
	if w.mac == nil {
		return nil
	}
	if h := p.macs[[6]byte(w.mac)]; h != nil {
		return fmt.Errorf("MAC %s is %w", w.mac, h.err())
	}
	return nil
}

// err tells who is in the way, by names an operator can look up.
func (h *holding) err() error {
	return fmt.Errorf("%w by pod %s (%s)", core.ErrHeld, h.lease.Owner.Pod, h.lease.Owner.Key.IfName)
}

// choose finds an address and leaves it where it is: hold takes it.
func (p *pool) choose(f family, w *wish) (netip.Addr, bool) {
	sp := p.spaces[f]
	choosable := sp.choosable
	if len(w.ranges[f]) > 0 {
		choosable = w.ranged
	}
	for _, ip := range w.former.IPs {
		if familyOf(ip) == f && p.holders[ip] == nil && choosable(ip) {
			return ip, true
		}
	}
	if len(w.ranges[f]) > 0 {
		return p.chooseOf(w.ranges[f])
	}
	if ip, ok := sp.lowest(); ok {
		return ip, true
	}
	return p.freed[f].oldest(sp.choosable)
}

// remembered is what the same interface of the same pod name held last; a bare
// container has no name under which it could come back.
func (p *pool) remembered(o core.Owner) core.Released {
	if o.Pod.IsZero() {
		return core.Released{}
	}
	return p.former[idOf(o.Pod, o.Key.IfName)]
}

// mac is the wanted MAC, none where none is needed, else the one that came with
// the former address, else a random one that is locally administered.
func (p *pool) mac(w *wish, ips []netip.Addr) core.MAC {
	if w.mac != nil {
		return slices.Clone(w.mac)
	}
	if w.noMAC {
		return nil
	}
	old := &w.former
	if len(old.MAC) > 0 && checkMAC(old.MAC) == nil && p.macs[[6]byte(old.MAC)] == nil {
		for _, ip := range old.IPs {
			if slices.Contains(ips, ip) {
				return slices.Clone(old.MAC)
			}
		}
	}
	for {
		var m [6]byte
		_, _ = rand.Read(m[:]) // never fails (crypto/rand)
		m[0] = m[0]&^1 | 2
		if p.macs[m] == nil {
			return m[:]
		}
	}
}

// quiet tells that nobody can remember an address of the lease with another
// MAC: it was never given out, or last to the same interface, which keeps its
// MAC. What is requested may have been anywhere, on another node for one.
func (p *pool) quiet(w *wish, l core.Lease) bool {
	if w.mac != nil {
		return false
	}
	old := &w.former
	for _, ip := range l.IPs {
		f := familyOf(ip)
		seq, given := p.freed[f].seq[ip]
		if w.fixed[f].IsValid() || given && (seq != old.Seq || !slices.Equal(l.MAC, old.MAC)) {
			return false
		}
	}
	return true
}

// hold enters a lease whose addresses and MAC are free.
func (p *pool) hold(h *holding) {
	for _, ip := range h.lease.IPs {
		f := familyOf(ip)
		if seq, ok := p.freed[f].drop(ip); ok {
			if h.ages == nil {
				h.ages = map[netip.Addr]uint64{}
			}
			h.ages[ip] = seq
		}
		p.holders[ip] = h
		p.spaces[f].take(ip)
	}
	if len(h.lease.MAC) == 6 {
		p.macs[[6]byte(h.lease.MAC)] = h
	}
	p.owners[h.lease.Owner.Key] = h
}

// drop undoes hold, but for the addresses' places in the order of reuse.
func (p *pool) drop(h *holding) {
	for _, ip := range h.lease.IPs {
		delete(p.holders, ip)
	}
	if len(h.lease.MAC) == 6 {
		delete(p.macs, [6]byte(h.lease.MAC))
	}
	delete(p.owners, h.lease.Owner.Key)
}

// cancel puts the addresses back where they were in the order of reuse, so that
// failing ADDs do not use up the addresses that nobody ever had.
func (p *pool) cancel(k core.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.owners[k]
	if h == nil {
		return
	}
	if h.acquired--; h.acquired > 0 {
		return
	}
	p.drop(h)
	for _, ip := range h.lease.IPs {
		if seq, ok := h.ages[ip]; ok {
			p.freed[familyOf(ip)].put(ip, seq)
		} else {
			p.spaces[familyOf(ip)].forget(ip)
		}
	}
}

// retire numbers the release while the lease still stands.
func (p *pool) retire(k core.Key, seq *atomic.Uint64) core.Released {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.owners[k]
	if h == nil {
		return core.Released{}
	}
	return h.released(seq)
}

// released is what is remembered of a holding, with a Seq of its own.
func (h *holding) released(seq *atomic.Uint64) core.Released {
	if h.retired == 0 {
		h.retired = seq.Add(1)
	}
	l := clone(h.lease)
	return core.Released{Subnet: l.Subnet, Pod: l.Owner.Pod, IfName: l.Owner.Key.IfName, IPs: l.IPs, MAC: l.MAC, Seq: h.retired}
}

// release goes by key and not by address: a late Release of an old owner cannot
// free what a new one holds.
func (p *pool) release(k core.Key, seq *atomic.Uint64) core.Released {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.owners[k]
	if h == nil {
		return core.Released{}
	}
	r := h.released(seq)
	p.drop(h)
	p.remember(r)
	return r
}

// remember notes a release: for the interface, and in the order of reuse.
func (p *pool) remember(r core.Released) {
	if !r.Pod.IsZero() {
		id := idOf(r.Pod, r.IfName)
		p.former[id] = r
		p.formers.put(id, r.Seq)
		if p.formers.len() > maxReleased {
			delete(p.former, p.formers.shed())
		}
	}
	for _, ip := range r.IPs {
		f := familyOf(ip)
		p.freed[f].put(ip, r.Seq)
		p.spaces[f].take(ip)
		if p.freed[f].len() > maxReleased {
			p.spaces[f].forget(p.freed[f].shed())
		}
	}
}

// restore enters a lease from the journal, or what is free of it.
func (p *pool) restore(l core.Lease) error {
	l = clone(l)
	var err error
	l.IPs = slices.DeleteFunc(l.IPs, func(ip netip.Addr) bool {
		h := p.holders[ip]
		if h != nil {
			err = fmt.Errorf("%s is %w", ip, h.err())
		}
		return h != nil
	})
	if len(l.MAC) == 6 && p.macs[[6]byte(l.MAC)] != nil {
		err = fmt.Errorf("MAC %s is %w", l.MAC, p.macs[[6]byte(l.MAC)].err())
		l.MAC = nil
	}
	if h := p.owners[l.Owner.Key]; h != nil {
		return fmt.Errorf("key %s is %w", l.Owner.Key, h.err())
	}
	p.hold(&holding{lease: l, acquired: 1})
	return err
}

// configure makes the spaces follow the Subnet; usually it is as it was.
func (p *pool) configure(w *wish) {
	s := &w.subnet
	if p.subnet.Name != "" && p.within == w.within && slices.Equal(s.CIDRs, p.subnet.CIDRs) &&
		slices.Equal(s.Gateways, p.subnet.Gateways) && slices.Equal(s.Exclude, p.subnet.Exclude) {
		return
	}
	p.subnet, p.within = *s, w.within
	for f, cidr := range w.cidrs {
		p.spaces[f] = nil
		if !cidr.IsValid() {
			continue
		}
		// A block has no gateway and no network address of its own; leaving out its
		// ends costs two addresses.
		sp := newSpace(w.part(f), *s)
		p.spaces[f] = sp
		for ip := range p.holders {
			sp.take(ip)
		}
		for ip := range p.freed[f].seq {
			sp.take(ip)
		}
		p.freed[f].compact() // what was excluded may not be any more
	}
}

// who compares addresses, not CIDRs: a lease outside of a changed CIDR counts.
func (p *pool) who(ip netip.Addr) (core.Lease, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.holders[ip]
	if h == nil {
		return core.Lease{}, false
	}
	return clone(h.lease), true
}

// idle tells that nobody holds an address.
func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.owners) == 0
}

// leases are in a stable order, for tables and tests.
func (p *pool) leases() []core.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]core.Lease, 0, len(p.owners))
	for _, h := range p.owners {
		out = append(out, clone(h.lease))
	}
	slices.SortFunc(out, func(a, b core.Lease) int {
		return cmp.Or(slices.CompareFunc(a.IPs, b.IPs, netip.Addr.Compare), cmp.Compare(a.Owner.Key.String(), b.Owner.Key.String()))
	})
	return out
}

// clone keeps callers' hands off our slices.
func clone(l core.Lease) core.Lease {
	l.IPs = slices.Clone(l.IPs)
	l.MAC = slices.Clone(l.MAC)
	return l
}
