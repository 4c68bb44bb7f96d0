package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/networks"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/controller/underlay"
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
	net, err := t.interconnect(net)
	if err == nil {
		err = t.DB.Apply(ctx, logical.Switch(net))
	}
	t.refused(k.Name, err)
	if err != nil {
		t.awaits(k, net.Vpc, "")
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
		if _, err := t.vacate(ctx, k); err != nil {
			return err
		}
		t.book.Open(k.Name)
	}
	t.claims.Arrived(k.Name)
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

// passes tells a failure that is nobody's who declared something, and is over by itself: the
// database does not answer, another controller leads, this one ends.
func passes(err error) bool {
	return errors.Is(err, core.ErrUnavailable) || errors.Is(err, ovn.ErrFenced) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// refused notes why a Subnet that is good by itself has no rows, nil where it has
// them, and has its condition tell that. What passes by itself it does not tell.
func (t *term) refused(subnet string, err error) {
	missing := (*ovn.MissingError)(nil)
	switch {
	case errors.As(err, &missing):
		err = fmt.Errorf("there is no router of Vpc %s: it does not exist, or its condition says why", missing.Key)
	case passes(err):
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

// unswitch removes the rows of a Subnet that is not in force, and then forgets who had its
// addresses, as the next leader would.
func (t *term) unswitch(ctx context.Context, k object.Key) error {
	t.refused(k.Name, nil)
	empty, err := t.vacate(ctx, k)
	if empty {
		t.book.Drop(k.Name)
	}
	return err
}

// vacate removes the rows of a Subnet once nobody has an address of it: its ports go with
// its switch. empty tells that they are gone.
func (t *term) vacate(ctx context.Context, k object.Key) (empty bool, err error) {
	underlay.Router{Book: t.book}.Leave(k.Name)
	t.recount(k.Name) // not counted, which has an empty one come here again
	if !t.book.Shut(k.Name) {
		return false, nil // the last address that is given back comes here again
	}
	if err := t.DB.Apply(ctx, &ovn.Set{Owner: "subnet/" + k.Name}); err != nil {
		return false, err
	}
	if vpc := t.switchOf(k.Name, ""); vpc != "" {
		t.queue.Add(t.vpcsOf(vpc)...)
	}
	return true, nil
}

// show makes the object of a Subnet that none declares, and deletes one that does not show
// what is in force; stays tells that an object is there for good. Both come back here.
func (t *term) show(ctx context.Context, obj *v1.Subnet, there bool, net logical.Subnet) (stays bool, err error) {
	switch {
	case !there && net.Builtin:
		return false, t.PutSubnet(ctx, networks.Shown(net))
	case !there:
		return false, nil
	case v1.Shown(obj.Annotations, obj.Spec) && (!net.Builtin || !reflect.DeepEqual(obj.Spec, networks.Shown(net).Spec)):
		return false, t.DropSubnet(ctx, obj)
	}
	return true, nil
}

// status tells a Subnet's object what came of it, and how many of its addresses
// are in use.
func (t *term) status(ctx context.Context, k object.Key) error {
	obj, ok := t.Subnets.Get("", k.Name)
	net, fault, inForce := t.nets.Get(k.Name)
	if !ok && !inForce {
		t.calm(object.Key{Kind: object.KindSubnet, Name: k.Name})
	}
	if stays, err := t.show(ctx, obj, ok, net); !stays || err != nil {
		return err
	}
	refused := t.fault(k.Name)
	if fault != "" {
		refused = errors.New(fault)
	}
	about := object.Object{Key: object.Key{Kind: object.KindSubnet, Name: k.Name}, UID: string(obj.UID)}
	why := fault
	if refused != nil {
		why = refused.Error()
	}
	blamed := t.blames(ctx, about, ReasonSubnet, why)
	want := v1.SubnetStatus{}
	if inForce {
		want = status.Subnet(t.book.Allocator, net.Subnet)
		if net = t.joined(net); len(net.Interconnection) > 0 {
			want.U2OInterconnectionIP, want.U2OInterconnectionMAC, want.U2OInterconnectionVPC = logical.Join(net.Interconnection), net.GatewayMAC().String(), net.Vpc
		}
	}
	active, gateways := t.gateways.Status(obj)
	want.ActivateGateway = active
	conditions, changed := status.Merge(obj.Status.Conditions, slices.Concat(
		status.Conditions(obj.Generation, refused, append(status.UndoneSubnet(obj.Spec), status.UndoneShare(obj.Annotations)...)),
		gateways))
	want.Conditions = conditions
	if changed || !status.Same(obj.Status, want) {
		blamed = errors.Join(blamed, gone(t.SubnetStatus(ctx, about, want)))
	}
	return blamed
}

// gone takes an object that is gone for one that needs nothing any more.
func gone(err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// interconnect gives OVN's router its addresses in a Subnet, and the Subnet with them.
func (t *term) interconnect(n logical.Subnet) (logical.Subnet, error) {
	changed, err := underlay.Router{Book: t.book}.Settle(n.Subnet, n.Asked)
	if changed { // pods have another gateway
		t.counted(n.Name)
		t.queue.Add(t.podsIn(map[string]bool{n.Name: true})...)
	}
	return t.joined(n), err
}

// joined is a Subnet with the addresses of OVN's router, where it has some.
func (t *term) joined(n logical.Subnet) logical.Subnet {
	n.Interconnection = underlay.Router{Book: t.book}.In(n.Subnet)
	return n
}

// restoreRouter adds the addresses of OVN's router in interconnected Subnets.
func (t *term) restoreRouter(r *book.Gathering) {
	for _, o := range t.Subnets.List() {
		net, _, _ := t.nets.Get(o.Name)
		if l := underlay.Told(o, net.Subnet, t.nets.RouterIn(o)); net.Interconnected && t.possible(l) {
			r.Add(l) // one that another has is chosen anew
		}
	}
}
