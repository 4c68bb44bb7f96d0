package local

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/declare"
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
	book     declare.Book           // the Subnets in force
	all      []core.Subnet          // the same, with the default one, by name
	broken   map[id]resolve.Problem // declared, refused, and never good
	problems []resolve.Problem
}

func newState() *state {
	return &state{objects: map[id]*object{}, broken: map[id]resolve.Problem{}}
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

// choose takes the good declarations, of two of one object one.
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
		pick := a.pick(i, list)
		a.next.objects[i] = pick
		for _, o := range list {
			if o != pick {
				a.next.problems = append(a.next.problems, resolve.Problem{File: o.file, Line: o.line,
					Reason: fmt.Sprintf("%s is declared twice; %s:%d is in force", i, pick.file, pick.line)})
			}
		}
	}
}

// pick is the one of several declarations that counts. Of a pod it is the first by
// file and line, as with who runs pods: both must mean the same one, also after a
// restart of either. Of another object the one in the file that is in force already
// stays, else it is the first.
func (a *assembly) pick(i id, list []*object) *object {
	old, ok := a.before.objects[i]
	if !ok || i.kind == kindPod {
		return list[0]
	}
	if at := slices.IndexFunc(list, func(o *object) bool { return o.file == old.file }); at >= 0 {
		return list[at]
	}
	return list[0]
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

// admitSubnets has the Subnets checked against each other and against the Vlans
// (declare.Book); new ones have precedence by file and line.
func (a *assembly) admitSubnets() {
	var objects []*object
	for i, o := range a.next.objects {
		if i.kind == kindSubnet {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(o, p *object) int { return cmp.Or(cmp.Compare(o.file, p.file), cmp.Compare(o.line, p.line)) })
	decls := make([]declare.Subnet, len(objects))
	for n, o := range objects {
		s, _ := o.value.(subnet)
		decls[n] = s.Subnet
	}
	book, refused := a.before.book.Next(decls, a.vlans())
	a.next.book = book
	for name, f := range refused {
		i := id{kind: kindSubnet, name: name}
		a.problem(i, a.next.objects[i].blame(f))
		delete(a.next.objects, i)
		if book.Has(name) {
			a.next.objects[i] = a.before.objects[i]
		}
	}
}

// vlans are the ids of the Vlans in force.
func (a *assembly) vlans() map[string]int {
	out := map[string]int{}
	for i, o := range a.next.objects {
		if vid, ok := o.value.(int); ok && i.kind == kindVlan {
			out[i.name] = vid
		}
	}
	return out
}

// blame says where an object contradicts another one.
func (o *object) blame(f declare.Fault) resolve.Problem {
	s, _ := o.value.(subnet)
	return resolve.Problem{File: o.file, Line: s.lines[f.Path], Reason: label(o.id) + f.String()}
}

// addDefault sees to it that one subnet is the default one.
func (a *assembly) addDefault() {
	all, blamed := a.next.book.Serving(a.defended && !a.before.book.HasBuiltin(a.before.all))
	a.next.all = all
	if blamed == "" {
		return
	}
	o := a.next.objects[id{kind: kindSubnet, name: blamed}]
	a.next.problems = append(a.next.problems, resolve.Problem{File: o.file, Line: o.line, Reason: label(o.id) + declare.BlamedReason})
}
