package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
)

// vlans tells each Vlan which Subnets name it, and whether an older one has its id on
// the same provider network.
func (t *term) vlans(ctx context.Context) (err error) {
	all := slices.SortedFunc(slices.Values(t.Vlans.List()), func(a, b *v1.Vlan) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if len(all) == 0 {
		return nil
	}
	subnets := map[string][]string{}
	for _, s := range t.Subnets.List() {
		subnets[s.Spec.Vlan] = append(subnets[s.Spec.Vlan], s.Name)
	}
	type place struct {
		network string
		id      int
	}
	first := map[place]string{}
	for _, o := range all {
		at := place{cmp.Or(o.Spec.Provider, o.Spec.OldProvider), cmp.Or(o.Spec.ID, o.Spec.OldID)}
		c := v1.Condition{Type: v1.ConditionConflict, Status: "False", Reason: status.CarriedOut, ObservedGeneration: o.Generation}
		if by, taken := first[at]; taken && at.network != "" {
			c.Status, c.Reason = "True", "SameID"
			c.Message = fmt.Sprintf("spec.id: Vlan %s has id %d of provider network %s already", by, at.id, at.network)
		} else {
			first[at] = o.Name
		}
		slices.Sort(subnets[o.Name])
		want := v1.VlanStatus{Subnets: subnets[o.Name], Conflict: c.Status == "True"}
		want.Conditions, _ = status.Merge(o.Status.Conditions, []v1.Condition{c})
		if !reflect.DeepEqual(o.Status, want) {
			err = errors.Join(err, gone(t.Status(ctx, object.Object{Key: object.Key{Kind: object.KindVlan, Name: o.Name}, UID: string(o.UID)}, want)))
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
	undone := status.Conditions(o.Generation, nil, []string{status.UndoneQoSPolicy})
	var changed bool
	want := o.Status
	want.Conditions, changed = status.Merge(o.Status.Conditions, slices.DeleteFunc(undone, func(c v1.Condition) bool { return c.Type == v1.ConditionReady }))
	if !changed {
		return nil
	}
	return gone(t.Status(ctx, object.Object{Key: k, UID: string(o.UID)}, want))
}
