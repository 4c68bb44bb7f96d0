package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/ovn"
)

// ReasonGroup is the reason of events about pods whose SecurityGroups are not there.
const ReasonGroup = "SecurityGroupNotFound"

// guarded are the SecurityGroups of an interface; their rows are in the database, and
// those of the group of all: its port comes into them by the transaction that makes
// it. Where one is missing it is in that of all alone, which lets nothing pass: the
// missing one could have dropped what the others allow.
func (t *term) guarded(ctx context.Context, n nic, vpc string) (names []string, missing string, err error) {
	if len(n.names.SecurityGroups) == 0 {
		return nil, "", nil
	}
	if t.guards.Come(vpc) {
		t.guards.Forget()
		t.queue.Add(t.groupKeys()...)
	}
	for _, name := range n.names.SecurityGroups {
		_, there, err := proven(ctx, t, t.Groups, object.KindGroup.Named("", name))
		if err != nil {
			return nil, "", err
		}
		if !there {
			names, missing = nil, fmt.Sprintf("interface %s reaches nobody and is reached by nobody: there is no SecurityGroup %s", n.IfaceID, name)
			break
		}
		names = append(names, name)
	}
	names = append(names, "")
	for _, name := range names {
		if t.guards.Has(name) {
			continue
		}
		if err := t.securityGroup(ctx, object.Key{Kind: object.KindGroup, Name: name}); err != nil {
			return nil, "", err
		}
	}
	return names, missing, nil
}

// guardsOf are the port groups of an interface's SecurityGroups.
func guardsOf(g given) (out []string) {
	for _, name := range g.guards {
		if name == "" {
			out = append(out, logical.ClosedGroup)
		} else {
			out = append(out, logical.GroupIn(name, g.net.Vpc))
		}
	}
	return out
}

// guardsOfAll are the SecurityGroups of a pod.
func guardsOfAll(all []given) (names []string) {
	for _, g := range all {
		names = append(names, g.guards...)
	}
	return names
}

// expect notes groups and Vips that a pod is to have: their rows stay meanwhile.
func (t *term) expect(pod object.Key, all []given) {
	for _, g := range all {
		t.sharers.Add(pod, g.shares)
		t.guards.Add(pod, g.guards)
	}
}

// enlist notes in which groups a pod has its ports, and which Vips it shares; what is
// to go waits until it has none.
func (t *term) enlist(pod object.Key, all []given) {
	var vips []string
	for _, g := range all {
		vips = append(vips, g.shares...)
	}
	for _, name := range t.sharers.Put(pod, vips) {
		t.queue.Add(object.Key{Kind: object.KindVip, Name: name})
	}
	for _, name := range t.guards.Put(pod, guardsOfAll(all)) {
		if _, there := t.Groups.Get("", name); !there && name != "" {
			t.queue.Add(object.Key{Kind: object.KindGroup, Name: name})
		}
	}
}

// settled has a pod wait for nothing any more. It tells of one that is closed for want
// of a group, does not share a Vip that it names, or asks for what nobody does.
func (t *term) settled(ctx context.Context, o object.Object, p object.Pod, all []given) error {
	for _, g := range all {
		e := object.Event{Reason: ReasonGroup, Message: g.unguarded}
		if e.Message == "" {
			e = object.Event{Reason: ReasonVip, Message: g.unshared}
		}
		if e.Message != "" {
			t.served(o.Key)
			return t.say(ctx, o, e)
		}
	}
	if text := differs(p, all); text != "" {
		t.served(o.Key)
		return t.say(ctx, o, object.Event{Reason: ReasonAddress, Message: text})
	}
	return t.noted(ctx, o, status.UndonePod(p.Annotations, t.Outside))
}

// restoreGuards notes of pods that have addresses in which groups they may be, and
// which Vips they may share: a group's rows stay until the pods have left it.
func (t *term) restoreGuards() {
	for _, p := range t.Pods.List() {
		if k := (object.KindPod.Named(p.Namespace, p.Name)); len(t.book.Of(p.Pod)) > 0 {
			t.guards.Put(k, named(p.Annotations, v1.FieldSecurityGroups))
			for _, l := range t.book.Of(p.Pod) {
				if net, _, ok := t.nets.Get(l.Subnet); ok && len(named(p.Annotations, v1.FieldSecurityGroups)) > 0 {
					t.guards.Come(net.Vpc)
				}
			}
			t.sharers.Put(k, named(p.Annotations, v1.FieldAAPs))
		}
	}
}

