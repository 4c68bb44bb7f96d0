package local

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/resolve"
)

// file is what one file of the folder gave. A file that cannot be read, or in
// which a document cannot be told, is opaque: nobody knows which of its former
// objects it still means to declare.
type file struct {
	name   string
	docs   []document
	opaque bool
}

// state is everything in force at one time. It is never changed.
type state struct {
	objects  map[id]*object
	subnets  map[string]core.Subnet // in force, VLANs looked up
	all      []core.Subnet          // the same, with the default one, by name
	broken   map[id]resolve.Problem // declared, refused, and never good
	problems []resolve.Problem
}

func newState() *state {
	return &state{objects: map[id]*object{}, subnets: map[string]core.Subnet{}, broken: map[id]resolve.Problem{}}
}

// assembly makes the next state from the files and the state before. It is
// pure. The rule behind all of it: what was good and is not meant to go stays
// in force until something good replaces it.
type assembly struct {
	before *state
	next   *state
	faults map[id]resolve.Problem // the first fault of each refused object
	// defended: a Subnet that was never good claims to be the default
	defended bool
}

func assemble(files []file, before *state) *state {
	a := &assembly{before: before, next: newState(), faults: map[id]resolve.Problem{}}
	a.choose(files)
	a.hold(files)
	a.admitSubnets()
	a.addDefault()
	for i, p := range a.faults {
		if _, ok := a.next.objects[i]; !ok {
			a.next.broken[i] = p
		}
	}
	slices.SortFunc(a.next.problems, func(p, q resolve.Problem) int {
		return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Reason, q.Reason))
	})
	a.next.problems = slices.Compact(a.next.problems)
	return a.next
}

func (a *assembly) problem(i id, p resolve.Problem) {
	a.next.problems = append(a.next.problems, p)
	if _, ok := a.faults[i]; !ok && i != (id{}) {
		a.faults[i] = p
	}
}

// choose takes the good declarations. Of two of one object the one in the file
// that is in force already stays, else the first by file and line.
func (a *assembly) choose(files []file) {
	twins := map[id][]*object{}
	for _, f := range files {
		for _, d := range f.docs {
			for _, fault := range d.faults {
				a.problem(d.id, resolve.Problem{File: f.name, Line: fault.line, Reason: label(d.id) + fault.reason})
			}
			if d.object != nil {
				twins[d.id] = append(twins[d.id], d.object)
			}
			if d.defends {
				_, was := a.before.objects[d.id]
				a.defended = a.defended || !was
			}
		}
	}
	for i, list := range twins {
		pick := list[0]
		if old, ok := a.before.objects[i]; ok {
			if at := slices.IndexFunc(list, func(o *object) bool { return o.file == old.file }); at >= 0 {
				pick = list[at]
			}
		}
		a.next.objects[i] = pick
		for _, o := range list {
			if o != pick {
				a.next.problems = append(a.next.problems, resolve.Problem{File: o.file, Line: o.line,
					Reason: fmt.Sprintf("%s is declared twice; %s:%d is in force", i, pick.file, pick.line)})
			}
		}
	}
}

func label(i id) string {
	if i == (id{}) {
		return ""
	}
	return i.String() + ": "
}

// hold keeps the last good version of objects whose declaration is refused, or
// may stand in a part of their file that cannot be read.
func (a *assembly) hold(files []file) {
	type named struct{ file, name string }
	opaque, misspelt := map[string]bool{}, map[named]bool{}
	for _, f := range files {
		opaque[f.name] = f.opaque
		for _, d := range f.docs {
			misspelt[named{f.name, d.name}] = true
		}
	}
	for i, old := range a.before.objects {
		if _, ok := a.next.objects[i]; ok {
			continue
		}
		if _, refused := a.faults[i]; refused || opaque[old.file] || misspelt[named{old.file, i.name}] {
			a.next.objects[i] = old
		}
	}
}

// admitSubnets checks the Subnets against each other and against the Vlans. A
// changed Subnet that contradicts another falls back to its last good version,
// and is then as much in force as those that did not change; so the check
// starts again with it until nothing more falls back.
func (a *assembly) admitSubnets() {
	pinned := map[id]resolve.Problem{}
	for {
		r := a.admitRound(pinned)
		more := false
		for i, p := range r.refused {
			_, isPinned := pinned[i]
			if _, was := a.before.subnets[i.name]; was && !isPinned {
				pinned[i], more = p, true
			}
		}
		if more {
			continue
		}
		a.next.subnets = r.admitted
		maps.Copy(r.refused, pinned)
		for i, p := range r.refused {
			a.problem(i, p)
			delete(a.next.objects, i)
			if _, ok := r.admitted[i.name]; ok {
				a.next.objects[i] = a.before.objects[i]
			}
		}
		return
	}
}

type round struct {
	admitted map[string]core.Subnet
	refused  map[id]resolve.Problem
}

