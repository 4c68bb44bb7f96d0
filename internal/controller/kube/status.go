package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// readVip keeps a Vip that cannot be read as one of a type that nobody carries out.
func readVip(u *unstructured.Unstructured) *v1.Vip {
	out := &v1.Vip{}
	if err := decode(u, out); err != nil {
		out = &v1.Vip{Spec: v1.VipSpec{Type: "unreadable: " + err.Error()}}
	}
	out.ObjectMeta = meta(u)
	return out
}

// Status implements controller.Outcomes.
func (c *Cluster) Status(ctx context.Context, o object.Object, status any) error {
	have, ok := c.conditions(o.Key)
	if !ok {
		return core.ErrNotFound
	}
	body, err := replacing(status, have)
	if own, ok := status.(v1.ProviderNetworkStatus); ok && err == nil { // its conditions are nodes', one of each type
		body["status"].(map[string]any)["conditions"] = own.Conditions //nolint:forcetypeassert // as replacing made it
	}
	if err != nil {
		return fmt.Errorf("status of %s: %w", o.Key, err)
	}
	resource := v1.GroupVersion.WithResource(map[object.Kind]string{
		object.KindGroup: groups.Resource, object.KindVip: vips.Resource, object.KindVlan: vlans.Resource, object.KindQoS: qos.Resource,
		object.KindIP: ips.Resource, object.KindProvider: providers.Resource,
	}[o.Kind])
	return c.patch(ctx, resource, o, body, "status")
}

// conditions are those that an object has; false for one that is gone.
func (c *Cluster) conditions(k object.Key) ([]v1.Condition, bool) {
	w := c.World()
	switch k.Kind {
	case object.KindGroup:
		if o, ok := w.Groups.Get("", k.Name); ok {
			return o.Status.Conditions, true
		}
	case object.KindVip:
		if o, ok := w.Vips.Get("", k.Name); ok {
			return o.Status.Conditions, true
		}
	case object.KindVlan:
		if o, ok := w.Vlans.Get("", k.Name); ok {
			return o.Status.Conditions, true
		}
	case object.KindIP:
		if o, ok := w.IPs.Get("", k.Name); ok {
			return o.Status.Conditions, true
		}
	case object.KindProvider:
		_, ok := w.Providers.Get("", k.Name)
		return nil, ok
	case object.KindQoS:
		if o, ok := w.QoS.Get("", k.Name); ok {
			return o.Status.Conditions, true
		}
	}
	return nil, false
}

// replacing is a patch that leaves of a status nothing but what another says, and
// conditions of other types.
func replacing(status any, have []v1.Condition) (map[string]any, error) {
	text, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	said := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil, err
	}
	var own struct{ Conditions []v1.Condition }
	if err := json.Unmarshal(text, &own); err != nil {
		return nil, err
	}
	out := map[string]any{}
	for i := range reflect.TypeOf(status).NumField() {
		name, _, _ := strings.Cut(reflect.TypeOf(status).Field(i).Tag.Get("json"), ",")
		out[name] = said[name] // nil is null, which removes
	}
	out["conditions"] = merged(have, own.Conditions)
	return map[string]any{"status": out}, nil
}
