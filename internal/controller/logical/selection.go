package logical

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// selection selects pods by labels: those of one namespace or, by their labels, of
// several.
type selection struct {
	key          string // equal for equal ones
	namespace    string // where spaces is nil
	spaces, pods labels.Selector
}

// newSelection is one of a policy of a namespace; nil spaces are that one.
func newSelection(namespace string, spaces, pods labels.Selector) selection {
	if spaces == nil {
		return selection{key: "of " + namespace + ": " + text(pods), namespace: namespace, pods: pods}
	}
	return selection{key: text(spaces) + ": " + text(pods), spaces: spaces, pods: pods}
}

// text is a selector's; one that selects nothing has that of one that selects all.
func text(s labels.Selector) string {
	if labels.MatchesNothing(s) {
		return "nothing"
	}
	return "(" + s.String() + ")"
}

// in tells that it may select pods of a namespace with these labels.
func (s *selection) in(namespace string, with map[string]string) bool {
	if s.spaces == nil {
		return s.namespace == namespace
	}
	return s.spaces.Matches(labels.Set(with))
}

func (s *selection) selects(m *Member) bool { return m != nil && s.pods.Matches(labels.Set(m.Labels)) }

// Pods are the pods that NetworkPolicies see, by what the policies select: a pod
// that changes is compared with each selection that its namespace is in, and a policy
// is given those that it selects, not all among which they are. It is not safe for
// concurrent use.
type Pods struct {
	spaces     map[string]*space
	selections map[string]*selected
	links      map[string][]string // Vpcs by one that has links to them
}

// space is a namespace with its pods.
type space struct {
	labels map[string]string
	known  bool // a Label told them
	pods   map[string]*Member
	in     []*selected // that may select pods of it
}

type selected struct {
	selection
	by   map[*NetworkPolicy]bool
	home map[*NetworkPolicy]bool // policies that govern these pods, and see others by where they are
	pods []*Member               // by their first addresses: lists made of them are in order, or nearly so
	vpcs map[string]int          // how many of them are in a Vpc
}

// NewPods is an index of no pods.
func NewPods() *Pods {
	return &Pods{spaces: map[string]*space{}, selections: map[string]*selected{}, links: map[string][]string{}}
}

func (x *Pods) space(namespace string) *space {
	s := x.spaces[namespace]
	if s == nil {
		s = &space{pods: map[string]*Member{}}
		x.spaces[namespace] = s
		for _, o := range x.selections {
			if o.in(namespace, nil) {
				s.in = append(s.in, o)
			}
		}
	}
	return s
}

// Of are the pods of a namespace, by name. They are not to be changed.
func (x *Pods) Of(namespace string) map[string]*Member {
	if s := x.spaces[namespace]; s != nil {
		return s.pods
	}
	return nil
}

// Known tells that the labels of a namespace were told.
func (x *Pods) Known(namespace string) bool {
	return x.spaces[namespace] != nil && x.spaces[namespace].known
}

// Label tells the labels of a namespace, and gives the policies that see other pods
// by them than before.
func (x *Pods) Label(namespace string, now map[string]string) []*NetworkPolicy {
	s := x.space(namespace)
	if s.known && maps.Equal(s.labels, now) {
		return nil
	}
	s.labels, s.known = now, true
	before := s.in
	s.in = nil
	by := map[*NetworkPolicy]bool{}
	for _, o := range x.selections {
		was, is := slices.Contains(before, o), o.in(namespace, now)
		if is {
			s.in = append(s.in, o)
		}
		for _, m := range s.pods {
			if was != is && o.selects(m) {
				o.concerns(by, o.put(m, is))
			}
		}
	}
	return slices.Collect(maps.Keys(by))
}

// Forget leaves out a namespace that is gone, unless it has pods.
func (x *Pods) Forget(namespace string) {
	if s := x.spaces[namespace]; s != nil && len(s.pods) == 0 {
		delete(x.spaces, namespace)
	}
}

// put takes a pod in or out, and tells that the selected are in other Vpcs by that.
func (o *selected) put(m *Member, is bool) (moved bool) {
	i, _ := slices.BinarySearchFunc(o.pods, m, func(a, b *Member) int { return cmp.Compare(a.first(), b.first()) })
	if is {
		o.pods = slices.Insert(o.pods, i, m)
		o.vpcs[m.Vpc]++
		return o.vpcs[m.Vpc] == 1
	}
	if at := slices.Index(o.pods[i:], m); at >= 0 {
		o.pods = slices.Delete(o.pods, i+at, i+at+1)
		o.vpcs[m.Vpc]--
	}
	if o.vpcs[m.Vpc] > 0 {
		return false
	}
	delete(o.vpcs, m.Vpc)
	return true
}

// concerns adds the policies whose rows depend on a pod that was put in or out.
func (o *selected) concerns(by map[*NetworkPolicy]bool, moved bool) {
	maps.Copy(by, o.by)
	if moved {
		maps.Copy(by, o.home)
	}
}

