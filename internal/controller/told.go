package controller

import (
	"context"
	"errors"
	"maps"
	"reflect"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
)

// Reasons of events about what is refused, the reference's.
const (
	ReasonVlan   = "ValidateVlanFailed"
	ReasonSubnet = "ValidateLogicalSwitchFailed"
)

// blames tells by an event, once, what is wrong with an object; "" for nothing.
func (t *term) blames(ctx context.Context, o object.Object, reason, fault string) error {
	if fault != "" {
		return t.say(ctx, o, object.Event{Reason: reason, Message: fault})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.warned, o.Key)
	return nil
}

// vlans tells each Vlan what there is to say of it.
func (t *term) vlans(ctx context.Context) (err error) {
	all := t.Vlans.List()
	if len(all) == 0 {
		return nil
	}
	judged := t.nets.Vlans()
	for name, want := range status.Vlans(all, judged, t.Subnets.List()) {
		o, ok := t.Vlans.Get("", name)
		if !ok {
			continue
		}
		about := object.Object{Key: object.Key{Kind: object.KindVlan, Name: name}, UID: string(o.UID)}
		err = errors.Join(err, t.blames(ctx, about, ReasonVlan, judged[name].Fault))
		if !reflect.DeepEqual(o.Status, want) {
			err = errors.Join(err, gone(t.Status(ctx, about, want)))
		}
	}
	return err
}

// providers tells each ProviderNetwork on which nodes it is, by what they say.
func (t *term) providers(ctx context.Context) (err error) {
	all := t.Providers.List()
	if len(all) == 0 {
		return nil
	}
	var nodes []status.ProviderNode
	for _, n := range t.Nodes.List() {
		nodes = append(nodes, status.ProviderNode{Name: n.Name, Labels: n.Uplinks, Notes: n.Annotations})
	}
	for _, o := range all {
		if want := status.Provider(o, nodes, t.Vlans.List()); !reflect.DeepEqual(o.Status, want) {
			err = errors.Join(err, gone(t.Status(ctx, object.Object{Key: object.KindProvider.Named("", o.Name), UID: string(o.UID)}, want)))
		}
	}
	return err
}

// qos tells a QoSPolicy that nobody carries it out: what it would be bound to, gateways
// and external addresses, is not there.
func (t *term) qos(ctx context.Context, k object.Key) error {
	o, ok := t.QoS.Get("", k.Name)
	if !ok {
		return nil
	}
	var changed bool
	want := o.Status
	want.Conditions, changed = status.Merge(o.Status.Conditions, []v1.Condition{status.Undone(o.Generation, []string{status.UndoneQoSPolicy})})
	if !changed {
		return nil
	}
	return gone(t.Status(ctx, object.Object{Key: k, UID: string(o.UID)}, want))
}

// space tells a namespace to which Subnets its pods come. Nobody here reads that.
func (t *term) space(ctx context.Context, k object.Key) error {
	ns, ok := t.Namespaces.Get("", k.Name)
	if !ok {
		return nil
	}
	want := t.nets.Space(k.Name)
	maps.DeleteFunc(want, func(key, value string) bool { return ns.Annotations[key] == value })
	var drop []string
	for key, value := range want {
		if value == "" {
			drop = append(drop, key)
		}
	}
	return t.tell(ctx, object.Object{Key: object.KindNamespace.Named("", k.Name), UID: ns.UID}, want, drop...)
}
