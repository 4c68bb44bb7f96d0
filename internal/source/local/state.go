package local

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// file is what one file of the folder gave.
type file struct {
	*folder.File
	docs []document
}

// state is everything in force at one time. It is never changed.
type state struct {
	objects  map[folder.ID]*object
	book     declare.Book                  // the Subnets in force
	all      []core.Subnet                 // the same, with the default one, by name
	broken   map[folder.ID]resolve.Problem // declared, refused, and never good
	problems []resolve.Problem
	declared *declared.Index // of pods by their names
}

func newState() *state {
	return &state{objects: map[folder.ID]*object{}, broken: map[folder.ID]resolve.Problem{}, declared: &declared.Index{}}
}

// assembly makes the next state from the files and the state before. It is
// pure. The rule behind all of it: what was good and is not meant to go stays
// in force until something good replaces it.
type assembly struct {
	before *state
	next   *state
	faults map[folder.ID]resolve.Problem // the first fault of each refused object
	// defended: a Subnet that was never good claims to be the default
	defended bool
}

func assemble(files []file, before *state) *state {
	a := &assembly{before: before, next: newState(), faults: map[folder.ID]resolve.Problem{}}
	a.choose(files)
	a.hold(files)
	a.admitSubnets()
	a.addDefault()
	for i, p := range a.faults {
		if _, ok := a.next.objects[i]; !ok {
			a.next.broken[i] = p
		}
	}
	a.declare()
	slices.SortFunc(a.next.problems, func(p, q resolve.Problem) int {
		return cmp.Or(cmp.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Reason, q.Reason))
	})
	a.next.problems = slices.Compact(a.next.problems)
	return a.next
}

func (a *assembly) problem(i folder.ID, told folder.Problem) {
	p := resolve.Problem{File: told.Where, Line: told.Line, Reason: told.Reason}
	a.next.problems = append(a.next.problems, p)
	if _, ok := a.faults[i]; !ok && i != (folder.ID{}) {
		a.faults[i] = p
	}
}

// choose takes the declarations without a fault. Of two that declare the same
// object it takes one.
func (a *assembly) choose(files []file) {
	twins := map[folder.ID][]*object{}
	for _, f := range files {
		a.refused(f)
		for _, d := range f.docs {
			for _, fault := range d.faults {
				a.problem(d.ID, d.Problem(f.Name, fault))
			}
			if d.object != nil {
				twins[d.ID] = append(twins[d.ID], d.object)
			}
			if d.defends {
				a.defend(d.ID)
			}
		}
	}
	for i, list := range twins {
		pick := a.pick(i, list)
		a.next.objects[i] = pick
		for _, o := range list {
			if o != pick {
				a.problem(folder.ID{}, folder.Twice(i, o.file, o.line, pick.file, pick.line))
			}
		}
	}
}

// refused takes over what the folder says of documents that are no objects.
func (a *assembly) refused(f file) {
	for _, r := range f.Refused {
		i := folder.ID{}
		if r.Object != nil {
			i = r.Object.ID
			if claimsDefault(r.Object) {
				a.defend(i)
			}
		}
		a.problem(i, r.Problem)
	}
}

// defend keeps the built-in Subnet from taking the place of one that is refused.
func (a *assembly) defend(i folder.ID) {
	_, was := a.before.objects[i]
	a.defended = a.defended || !was
}

// pick is the one of several declarations that counts. Of a pod it is the first by
// file and line, as with who runs pods: both must mean the same one, also after a
// restart of either. Of another object the one in the file that is in force already
// stays, else it is the first.
func (a *assembly) pick(i folder.ID, list []*object) *object {
	old, ok := a.before.objects[i]
	if !ok || i.Kind == folder.Pod {
		return list[0]
	}
	if at := slices.IndexFunc(list, func(o *object) bool { return o.file == old.file }); at >= 0 {
		return list[at]
	}
	return list[0]
}

// hold keeps the last good version of objects whose declaration is refused, or
// may stand in a part of their file that cannot be read.
func (a *assembly) hold(files []file) {
	byName := map[string]file{}
	for _, f := range files {
		byName[f.Name] = f
	}
	for i, old := range a.before.objects {
		if _, ok := a.next.objects[i]; ok {
			continue
		}
		_, refused := a.faults[i]
		if f, there := byName[old.file]; refused || there && f.MayDeclare(i) {
			a.next.objects[i] = old
		}
	}
}

// admitSubnets has the Subnets checked against each other and against the Vlans
// (declare.Book); new ones have precedence by file and line.
func (a *assembly) admitSubnets() {
	var objects []*object
	for i, o := range a.next.objects {
		if i.Kind == folder.Subnet {
			objects = append(objects, o)
		}
	}
	slices.SortFunc(objects, func(o, p *object) int { return cmp.Or(cmp.Compare(o.file, p.file), cmp.Compare(o.line, p.line)) })
	decls := make([]*declare.Subnet, len(objects))
	for n, o := range objects {
		s, _ := o.value.(subnet)
		decls[n] = s.Subnet
	}
	book, refused := a.before.book.Next(decls, a.vlans())
	a.next.book = book
	for name, f := range refused {
		i := folder.ID{Kind: folder.Subnet, Name: name}
		a.problem(i, a.next.objects[i].blame(f))
		delete(a.next.objects, i)
		if book.Has(name) {
			a.next.objects[i] = a.before.objects[i]
		}
	}
}

// vlans are the Vlans in force.
func (a *assembly) vlans() map[string]declare.Vlan {
	out := map[string]declare.Vlan{}
	for i, o := range a.next.objects {
		if v, ok := o.value.(vlan); ok {
			out[i.Name] = v.says
		}
	}
	return out
}

// blame says where an object contradicts another one.
func (o *object) blame(f declare.Fault) folder.Problem {
	s, _ := o.value.(subnet)
	return folder.Problem{Where: o.file, Line: s.lines[f.Path], Reason: o.id.String() + ": " + f.String()}
}

// addDefault sees to it that one subnet is the default one.
func (a *assembly) addDefault() {
	all, blamed := a.next.book.Serving(a.defended && !a.before.book.HasBuiltin(a.before.all))
	a.next.all = all
	if blamed == "" {
		return
	}
	o := a.next.objects[folder.ID{Kind: folder.Subnet, Name: blamed}]
	a.problem(folder.ID{}, folder.Problem{Where: o.file, Line: o.line, Reason: o.id.String() + ": " + declare.BlamedReason})
}
