package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// ReasonPolicy is the reason of events about NetworkPolicies.
const ReasonPolicy = "NetworkPolicyNotCarriedOut"

// policies are the NetworkPolicies as they are now, and the pods that have
// rows, as policies see them.
type policies struct {
	from object.Readers

	// stale has a lock of its own: who tells it may hold what readers need.
	newsMu sync.Mutex
	stale  map[object.Key]bool // changed since the last look

	mu      sync.Mutex
	all     map[string]map[string]*logical.NetworkPolicy
	written map[object.Key]bool // whose port groups are in the database
	pods    *logical.Pods       // that have rows
	// untold are policies that have rows and of which no watch has told, by namespace: while
	// it is not known whether they are gone their pods stay in their groups.
	untold map[string]map[string]bool
}

// newPolicies has all policies looked at, when they are needed first.
func newPolicies(from object.Readers) *policies {
	return &policies{
		from: from, stale: map[object.Key]bool{}, all: map[string]map[string]*logical.NetworkPolicy{}, written: map[object.Key]bool{},
		pods: logical.NewPods(), untold: map[string]map[string]bool{},
	}
}

// Changed says that a policy is not what it was.
func (s *policies) Changed(k object.Key) {
	s.newsMu.Lock()
	defer s.newsMu.Unlock()
	s.stale[k] = true
}

// news are the policies that changed since it was asked last.
func (s *policies) news() map[object.Key]bool {
	s.newsMu.Lock()
	defer s.newsMu.Unlock()
	out := s.stale
	s.stale = map[object.Key]bool{}
	return out
}

// look reads the policies that changed, and gives the pods that such a one
// governs or governed. The caller holds mu.
func (s *policies) look() (pods []object.Key) {
	for k := range s.news() {
		delete(s.written, k)
		before := s.all[k.Namespace][k.Name]
		var now *logical.NetworkPolicy
		if o, ok := s.from.Policies.Get(k.Namespace, k.Name); ok {
			now = logical.ReadNetworkPolicy(o.Namespace, o.Name, o.Spec)
			within(s.all, k.Namespace)[k.Name] = now
			without(s.untold, k)
			s.pods.Add(now)
		} else {
			without(s.all, k)
		}
		if before != nil {
			s.pods.Remove(before)
		}
		for name, m := range s.pods.Of(k.Namespace) {
			if before != nil && before.Selects(m.Labels) || now != nil && now.Selects(m.Labels) {
				pods = append(pods, object.KindPod.Named(k.Namespace, name))
			}
		}
	}
	return pods
}

// within is the inner map of a namespace.
func within[T any](m map[string]map[string]T, namespace string) map[string]T {
	if m[namespace] == nil {
		m[namespace] = map[string]T{}
	}
	return m[namespace]
}

// without removes a policy, and with the last one of a namespace its inner map.
func without[T any](m map[string]map[string]T, k object.Key) {
	if delete(m[k.Namespace], k.Name); len(m[k.Namespace]) == 0 {
		delete(m, k.Namespace)
	}
}

