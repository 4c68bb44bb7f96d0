package nft

import (
	"cmp"
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"
)

// whole replaces the table as a whole: whatever was done to the old one
// is gone, and no packet sees a state between.
func whole(c knftables.Interface, want Ruleset) *knftables.Transaction {
	tx := c.NewTransaction()
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	if len(want.Chains) == 0 {
		return tx
	}
	tx.Add(&knftables.Table{})
	for _, s := range want.Sets {
		s.write(tx)
	}
	for _, ch := range want.Chains {
		tx.Add(ch.made())
	}
	for _, ch := range want.Chains {
		for _, r := range ch.Rules {
			tx.Add(&knftables.Rule{Chain: ch.Name, Rule: r.Text, Comment: knftables.PtrTo(r.known())})
		}
	}
	return tx
}

// elements are the members, sorted, but for those that lie in others: nft refuses a set whose
// elements overlap. Two that touch stay two: then one that comes or goes changes no other.
func (s Set) elements() (out []netip.Prefix) {
	sorted := make([]netip.Prefix, 0, len(s.Members))
	for _, p := range s.Members {
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range sorted {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// without are those of a that b has not.
func without(a, b []netip.Prefix) (out []netip.Prefix) {
	has := make(map[netip.Prefix]bool, len(b))
	for _, p := range b {
		has[p] = true
	}
	for _, p := range a {
		if !has[p] {
			out = append(out, p)
		}
	}
	return out
}

// write makes a set with all that it holds.
func (s Set) write(tx *knftables.Transaction) {
	s.counters(tx, s.elements()) // before the map: nft makes one command of it and its elements
	s.make(tx)
	s.add(tx, s.elements())
}

// make makes a set, or a map to counters.
func (s Set) make(tx *knftables.Transaction) {
	interval := []knftables.SetFlag{knftables.IntervalFlag}
	if s.Counters {
		tx.Add(&knftables.Map{Name: s.Name, Type: s.kind() + " : counter", Flags: interval})
		return
	}
	tx.Add(&knftables.Set{Name: s.Name, Type: s.kind(), Flags: interval})
}

// counters makes those that the elements of a map name.
func (s Set) counters(tx *knftables.Transaction, elements []netip.Prefix) {
	if !s.Counters {
		return
	}
	for _, p := range elements {
		tx.Add(&knftables.Counter{Name: s.counter(p)})
	}
}

// element is one of a set, or of a map to counters.
func (s Set) element(p netip.Prefix) *knftables.Element {
	if s.Counters {
		return &knftables.Element{Map: s.Name, Key: []string{p.String()}, Value: []string{s.counter(p)}}
	}
	return &knftables.Element{Set: s.Name, Key: []string{p.String()}}
}

func (s Set) add(tx *knftables.Transaction, elements []netip.Prefix) {
	for _, p := range elements {
		tx.Add(s.element(p))
	}
}

// remove takes elements out, and the counters that nothing names any more.
func (s Set) remove(tx *knftables.Transaction, elements []netip.Prefix) {
	for _, p := range elements {
		tx.Delete(s.element(p))
	}
	s.forget(tx, elements)
}

// forget removes the counters of elements that are gone.
func (s Set) forget(tx *knftables.Transaction, elements []netip.Prefix) {
	if !s.Counters {
		return
	}
	for _, p := range elements {
		tx.Delete(&knftables.Counter{Name: s.counter(p)})
	}
}

// destroy removes a set that no rule speaks of any more.
func (s Set) destroy(tx *knftables.Transaction) {
	if s.Counters {
		tx.Delete(&knftables.Map{Name: s.Name})
	} else {
		tx.Delete(&knftables.Set{Name: s.Name})
	}
	s.forget(tx, s.elements())
}