// admitRound admits unchanged and pinned Subnets first, then the others by file
// and line.
func (a *assembly) admitRound(pinned map[id]resolve.Problem) round {
	r := round{admitted: map[string]core.Subnet{}, refused: map[id]resolve.Problem{}}
	var fresh []*object
	for i, o := range a.next.objects {
		if i.kind != kindSubnet {
			continue
		}
		old, was := a.before.objects[i]
		_, isPinned := pinned[i]
		if was && (isPinned || same(old, o)) && a.vlanStands(o, isPinned) {
			r.admitted[i.name] = a.before.subnets[i.name]
		} else {
			fresh = append(fresh, o)
		}
	}
	slices.SortFunc(fresh, func(o, p *object) int { return cmp.Or(cmp.Compare(o.file, p.file), cmp.Compare(o.line, p.line)) })
	for _, o := range fresh {
		s, p := a.admit(o, r.admitted)
		if p != nil {
			r.refused[o.id] = *p
			continue
		}
		r.admitted[s.Name] = s
	}
	return r
}

// same tells whether two declarations of a Subnet say the same, wherever they
// stand.
func same(a, b *object) bool {
	x, _ := a.value.(subnet)
	y, _ := b.value.(subnet)
	return x.vlan == y.vlan && reflect.DeepEqual(x.Subnet, y.Subnet)
}

// vlanStands tells whether a Subnet in force still has the VLAN that its Vlan
// object says. A pinned one keeps what it has.
func (a *assembly) vlanStands(o *object, pinned bool) bool {
	s, _ := o.value.(subnet)
	if pinned || s.vlan == "" {
		return true
	}
	vid, ok := a.vlan(s.vlan)
	return ok && vid == a.before.subnets[s.Name].VLAN
}

func (a *assembly) vlan(name string) (int, bool) {
	o, ok := a.next.objects[id{kind: kindVlan, name: name}]
	if !ok {
		return 0, false
	}
	vid, ok := o.value.(int)
	return vid, ok
}

// admit checks one Subnet against the Vlans and the Subnets already admitted.
func (a *assembly) admit(o *object, admitted map[string]core.Subnet) (core.Subnet, *resolve.Problem) {
	decl, _ := o.value.(subnet)
	s := decl.Subnet
	refuse := func(line int, format string, args ...any) (core.Subnet, *resolve.Problem) {
		return s, &resolve.Problem{File: o.file, Line: line, Reason: label(o.id) + fmt.Sprintf(format, args...)}
	}
	if decl.vlan != "" {
		vid, ok := a.vlan(decl.vlan)
		if !ok {
			return refuse(decl.vlanLine, "spec.vlan: there is no Vlan %q", decl.vlan)
		}
		s.VLAN = vid
	}
	for _, name := range slices.Sorted(maps.Keys(admitted)) {
		other := admitted[name]
		if p, q, yes := overlap(s, other); yes {
			return refuse(decl.cidrLine, "spec.cidrBlock: %s overlaps %s of Subnet %s", p, q, name)
		}
		if s.Default && other.Default {
			return refuse(decl.defaultLine, "spec.default: Subnet %s is the default already", name)
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

// addDefault sees to it that one subnet is the default one: the user's
// ovn-default, else the built-in one. While a Subnet that was to be the default
// has never been good, there is none: its pods must not silently get addresses
// from somewhere else.
func (a *assembly) addDefault() {
	has := slices.ContainsFunc(slices.Collect(maps.Values(a.next.subnets)), func(s core.Subnet) bool { return s.Default })
	for _, name := range slices.Sorted(maps.Keys(a.next.subnets)) {
		s := a.next.subnets[name]
		s.Default = s.Default || (!has && name == v1.DefaultSubnet && s.Provider == v1.DefaultProvider)
		a.next.all = append(a.next.all, s)
	}
	if has || slices.ContainsFunc(a.next.all, func(s core.Subnet) bool { return s.Name == v1.DefaultSubnet }) {
		return
	}
	if a.defended && !a.before.hasBuiltin() {
		return
	}
	b := builtin()
	for name, s := range a.next.subnets {
		if _, _, yes := overlap(b, s); yes {
			o := a.next.objects[id{kind: kindSubnet, name: name}]
			a.next.problems = append(a.next.problems, resolve.Problem{File: o.file, Line: o.line,
				Reason: label(o.id) + "overlaps the built-in default subnet 10.16.0.0/16, which is left out: set default: true on one Subnet"})
			return
		}
	}
	a.next.all = append(a.next.all, b)
	slices.SortFunc(a.next.all, func(s, t core.Subnet) int { return cmp.Compare(s.Name, t.Name) })
}

// hasBuiltin tells whether the built-in subnet is in force.
func (s *state) hasBuiltin() bool {
	_, declared := s.subnets[v1.DefaultSubnet]
	return !declared && slices.ContainsFunc(s.all, func(n core.Subnet) bool { return n.Name == v1.DefaultSubnet })
}