// first is an address of the pod.
func (m *Member) first() string {
	if len(m.texts) == 0 {
		return ""
	}
	return m.texts[0]
}

// Put notes a pod of a namespace, nil for none, and gives the policies whose rows
// depend on what changed. The Member is the index's from then on.
func (x *Pods) Put(namespace, name string, m *Member) []*NetworkPolicy {
	if m != nil {
		m.texts = texts(m.IPs)
	}
	s := x.space(namespace)
	before := s.pods[name]
	if reflect.DeepEqual(before, m) {
		return nil
	}
	by := map[*NetworkPolicy]bool{}
	for _, o := range s.in {
		if o.selects(m) { // before the former is out: the Vpc may be the same
			o.concerns(by, o.put(m, true))
		}
		if o.selects(before) {
			o.concerns(by, o.put(before, false))
		}
	}
	if m == nil {
		delete(s.pods, name)
	} else {
		s.pods[name] = m
	}
	return slices.Collect(maps.Keys(by))
}

// Add notes a policy, and Remove forgets it.
func (x *Pods) Add(p *NetworkPolicy) {
	all := p.selections()
	for _, s := range all {
		x.selected(s).by[p] = true
	}
	if len(all) > 0 {
		x.selected(p.own()).home[p] = true
	}
}

// selected is a selection with its pods.
func (x *Pods) selected(s selection) *selected {
	o := x.selections[s.key]
	if o == nil {
		o = &selected{selection: s, by: map[*NetworkPolicy]bool{}, home: map[*NetworkPolicy]bool{}, vpcs: map[string]int{}}
		x.selections[s.key] = o
		x.fill(o)
	}
	return o
}

// fill looks at all pods for a selection that is new.
func (x *Pods) fill(o *selected) {
	for name, s := range x.spaces {
		if !o.in(name, s.labels) {
			continue
		}
		s.in = append(s.in, o)
		for _, m := range s.pods {
			if o.selects(m) {
				o.put(m, true)
			}
		}
	}
}

// Remove forgets a policy.
func (x *Pods) Remove(p *NetworkPolicy) {
	for _, s := range append(p.selections(), p.own()) {
		o := x.selections[s.key]
		if o == nil {
			continue
		}
		delete(o.by, p)
		if delete(o.home, p); len(o.by)+len(o.home) > 0 {
			continue
		}
		delete(x.selections, s.key)
		for _, in := range x.spaces {
			in.in = slices.DeleteFunc(in.in, func(other *selected) bool { return other == o })
		}
	}
}

// Seen are pods by the selections of one policy.
type Seen map[string][]*Member

// Seen are the pods that a policy selects, which was added, as far as pods that it governs
// can meet them: an address in another Vpc may be another pod's in theirs. They are a copy.
func (x *Pods) Seen(p *NetworkPolicy) Seen {
	out, met := Seen{}, x.met(p)
	for _, s := range p.selections() {
		if o := x.selections[s.key]; o != nil && out[s.key] == nil {
			out[s.key] = o.within(met)
		}
	}
	return out
}

// Link tells to which Vpcs one has links, and whether these are others than before.
func (x *Pods) Link(vpc string, to []string) (changed bool) {
	if slices.Equal(x.links[vpc], to) {
		return false
	}
	if x.links[vpc] = to; len(to) == 0 {
		delete(x.links, vpc)
	}
	return true
}

// met are the Vpcs of the pods that a policy governs, with those to which links lead from
// there, over others too; nil for all, where it governs none or it is not known of one.
func (x *Pods) met(p *NetworkPolicy) map[string]bool {
	o := x.selections[p.own().key]
	if o == nil || len(o.vpcs) == 0 || o.vpcs[""] > 0 {
		return nil
	}
	return x.reach(slices.Collect(maps.Keys(o.vpcs)))
}

// Reach are the Vpcs to which links lead from one, over others too, itself among them.
func (x *Pods) Reach(vpc string) []string {
	return slices.Sorted(maps.Keys(x.reach([]string{vpc})))
}

func (x *Pods) reach(next []string) map[string]bool {
	out := map[string]bool{}
	for len(next) > 0 {
		vpc := next[0]
		if next = next[1:]; !out[vpc] {
			out[vpc] = true
			next = append(next, x.links[vpc]...)
		}
	}
	return out
}

// within are a copy of the pods of some Vpcs, and of those of which it is not known; nil
// are all.
func (o *selected) within(vpcs map[string]bool) []*Member {
	out := slices.Clone(o.pods)
	for vpc := range o.vpcs {
		if vpcs != nil && vpc != "" && !vpcs[vpc] {
			return slices.DeleteFunc(out, func(m *Member) bool { return m.Vpc != "" && !vpcs[m.Vpc] })
		}
	}
	return out
}
