package controller

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Reasons of conditions.
const (
	reasonCarriedOut = "CarriedOut"
	reasonRefused    = "Refused"
	reasonFields     = "FieldsNotImplemented"
)

// vpc makes a Vpc's router what its object says; the default one is there
// without an object.
func (t *term) vpc(ctx context.Context, k Key) error {
	obj, ok := t.Vpcs.Get("", k.Name)
	if !ok && k.Name != v1.DefaultVpc {
		if t.switched(k.Name) {
			return nil // its Subnets' pods go on; the last Subnet that goes comes back to it
		}
		return t.DB.Apply(ctx, &ovn.Set{Owner: "vpc/" + k.Name})
	}
	if !ok {
		obj = &v1.Vpc{}
	}
	v, undone, err := logical.ReadVpc(k.Name, obj.Spec)
	conditions := conditionsOf(obj.Generation, err, undone)
	if err == nil {
		if k.Name == v1.DefaultVpc {
			if net, _, there := t.nets.Get(logical.JoinSubnet); there {
				v.Routes = append(v.Routes, logical.DefaultRoutes(net.Subnet)...)
			}
		}
		if err := t.DB.Apply(ctx, logical.Router(v)); err != nil {
			return err
		}
		t.rouse(k.Name)
	}
	conditions, changed := merge(obj.Status.Conditions, conditions)
	if !ok || !changed {
		return nil
	}
	return gone(t.VpcConditions(ctx, Object{Key: k, UID: string(obj.UID)}, conditions))
}

// conditionsOf are Ready, and NotImplemented with the fields that are set and
// not carried out.
func conditionsOf(generation int64, err error, undone []string) []v1.Condition {
	ready := v1.Condition{Type: v1.ConditionReady, Status: "True", Reason: reasonCarriedOut, ObservedGeneration: generation}
	if err != nil {
		ready.Status, ready.Reason, ready.Message = "False", reasonRefused, err.Error()
	}
	fields := v1.Condition{Type: v1.ConditionNotImplemented, Status: "False", Reason: reasonCarriedOut, ObservedGeneration: generation}
	if len(undone) > 0 {
		fields.Status, fields.Reason, fields.Message = "True", reasonFields, strings.Join(undone, ", ")
	}
	return []v1.Condition{ready, fields}
}

// merge dates conditions after those that an object has; false for none that
// is new. Conditions of other types are others'.
func merge(have, want []v1.Condition) (out []v1.Condition, changed bool) {
	now := metav1.Now()
	for _, w := range want {
		w.LastTransitionTime, w.LastUpdateTime = now, now
		i := slices.IndexFunc(have, func(c v1.Condition) bool { return c.Type == w.Type })
		if i >= 0 {
			h := have[i]
			if h.Status == w.Status {
				w.LastTransitionTime = h.LastTransitionTime
			}
			if h.Status == w.Status && h.Reason == w.Reason && h.Message == w.Message && h.ObservedGeneration == w.ObservedGeneration {
				out = append(out, h)
				continue
			}
		}
		out, changed = append(out, w), true
	}
	return out, changed
}
