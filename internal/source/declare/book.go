package declare

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Book is the Subnets in force at one time and the declarations that they
// follow from; the zero value has none. It is never changed, only followed by
// another one. The rule behind it: what was good and is not meant to go stays in
// force until something good replaces it.
type Book struct {
	decls map[string]*Subnet
	nets  map[string]*core.Subnet // VLANs looked up
}

// Has tells whether a Subnet is in force.
func (b Book) Has(name string) bool {
	_, ok := b.nets[name]
	return ok
}

// Declared is the version of a Subnet that is in force, as it was declared; the
// built-in one was not. It must not be changed.
func (b Book) Declared(name string) *Subnet {
	if d := b.decls[name]; d != nil {
		return d
	}
	return &Subnet{}
}

// hasDefault tells that a Subnet of the default Vpc is declared as the default one.
func (b Book) hasDefault() bool {
	for _, s := range b.nets {
		if s.Default && common(*s) {
			return true
		}
	}
	return false
}

// common tells a Subnet of the Vpc from which pods get addresses that choose none.
func common(s core.Subnet) bool { return s.Vpc == v1.DefaultVpc }

// Next makes the book that follows b when decls are all Subnets that are
// declared, and vlans the Vlans that are. decls stand in order of
// precedence among those that are new, and among those in force that changed;
// these come before new ones, and what stays as it was before both. Refused are those that contradict another Subnet or
// name no Vlan; a refused one that was in force stays so as it was.
//
// A changed Subnet that is refused falls back to its last good version, and is
// then as much in force as those that did not change; so the check starts again
// with it until nothing more falls back. The book keeps the declarations: they must not be
// changed after that. One that it has been given before costs it less than another.
func (b Book) Next(decls []*Subnet, vlans map[string]Vlan) (next Book, refused map[string]Fault) {
	pinned := map[string]Fault{}
	for {
		r := round{before: b, vlans: vlans, pinned: pinned, refused: map[string]Fault{}}
		r.run(decls)
		more := false
		for name, f := range r.refused {
			if _, isPinned := pinned[name]; b.Has(name) && !isPinned {
				pinned[name], more = f, true
			}
		}
		if more {
			continue
		}
		maps.Copy(r.refused, pinned)
		return r.next, r.refused
	}
}

// round is one attempt to admit all.
type round struct {
	before  Book
	vlans   map[string]Vlan
	pinned  map[string]Fault // keep their last good version
	next    Book
	refused map[string]Fault
}

// run admits unchanged and pinned Subnets first, then those in force that changed,
// then the others, in order.
func (r *round) run(decls []*Subnet) {
	r.next = Book{decls: make(map[string]*Subnet, len(decls)), nets: make(map[string]*core.Subnet, len(decls))}
	var fresh []*Subnet
	for _, d := range decls {
		if !r.stays(d) {
			fresh = append(fresh, d)
			continue
		}
		r.next.decls[d.Name], r.next.nets[d.Name] = d, r.before.nets[d.Name]
		if _, isPinned := r.pinned[d.Name]; isPinned {
			r.next.decls[d.Name] = r.before.decls[d.Name]
		}
	}
	slices.SortStableFunc(fresh, func(a, b *Subnet) int { return r.rank(a) - r.rank(b) })
	for _, d := range fresh {
		s, f := r.admit(d)
		if f != nil {
			r.refused[d.Name] = *f
			continue
		}
		r.next.decls[d.Name], r.next.nets[d.Name] = d, &s
	}
}

// rank is lower for a Subnet that is in force: what was refused for its sake must
// not have its change refused.
func (r *round) rank(d *Subnet) int {
	if r.before.Has(d.Name) {
		return 0
	}
	return 1
}

// stays tells that a Subnet in force is so still, as it was. One whose Vlan is
// another now, or has a fault, is looked at anew.
func (r *round) stays(d *Subnet) bool {
	if !r.before.Has(d.Name) {
		return false
	}
	if _, isPinned := r.pinned[d.Name]; isPinned {
		return true
	}
	if was := r.before.decls[d.Name]; was != d && !reflect.DeepEqual(was, d) {
		return false
	}
	v, ok := r.vlans[d.Vlan]
	was := r.before.nets[d.Name]
	return d.Vlan == "" || ok && v == Vlan{ID: was.VLAN, Network: was.Underlay}
}

// admit checks one Subnet against the Vlans and the Subnets already admitted.
func (r *round) admit(d *Subnet) (core.Subnet, *Fault) {
	s := d.Subnet
	if d.Vlan != "" {
		v, ok := r.vlans[d.Vlan]
		switch {
		case !ok:
			return s, &Fault{"spec.vlan", fmt.Sprintf("there is no Vlan %q", d.Vlan)}
		case v.Fault != "":
			return s, &Fault{"spec.vlan", "Vlan " + d.Vlan + ": " + v.Fault}
		}
		s.VLAN, s.Underlay = v.ID, v.Network
	}
	for _, name := range slices.Sorted(maps.Keys(r.next.nets)) {
		other := *r.next.nets[name]
		if other.Vpc != d.Vpc {
			continue // addresses and defaults are each Vpc's own
		}
		if p, q, yes := overlap(s, other); yes {
			return s, &Fault{"spec.cidrBlock", fmt.Sprintf("%s overlaps %s of Subnet %s", p, q, name)}
		}
		if s.Default && other.Default {
			return s, &Fault{"spec.default", fmt.Sprintf("Subnet %s is the default already", name)}
		}
		if gw, yes := sameTable(s, other); yes {
			return s, &Fault{"spec.policyRoutingTableID", fmt.Sprintf("table %d leads to %s for Subnet %s", s.Egress.Table, gw, name)}
		}
	}
	return s, nil
}

func overlap(a, b core.Subnet) (p, q netip.Prefix, yes bool) {
	for _, p := range a.CIDRs {
		for _, q := range b.CIDRs {
			if p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return p, q, false
}

// Serving is what pods can be given, by name, with one default, of the default Vpc:
// the user's, else the user's ovn-default, else the built-in one. withheld keeps the built-in
// one away: while a Subnet that was to be the default has never been good, its
// pods must not silently get addresses from somewhere else. blamed is the Subnet
// that overlaps the built-in one, which is then left out; "" for none.
func (b Book) Serving(withheld bool) (all []core.Subnet, blamed string) {
	has := b.hasDefault()
	all = make([]core.Subnet, 0, len(b.nets)+1)
	for _, name := range slices.Sorted(maps.Keys(b.nets)) {
		s := *b.nets[name]
		s.Default = s.Default || (!has && name == v1.DefaultSubnet && s.Provider == v1.DefaultProvider)
		s.Default = s.Default && common(s)
		all = append(all, s)
	}
	if has || b.Has(v1.DefaultSubnet) || withheld {
		return all, ""
	}
	built := Builtin()
	for _, s := range all {
		if _, _, yes := overlap(built, s); yes && common(s) {
			return all, s.Name
		}
	}
	all = append(all, built)
	slices.SortFunc(all, func(s, t core.Subnet) int { return cmp.Compare(s.Name, t.Name) })
	return all, ""
}

// BlamedReason is what to say of the Subnet that Serving blames.
const BlamedReason = "overlaps the built-in default subnet 10.16.0.0/16, which is left out: set default: true on one Subnet"

// HasBuiltin tells whether the built-in subnet is among those that serve.
func (b Book) HasBuiltin(serving []core.Subnet) bool {
	return !b.Has(v1.DefaultSubnet) && slices.ContainsFunc(serving, func(s core.Subnet) bool { return s.Name == v1.DefaultSubnet })
}
