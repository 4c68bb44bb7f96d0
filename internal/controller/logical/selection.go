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
	pods []*Member // by their first addresses: lists made of them are in order, or nearly so
}

// NewPods is an index of no pods.
func NewPods() *Pods {
	return &Pods{spaces: map[string]*space{}, selections: map[string]*selected{}}
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
				o.put(m, is)
				maps.Copy(by, o.by)
			}
		}
	}
	return slices.Collect(maps.Keys(by))
}

func (o *selected) put(m *Member, is bool) {
	i, _ := slices.BinarySearchFunc(o.pods, m, func(a, b *Member) int { return cmp.Compare(a.first(), b.first()) })
	if is {
		o.pods = slices.Insert(o.pods, i, m)
		return
	}
	if at := slices.Index(o.pods[i:], m); at >= 0 {
		o.pods = slices.Delete(o.pods, i+at, i+at+1)
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
		was, is := o.selects(before), o.selects(m)
		if was {
			o.put(before, false)
		}
		if is {
			o.put(m, true)
		}
		if was || is {
			maps.Copy(by, o.by)
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
	for _, s := range p.selections() {
		o := x.selections[s.key]
		if o == nil {
			o = &selected{selection: s, by: map[*NetworkPolicy]bool{}}
			x.selections[s.key] = o
			x.fill(o)
		}
		o.by[p] = true
	}
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
	for _, s := range p.selections() {
		o := x.selections[s.key]
		if o == nil {
			continue
		}
		if delete(o.by, p); len(o.by) > 0 {
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

// Seen are the pods that a policy selects, which was added. They are a copy.
func (x *Pods) Seen(p *NetworkPolicy) Seen {
	out := Seen{}
	for _, s := range p.selections() {
		if o := x.selections[s.key]; o != nil && out[s.key] == nil {
			out[s.key] = slices.Clone(o.pods)
		}
	}
	return out
}
