package ipam

import (
	"cmp"
	"slices"
)

// aged is a set whose members have an age: the one with the lowest sequence
// number is the oldest. Members come in the order of their ages, but for a few that
// come back: adding, removing and finding the oldest cost O(1). A removed member stays
// in the order until it comes up, or until such members are the majority.
type aged[K comparable] struct {
	seq   map[K]uint64
	order []age[K] // by age
	next  int      // what is before it is removed, or parked
}

type age[K comparable] struct {
	key K
	seq uint64
}

func newAged[K comparable]() *aged[K] { return &aged[K]{seq: map[K]uint64{}} }

func (a *aged[K]) len() int { return len(a.seq) }

// put adds k, or gives it a new age.
func (a *aged[K]) put(k K, seq uint64) {
	a.seq[k] = seq
	at := len(a.order)
	if at > 0 && a.order[at-1].seq >= seq { // it comes back
		var found bool
		at, found = slices.BinarySearchFunc(a.order, seq, func(x age[K], seq uint64) int { return cmp.Compare(x.seq, seq) })
		a.next = min(a.next, at)
		if found && a.order[at].key == k {
			return
		}
	}
	a.order = slices.Insert(a.order, at, age[K]{k, seq})
	if len(a.order) > 2*len(a.seq)+64 {
		a.compact()
	}
}

// drop removes k and tells its age.
func (a *aged[K]) drop(k K) (uint64, bool) {
	seq, ok := a.seq[k]
	delete(a.seq, k)
	return seq, ok
}

// oldest finds the oldest member that is wanted. Members that are not are
// parked: they keep their age and are looked at again after a compact.
func (a *aged[K]) oldest(wanted func(K) bool) (K, bool) {
	for ; a.next < len(a.order); a.next++ {
		if x := a.order[a.next]; a.has(x) && wanted(x.key) {
			return x.key, true
		}
	}
	var none K
	return none, false
}

func (a *aged[K]) has(x age[K]) bool {
	seq, ok := a.seq[x.key]
	return ok && seq == x.seq
}

// shed removes the oldest member of all.
func (a *aged[K]) shed() K {
	all := func(K) bool { return true }
	k, ok := a.oldest(all)
	if !ok { // all are parked
		a.compact()
		k, _ = a.oldest(all)
	}
	delete(a.seq, k)
	return k
}

// compact leaves the members alone in the order, and looks at all of them again.
func (a *aged[K]) compact() {
	a.order = slices.DeleteFunc(a.order, func(x age[K]) bool { return !a.has(x) })
	a.next = 0
}
