package controller

import (
	"context"
	"errors"
	"fmt"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// subnet makes a Subnet's switch what is in force. The switch of one that is
// declared no more stays until nobody has an address of it.
func (t *term) subnet(ctx context.Context, k object.Key) error {
	net, _, ok := t.nets.Get(k.Name)
	if !ok {
		return t.unswitch(ctx, k)
	}
	t.book.Open(k.Name)
	if claim.Needed(net.Subnet) {
		return t.carriedElsewhere(ctx, k)
	}
	err := t.DB.Apply(ctx, logical.Switch(net))
	t.refused(k.Name, err)
	if err != nil {
		t.awaits(k, net.Vpc)
		return err
	}
	t.calm(k)
	before := t.switchOf(k.Name, net.Vpc)
	if before != "" && before != net.Vpc {
		t.queue.Add(object.Key{Kind: object.KindVpc, Name: before})
	}
	t.rouse(k.Name)
	t.counted(k.Name)
	return nil
}

// carriedElsewhere serves a Subnet that OVN does not carry. It has no rows, or had them
// under another provider.
func (t *term) carriedElsewhere(ctx context.Context, k object.Key) error {
	if t.hasSwitch(k.Name) {
		if err := t.DB.Apply(ctx, &ovn.Set{Owner: "subnet/" + k.Name}); err != nil {
			return err
		}
		if vpc := t.switchOf(k.Name, ""); vpc != "" {
			t.queue.Add(t.vpcsOf(vpc)...)
		}
	}
	t.refused(k.Name, nil)
	t.calm(k)
	for _, c := range t.Claims.List() {
		if c.Spec.Subnet == k.Name {
			t.queue.Add(object.Key{Kind: object.KindClaim, Name: c.Name})
		}
	}
	t.rouse(k.Name)
	t.counted(k.Name)
	return nil
}

// refused notes why a Subnet that is good by itself has no rows, nil where it has
// them, and has its condition tell that. What passes by itself it does not tell.
func (t *term) refused(subnet string, err error) {
	missing := (*ovn.MissingError)(nil)
	switch {
	case errors.As(err, &missing):
		err = fmt.Errorf("there is no router of Vpc %s: it does not exist, or its condition says why", missing.Key)
	case err != nil && !errors.As(err, new(*ovn.TakenError)):
		return
	}
	t.mu.Lock()
	before := t.faults[subnet]
	t.faults[subnet] = err
	if err == nil {
		delete(t.faults, subnet)
	}
	t.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		t.counted(subnet)
	}
}

// unswitch removes the rows of a Subnet that is not in force.
func (t *term) unswitch(ctx context.Context, k object.Key) error {
	t.refused(k.Name, nil)
	t.recount(k.Name) // not counted, which has an empty one come here again
	if !t.book.Shut(k.Name) {
		return nil // the last address that is given back comes here again
	}
	if err := t.DB.Apply(ctx, &ovn.Set{Owner: "subnet/" + k.Name}); err != nil {
		return err
	}
	if vpc := t.switchOf(k.Name, ""); vpc != "" {
		t.queue.Add(t.vpcsOf(vpc)...)
	}
	return nil
}

// status tells a Subnet's object what came of it, and how many of its addresses
// are in use.
func (t *term) status(ctx context.Context, k object.Key) error {
	obj, ok := t.Subnets.Get("", k.Name)
	if !ok {
		return nil
	}
	net, fault, inForce := t.nets.Get(k.Name)
	t.mu.Lock()
	refused := t.faults[k.Name]
	t.mu.Unlock()
	if fault != "" {
		refused = errors.New(fault)
	}
	want := v1.SubnetStatus{}
	if inForce {
		want = status.Subnet(t.book.Allocator, net.Subnet)
	}
	conditions, changed := status.Merge(obj.Status.Conditions, status.Conditions(obj.Generation, refused, status.UndoneSubnet(obj.Spec)))
	want.Conditions = conditions
	if !changed && status.Same(obj.Status, want) {
		return nil
	}
	return gone(t.SubnetStatus(ctx, object.Object{Key: object.Key{Kind: object.KindSubnet, Name: k.Name}, UID: string(obj.UID)}, want))
}

// gone takes an object that is gone for one that needs nothing any more.
func gone(err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}