// over are the names of the policies that govern a pod. The caller holds mu.
func (s *policies) over(p object.Pod) (out []string) {
	for name, policy := range s.all[p.Namespace] {
		if policy.Selects(p.Labels) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// put notes what policies see of a pod, nil for one that has no rows, and gives
// the policies whose rows depend on what changed. The caller holds mu.
func (s *policies) put(pod core.Pod, m *logical.Member) []object.Key {
	var keys []object.Key
	if !s.pods.Known(pod.Namespace) {
		keys = s.label(pod.Namespace)
	}
	keys = append(keys, keysOf(s.pods.Put(pod.Namespace, pod.Name, m))...)
	if _, there := s.from.Namespaces.Get("", pod.Namespace); !there {
		s.pods.Forget(pod.Namespace)
	}
	return keys
}

func keysOf(all []*logical.NetworkPolicy) (keys []object.Key) {
	for _, p := range all {
		keys = append(keys, object.KindPolicy.Named(p.Namespace(), p.Name()))
	}
	return keys
}

// label reads a namespace's labels, and gives the policies whose rows depend on what
// changed. The caller holds mu.
func (s *policies) label(name string) []object.Key {
	o, there := s.from.Namespaces.Get("", name)
	keys := keysOf(s.pods.Label(name, maps.Clone(o.Labels)))
	if !there {
		s.pods.Forget(name)
	}
	return keys
}

// allPolicies are the keys of all policies; they are read anew.
func (t *term) allPolicies() (keys []object.Key) {
	for _, p := range t.Policies.List() {
		keys = append(keys, object.KindPolicy.Named(p.Namespace, p.Name))
	}
	return keys
}

// restoreFaces reads the policies, and what they see of pods that have
// addresses: a new leader's first look leaves nobody out.
func (t *term) restoreFaces() error {
	owners, err := t.DB.Owners()
	if err != nil {
		return err
	}
	keys := t.allPolicies()
	for _, k := range keys {
		t.rules.Changed(k)
	}
	pods := t.Pods.List()
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	for _, n := range t.Namespaces.List() {
		t.rules.label(n.Name)
	}
	for _, v := range t.Vpcs.List() {
		t.rules.pods.Link(v.Name, linkedTo(v.Spec))
	}
	for _, p := range pods {
		for _, l := range t.book.Of(p.Pod) {
			if l.Owner.Key.IfName == defaultPort(p.Pod) && l.Owner.Key.Container == p.UID {
				net, _, _ := t.nets.Get(l.Subnet)
				t.rules.put(p.Pod, member(p, l, net.Vpc))
			}
		}
	}
	t.rules.look()
	t.rules.doubt(owners)
	return nil
}

// doubt notes the policies that own rows and that no watch has told of. The caller holds mu.
func (s *policies) doubt(owners []string) {
	for _, o := range owners {
		if k, ok := object.KeyOf(o); ok && k.Kind == object.KindPolicy && s.all[k.Namespace][k.Name] == nil {
			within(s.untold, k.Namespace)[k.Name] = true
		}
	}
}

// defaultPort names a pod's port of its default network, which alone policies
// govern.
func defaultPort(p core.Pod) string { return p.Name + "." + p.Namespace }

func member(p object.Pod, l core.Lease, vpc string) *logical.Member {
	return &logical.Member{Name: p.Name, Labels: p.Labels, Ports: p.Ports, IPs: l.IPs, Vpc: vpc}
}

// linkedTo are the Vpcs to which one names links.
func linkedTo(spec v1.VpcSpec) (out []string) {
	for _, p := range spec.VpcPeerings {
		out = append(out, p.RemoteVpc)
	}
	return out
}

// linked has policies looked at where a Vpc has other links than before: who reaches their
// pods depends on these.
func (t *term) linked(vpc string, spec v1.VpcSpec) {
	t.rules.mu.Lock()
	changed := t.rules.pods.Link(vpc, linkedTo(spec))
	t.rules.mu.Unlock()
	if changed {
		t.queue.Add(append(t.allPolicies(), t.groupKeys()...)...)
	}
}

// groups are the port groups of a pod, which are in the database: its port comes
// into them by the transaction that makes it, so that no packet passes before.
func (t *term) groups(ctx context.Context, p object.Pod) (out []string, err error) {
	t.rules.mu.Lock()
	t.queue.Add(t.rules.look()...)
	for name := range t.rules.untold[p.Namespace] {
		t.rules.mu.Unlock()
		return nil, fmt.Errorf("whether NetworkPolicy %s/%s is there is not known: %w", p.Namespace, name, core.ErrUnavailable)
	}
	names, missing := t.rules.over(p), []object.Key{}
	for _, name := range names {
		out = append(out, logical.GroupOf(p.Namespace, name))
		if k := (object.KindPolicy.Named(p.Namespace, name)); !t.rules.written[k] {
			missing = append(missing, k)
		}
	}
	t.rules.mu.Unlock()
	for _, k := range missing {
		if err := t.policy(ctx, k); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// face notes a pod that has its rows. One that got them while a policy came is
// looked at again.
func (t *term) face(p object.Pod, all []given) {
	i := slices.IndexFunc(all, func(g given) bool { return g.lease.Owner.Key.IfName == defaultPort(p.Pod) })
	if i < 0 {
		t.unface(p.Pod)
		return
	}
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	keys := t.rules.put(p.Pod, member(p, all[i].lease, all[i].net.Vpc))
	keys = append(keys, t.rules.look()...)
	var now []string
	for _, name := range t.rules.over(p) {
		now = append(now, logical.GroupOf(p.Namespace, name))
	}
	if !slices.Equal(now, all[i].groups) {
		keys = append(keys, object.KindPod.Named(p.Namespace, p.Name))
	}
	t.queue.Add(keys...)
}

// unface notes a pod that has no rows any more.
func (t *term) unface(p core.Pod) {
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	t.queue.Add(t.rules.put(p, nil)...)
}

// ungrouped tells that a port group is not there.
func ungrouped(err error) bool {
	missing := (*ovn.MissingError)(nil)
	return errors.As(err, &missing) && missing.Table == ovn.TablePortGroup
}

// namespace has policies looked at that a namespace's labels concern.
func (t *term) namespace(name string) {
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	t.queue.Add(t.rules.label(name)...)
}

// unrule removes the rows of a NetworkPolicy that is gone.
func (t *term) unrule(ctx context.Context, k object.Key) error {
	if err := t.unmake(ctx, k, "networkpolicy/"+k.Namespace+"/"+k.Name); err != nil {
		return err
	}
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	without(t.rules.untold, k)
	return nil
}

// policy makes a NetworkPolicy's rows what they should be.
func (t *term) policy(ctx context.Context, k object.Key) error {
	t.rules.mu.Lock()
	t.queue.Add(t.rules.look()...)
	p, seen := t.rules.all[k.Namespace][k.Name], logical.Seen(nil)
	if p != nil {
		seen = t.rules.pods.Seen(p)
	} else {
		delete(t.rules.written, k)
	}
	t.rules.mu.Unlock()
	if p == nil {
		return t.unrule(ctx, k)
	}
	t.seen.Store(k, nil)
	net, _, _ := t.nets.Get(logical.JoinSubnet)
	set, undone := p.Set(seen, net.CIDRs)
	obj, _ := t.Policies.Get(k.Namespace, k.Name)
	o := object.Object{Key: k, UID: obj.UID}
	err := t.DB.Apply(ctx, set)
	switch {
	case err == nil:
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, ovn.ErrFenced), ctx.Err() != nil:
		return err
	default:
		return t.failed(ctx, o, "", ReasonPolicy, err)
	}
	t.rules.mu.Lock()
	if t.rules.all[k.Namespace][k.Name] == p {
		t.rules.written[k] = true
	}
	t.rules.mu.Unlock()
	if len(undone) == 0 {
		t.calm(k)
		return nil
	}
	return t.say(ctx, o, object.Event{Reason: ReasonPolicy, Message: strings.Join(undone, "; ")})
}
