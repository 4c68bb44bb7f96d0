package cluster

import (
	"cmp"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// subnet is a Subnet as declared.
type subnet struct {
	*declare.Subnet
	uid    string
	made   time.Time
	faults []declare.Fault
	needs  []declare.Fault // where no OVN carries it
	// first: it is meant to be the default one, be it right or wrong.
	first bool
	shown bool // it declares nothing (v1.Shown)
}

// vlan is a Vlan as declared.
type vlan struct {
	declare.Vlan
	faults []declare.Fault
}

func readSubnet(o metav1.Object) subnet {
	var spec v1.SubnetSpec
	s := subnet{Subnet: &declare.Subnet{}, uid: string(o.GetUID()), made: o.GetCreationTimestamp().Time}
	if raw, ok := o.(*object); ok {
		if err := decode(raw.Spec, &spec); err != nil {
			s.faults = []declare.Fault{{Path: "spec", Reason: err.Error()}}
		}
	}
	s.shown = v1.Shown(o.GetAnnotations(), spec)
	s.first = spec.Default || o.GetName() == v1.DefaultSubnet
	if len(s.faults) == 0 {
		*s.Subnet, s.faults = declare.ReadSubnet(o.GetName(), spec)
		s.needs = declare.NeedsOVN(spec)
	}
	s.Name, s.UID = o.GetName(), s.uid
	s.faults = append(s.faults, declare.ReadNotes(&s.Subnet.Subnet, o.GetAnnotations())...)
	return s
}

func readVlan(o metav1.Object) vlan {
	var spec v1.VlanSpec
	if raw, ok := o.(*object); ok {
		if err := decode(raw.Spec, &spec); err != nil {
			return vlan{faults: []declare.Fault{{Path: "spec", Reason: err.Error()}}}
		}
	}
	v, faults := declare.ReadVlan(spec)
	return vlan{v, faults}
}

// decode fills to. Fields that it does not know are those of a newer or another
// version of the kind, which the server admitted: they are not ours to judge.
func decode(raw []byte, to any) error {
	if len(raw) == 0 {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(raw, to)
}

// pools are the Subnets in force. What was good stays in force until something
// good replaces it, as long as this process lives.
type pools struct {
	subnets *mirror[subnet]
	vlans   *mirror[vlan]
	changed chan struct{}
	passed  func() // called after each event and each list
	ovn     bool   // there is OVN, which carries Subnets
	log     *slog.Logger

	mu       sync.Mutex // guards the rest, and the order of passes
	book     declare.Book
	serving  []core.Subnet
	problems []resolve.Problem
	good     map[string]*declare.Subnet // last good declarations of Subnets
	vids     map[string]declare.Vlan    // last good versions of Vlans
}

func newPools(log *slog.Logger) *pools {
	p := &pools{changed: make(chan struct{}, 1), log: log}
	p.subnets = newMirror("subnets", readSubnet, func(id, *subnet, *subnet) {})
	p.vlans = newMirror("vlans", readVlan, func(id, *vlan, *vlan) {})
	p.passed = func() {}
	p.subnets.passed, p.vlans.passed = p.pass, p.pass
	p.serving, _ = p.book.Serving(false)
	return p
}

func (p *pools) inForce() []core.Subnet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.serving)
}

func (p *pools) refusals() []resolve.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// assemble puts what is declared now in force. Before both kinds are known it
// waits: a Subnet must not lose its VLAN because that was read later.
func (p *pools) assemble() {
	if !p.subnets.isSynced() || !p.vlans.isSynced() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.problems
	p.problems = nil
	vids := p.readVlans()
	decls, withheld := p.declared()
	hadBuiltin := p.book.HasBuiltin(p.serving)
	next, refused := p.book.Next(decls, vids)
	for name, f := range refused {
		p.refuse("Subnet "+name, f.String())
	}
	serving, blamed := next.Serving(withheld && !hadBuiltin)
	if blamed != "" {
		p.refuse("Subnet "+blamed, declare.BlamedReason)
	}
	slices.SortFunc(p.problems, func(a, b resolve.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Reason, b.Reason))
	})
	p.report(before)
	same := reflect.DeepEqual(p.serving, serving)
	p.book, p.serving = next, serving
	if !same {
		p.poke()
	}
}

func (p *pools) pass() {
	p.assemble()
	p.passed()
}

// poke says that Subnets has another answer now.
func (p *pools) poke() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *pools) refuse(object, reason string) {
	p.problems = append(p.problems, resolve.Problem{File: object, Reason: reason})
}

// report logs the problems that are new.
func (p *pools) report(before []resolve.Problem) {
	for _, q := range p.problems {
		if !slices.Contains(before, q) {
			p.log.Warn("object refused", "object", q.File, "reason", q.Reason)
		}
	}
}

// readVlans are the Vlans; one that is wrong keeps its last good version.
func (p *pools) readVlans() map[string]declare.Vlan {
	vids := map[string]declare.Vlan{}
	for i, v := range p.vlans.all() {
		if len(v.faults) == 0 {
			vids[i.Name] = v.Vlan
			continue
		}
		for _, f := range v.faults {
			p.refuse("Vlan "+i.Name, f.String())
		}
		if was, ok := p.vids[i.Name]; ok {
			vids[i.Name] = was
		}
	}
	p.vids = vids
	return vids
}

// declared are the Subnets that are right by themselves, the oldest first; one
// that is wrong keeps its last good version. withheld tells that a Subnet which
// was never good is meant to be the default one.
func (p *pools) declared() (decls []*declare.Subnet, withheld bool) {
	all := p.subnets.all()
	names := slices.SortedFunc(maps.Keys(all), func(a, b id) int {
		return cmp.Or(all[a].made.Compare(all[b].made), cmp.Compare(a.Name, b.Name))
	})
	good := map[string]*declare.Subnet{}
	for _, i := range names {
		s := all[i]
		if s.shown {
			continue
		}
		if !p.ovn {
			s.faults = append(s.faults, s.needs...)
		}
		for _, f := range s.faults {
			p.refuse("Subnet "+i.Name, f.String())
		}
		d, was := s.Subnet, true
		if len(s.faults) > 0 {
			d, was = p.good[i.Name]
		}
		if !was {
			withheld = withheld || s.first
			continue
		}
		good[i.Name] = d
		decls = append(decls, d)
	}
	p.good = good
	return decls, withheld
}