// named are the objects that annotations name in a field, for whatever interface.
func named(notes map[string]string, field string) (out []string) {
	for key, value := range notes {
		if !strings.Contains(key, v1.ProviderSuffix+field) || !annotation.IsObject(key) {
			continue
		}
		for name := range strings.SplitSeq(value, ",") {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

// securityGroup makes a SecurityGroup's rows what its object says; those of one that
// is gone go when no port is in it any more.
func (t *term) securityGroup(ctx context.Context, k object.Key) error {
	if k.Name == "" {
		return t.closedGroup(ctx)
	}
	obj, there, err := proven(ctx, t, t.Groups, k)
	if err != nil {
		return err
	}
	if !there {
		return t.unguard(ctx, k)
	}
	known, err := t.remotes(ctx, obj.Spec)
	if err != nil {
		return err
	}
	faults, undone, err := t.guardRows(ctx, k.Name, obj.Spec, known)
	if err != nil {
		return err
	}
	want := status.SecurityGroup(obj, faults, undone)
	if reflect.DeepEqual(obj.Status, want) {
		return nil
	}
	return gone(t.Status(ctx, object.Object{Key: k, UID: string(obj.UID)}, want))
}

// remotes tells which of the SecurityGroups that rules name are there.
func (t *term) remotes(ctx context.Context, spec v1.SecurityGroupSpec) (known func(group string) bool, err error) {
	are := map[string]bool{}
	for _, r := range slices.Concat(spec.IngressRules, spec.EgressRules) {
		if name := r.RemoteSecurityGroup; name != "" {
			if _, are[name], err = proven(ctx, t, t.Groups, object.KindGroup.Named("", name)); err != nil {
				return nil, err
			}
		}
	}
	return func(group string) bool { return are[group] }, nil
}

// guardRows makes a SecurityGroup's rows in each Vpc where it may have ports.
func (t *term) guardRows(ctx context.Context, name string, spec v1.SecurityGroupSpec, known func(string) bool) (faults, undone []string, err error) {
	t.making.Lock()
	defer t.making.Unlock()
	set, faults, undone := logical.Guard(name, spec, known, t.reaches())
	if err := t.DB.Apply(ctx, set); err != nil {
		return nil, nil, err
	}
	if t.guards.Note(name, true) {
		t.naming(name)
	}
	return faults, undone, nil
}

// reaches are the Vpcs in which pods name groups, each with those of them that links lead to.
func (t *term) reaches() map[string][]string {
	out := map[string][]string{}
	for _, vpc := range t.guards.Vpcs() {
		out[vpc] = nil
	}
	t.rules.mu.Lock()
	defer t.rules.mu.Unlock()
	for vpc := range out {
		out[vpc] = slices.DeleteFunc(t.rules.pods.Reach(vpc), func(to string) bool { _, has := out[to]; return !has })
	}
	return out
}

// groupKeys are the keys of all SecurityGroups.
func (t *term) groupKeys() (keys []object.Key) {
	for _, g := range t.Groups.List() {
		keys = append(keys, object.Key{Kind: object.KindGroup, Name: g.Name})
	}
	return keys
}

// closedGroup makes the rows of the group of all ports that name one. Once somebody
// needed it, it stays.
func (t *term) closedGroup(ctx context.Context) error {
	if err := t.DB.Apply(ctx, logical.Closed()); err != nil {
		return err
	}
	t.guards.Note("", true)
	return nil
}

// unguard removes a group's rows once its pods have left it for the closed one.
func (t *term) unguard(ctx context.Context, k object.Key) error {
	if t.guards.Note(k.Name, false) {
		t.naming(k.Name)
	}
	left := t.guards.Of(k.Name)
	if len(left) > 0 {
		t.queue.Add(left...) // the last that goes comes back here
		return nil
	}
	if err := t.DB.Apply(ctx, &ovn.Set{Owner: logical.ClosedOwner + k.Name}); err != nil {
		return err
	}
	t.seen.Delete(k)
	return nil
}

// naming has pods and groups looked at that name a group which has come or gone.
func (t *term) naming(group string) {
	for _, p := range t.Pods.List() {
		if slices.Contains(named(p.Annotations, v1.FieldSecurityGroups), group) {
			t.queue.Add(object.KindPod.Named(p.Namespace, p.Name))
		}
	}
	of := func(r v1.SecurityGroupRule) bool { return r.RemoteSecurityGroup == group }
	for _, g := range t.Groups.List() {
		if g.Name != group && (slices.ContainsFunc(g.Spec.IngressRules, of) || slices.ContainsFunc(g.Spec.EgressRules, of)) {
			t.queue.Add(object.Key{Kind: object.KindGroup, Name: g.Name})
		}
	}
}
