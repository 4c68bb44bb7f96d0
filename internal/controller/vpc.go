package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/networks"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/ovn"
)

// vpc makes a Vpc's router what its object says; the default one is there
// without an object, and gets one that shows its status.
func (t *term) vpc(ctx context.Context, k object.Key) error {
	obj, ok := t.Vpcs.Get("", k.Name)
	if !ok {
		obj = &v1.Vpc{}
	}
	t.linked(k.Name, obj.Spec)
	if !ok && k.Name != v1.DefaultVpc {
		if t.switched(k.Name) {
			return nil // its Subnets' pods go on; the last Subnet that goes comes back to it
		}
		return t.DB.Apply(ctx, &ovn.Set{Owner: "vpc/" + k.Name})
	}
	v, undone, err := logical.ReadVpc(k.Name, obj.Spec)
	now := v1.VpcStatus{Default: k.Name == v1.DefaultVpc, Router: k.Name}
	var unhoused error
	now.DefaultLogicalSwitch, now.Subnets, unhoused = t.nets.Home(k.Name, obj.Spec)
	undone = slices.Concat(undone, networks.Unheeded(k.Name, obj.Spec, now.DefaultLogicalSwitch), status.Unknown(obj.Spec.Unknown))
	var refused error // by the database
	if err == nil {
		if refused = t.router(ctx, v); passes(refused) || errors.As(refused, new(*ovn.MissingError)) {
			return refused
		}
	}
	now.Standby = err == nil && refused == nil
	conditions, changed := status.Merge(obj.Status.Conditions, status.Conditions(obj.Generation, cmp.Or(err, refused, v.Refused, unhoused), undone))
	if now.Conditions = conditions; ok && !changed && status.SameVpc(obj.Status, now) {
		return refused
	}
	return errors.Join(refused, gone(t.VpcStatus(ctx, object.Object{Key: k, UID: string(obj.UID)}, now)))
}

// router makes a Vpc's router.
func (t *term) router(ctx context.Context, v logical.Vpc) error {
	if net, _, there := t.nets.Get(logical.JoinSubnet); there && v.Name == v1.DefaultVpc {
		v.Leave(net.Subnet, t.nets.Tables(v.Name))
	}
	if err := t.DB.Apply(ctx, logical.Router(v)); err != nil {
		return err
	}
	t.rouse(v.Name)
	return nil
}
