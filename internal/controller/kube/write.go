package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// manager is the name under which the API server notes the controller's fields.
const manager = "fairlead-controller"

// patch merges a body into one incarnation of an object. While the watch has
// not told of the last write yet, nothing is written: what the body was made
// from is older, and the controller comes again when the watch tells.
func (c *Cluster) patch(ctx context.Context, what schema.GroupVersionResource, o object.Object, body map[string]any, parts ...string) error {
	if c.awaits(o) {
		return nil
	}
	about, _ := body["metadata"].(map[string]any)
	if about == nil {
		about = map[string]any{}
		body["metadata"] = about
	}
	about["uid"] = o.UID
	if o.Version != "" {
		about["resourceVersion"] = o.Version
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("patch %s: %w", o.Key, err)
	}
	now, err := c.meta.Resource(what).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: manager}, parts...)
	switch {
	case err == nil:
		c.wrote(o, now.GetResourceVersion())
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err), c.replaced(o):
		return fmt.Errorf("patch %s with UID %s: %w", o.Key, o.UID, core.ErrNotFound)
	}
	return fmt.Errorf("patch %s: %w", o.Key, err)
}

// replaced tells that another incarnation of an object is known.
func (c *Cluster) replaced(o object.Object) bool {
	found, exists, err := c.known(o.Key)
	if err != nil || !exists {
		return err == nil
	}
	now, ok := found.(metav1.Object)
	return ok && string(now.GetUID()) != o.UID
}

// Annotate implements controller.Outcomes.
func (c *Cluster) Annotate(ctx context.Context, o object.Object, set map[string]string, drop ...string) error {
	what, notes := pods, map[string]any{}
	switch o.Kind {
	case object.KindNode:
		what = nodes
	case object.KindNamespace:
		what = namespaces
	}
	for k, v := range set {
		notes[k] = v
	}
	for _, k := range drop {
		notes[k] = nil
	}
	return c.patch(ctx, what, o, map[string]any{"metadata": map[string]any{"annotations": notes}})
}

// noAddress tells a pod on itself why it has no address, once it is known what it was told last.
func (c *Cluster) noAddress(ctx context.Context, o object.Object, why string) error {
	if c.awaits(o) {
		return fmt.Errorf("tell %s why it has no address: the watch has yet to tell of what it was told last: %w", o.Key, core.ErrUnavailable)
	}
	if p, ok := c.World().Pods.Get(o.Namespace, o.Name); !ok || p.Annotations[v1.AnnNoAddress] == why {
		return nil
	}
	return gone(c.Annotate(ctx, o, map[string]string{v1.AnnNoAddress: why}))
}

// SubnetStatus implements controller.Outcomes.
func (c *Cluster) SubnetStatus(ctx context.Context, o object.Object, s v1.SubnetStatus) error {
	now, ok := c.World().Subnets.Get("", o.Name)
	if !ok {
		return core.ErrNotFound
	}
	status, err := counting(s, merged(now.Status.Conditions, s.Conditions),
		"v4availableIPs", "v4availableIPrange", "v4usingIPs", "v4usingIPrange", "v6availableIPs", "v6availableIPrange", "v6usingIPs", "v6usingIPrange",
		"activateGateway", "u2oInterconnectionIP", "u2oInterconnectionMAC", "u2oInterconnectionVPC")
	if err != nil {
		return fmt.Errorf("status of %s: %w", o.Key, err)
	}
	return c.patch(ctx, subnets, o, status, "status")
}

// PoolStatus implements controller.Outcomes.
func (c *Cluster) PoolStatus(ctx context.Context, o object.Object, s v1.IPPoolStatus) error {
	now, ok := c.World().Pools.Get("", o.Name)
	if !ok {
		return core.ErrNotFound
	}
	status, err := counting(s, merged(now.Status.Conditions, s.Conditions),
		"v4AvailableIPs", "v4AvailableIPRange", "v4UsingIPs", "v4UsingIPRange", "v6AvailableIPs", "v6AvailableIPRange", "v6UsingIPs", "v6UsingIPRange")
	if err != nil {
		return fmt.Errorf("status of %s: %w", o.Key, err)
	}
	return c.patch(ctx, ippools, o, status, "status")
}

// counting is a patch of these fields of a status; null removes those that it does
// not have.
func counting(s any, conditions []v1.Condition, fields ...string) (map[string]any, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	status := map[string]any{"conditions": conditions}
	for _, f := range fields {
		status[f] = all[f] // nil is null
	}
	return map[string]any{"status": status}, nil
}

// VpcStatus implements controller.Outcomes.
func (c *Cluster) VpcStatus(ctx context.Context, o object.Object, status v1.VpcStatus) error {
	now, ok := c.World().Vpcs.Get("", o.Name)
	switch {
	case !ok && o.UID == "":
		return c.makeVpc(ctx, o.Name)
	case !ok:
		return core.ErrNotFound
	}
	return c.patch(ctx, vpcs, o, map[string]any{"status": map[string]any{
		"conditions": merged(now.Status.Conditions, status.Conditions), "standby": status.Standby, "default": status.Default,
		"router": status.Router, "defaultLogicalSwitch": status.DefaultLogicalSwitch, "subnets": status.Subnets,
	}}, "status")
}

// makeVpc makes an object that says nothing. One that somebody makes meanwhile stays.
func (c *Cluster) makeVpc(ctx context.Context, name string) error {
	_, err := c.client.Resource(vpcs).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1.APIVersion, "kind": string(object.KindVpc), "metadata": map[string]any{"name": name}, "spec": map[string]any{},
	}}, metav1.CreateOptions{FieldManager: manager})
	if err != nil && !apierrors.IsAlreadyExists(err) { // then the watch tells of it
		return fmt.Errorf("make Vpc %s: %w", name, err)
	}
	return nil
}

// PutSubnet implements controller.Outcomes.
func (c *Cluster) PutSubnet(ctx context.Context, want *v1.Subnet) error {
	want.TypeMeta = metav1.TypeMeta{APIVersion: v1.APIVersion, Kind: string(object.KindSubnet)}
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return fmt.Errorf("make Subnet %s: %w", want.Name, err)
	}
	delete(body, "status")
	_, err = c.client.Resource(subnets).Create(ctx, &unstructured.Unstructured{Object: body}, metav1.CreateOptions{FieldManager: manager})
	if err != nil && !apierrors.IsAlreadyExists(err) { // then the watch tells of it
		return fmt.Errorf("make Subnet %s: %w", want.Name, err)
	}
	return nil
}

// DropSubnet implements controller.Outcomes. Of one that somebody changes meanwhile the
// watch tells.
func (c *Cluster) DropSubnet(ctx context.Context, have *v1.Subnet) error {
	found, exists, err := c.known(object.Key{Kind: object.KindSubnet, Name: have.Name})
	now, ok := found.(metav1.Object)
	if err != nil || !exists || !ok {
		return err
	}
	version := now.GetResourceVersion()
	err = c.client.Resource(subnets).Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &version}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Subnet %s: %w", have.Name, err)
	}
	return nil
}

// PutIP implements controller.Outcomes.
func (c *Cluster) PutIP(ctx context.Context, have, want *v1.IP) error {
	if have == nil {
		want.TypeMeta = metav1.TypeMeta{APIVersion: v1.APIVersion, Kind: string(object.KindIP)}
		body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
		if err != nil {
			return fmt.Errorf("make IP %s: %w", want.Name, err)
		}
		delete(body, "status")
		_, err = c.client.Resource(ips).Create(ctx, &unstructured.Unstructured{Object: body}, metav1.CreateOptions{FieldManager: manager})
		if err != nil && !apierrors.IsAlreadyExists(err) { // then the watch tells of it
			return fmt.Errorf("make IP %s: %w", want.Name, err)
		}
		return nil
	}
	body, err := changes(have, want)
	if err != nil || len(body) == 0 {
		return err
	}
	return gone(c.patch(ctx, ips, object.Object{Key: object.Key{Kind: object.KindIP, Name: have.Name}, UID: string(have.UID)}, body))
}

// changes merges into an object what another says. null removes a field that only
// the former has.
func changes(have, want *v1.IP) (map[string]any, error) {
	body, about := map[string]any{}, map[string]any{}
	for field, change := range map[string]map[string]string{
		"labels": lacking(have.Labels, want.Labels), "annotations": lacking(have.Annotations, want.Annotations),
	} {
		if len(change) > 0 {
			about[field], body["metadata"] = change, about
		}
	}
	if reflect.DeepEqual(have.Spec, want.Spec) {
		return body, nil
	}
	was, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&have.Spec)
	if err != nil {
		return nil, fmt.Errorf("change IP %s: %w", have.Name, err)
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&want.Spec)
	if err != nil {
		return nil, fmt.Errorf("change IP %s: %w", have.Name, err)
	}
	for field := range was {
		if _, stays := spec[field]; !stays {
			spec[field] = nil
		}
	}
	body["spec"] = spec
	return body, nil
}

// lacking are the pairs of want that have has not.
func lacking(have, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k, v string) bool { now, has := have[k]; return has && now == v })
	return out
}

// DropIP implements controller.Outcomes.
func (c *Cluster) DropIP(ctx context.Context, have *v1.IP) error {
	if len(have.Finalizers) > 0 {
		o := object.Object{Key: object.Key{Kind: object.KindIP, Name: have.Name}, UID: string(have.UID)}
		if err := gone(c.patch(ctx, ips, o, map[string]any{"metadata": map[string]any{"finalizers": nil}})); err != nil {
			return err
		}
	}
	err := c.client.Resource(ips).Delete(ctx, have.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete IP %s: %w", have.Name, err)
	}
	return nil
}

// gone takes an object that is gone for one that needs nothing any more.
func gone(err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// merged are conditions with those of other types that an object has.
func merged(have, want []v1.Condition) []v1.Condition {
	others := slices.DeleteFunc(slices.Clone(have), func(h v1.Condition) bool {
		return slices.ContainsFunc(want, func(w v1.Condition) bool { return w.Type == h.Type })
	})
	return append(others, want...)
}

// Warn implements controller.Outcomes. An event that the API server refuses, as of a
// namespace that is going, is logged.
func (c *Cluster) Warn(ctx context.Context, o object.Object, e object.Event) error {
	if e.Unserved && o.Kind == object.KindPod {
		if err := c.noAddress(ctx, o, e.Message); err != nil {
			return err
		}
	}
	level := "Warning"
	if e.Good {
		level = "Normal"
	}
	now, in := time.Now().UTC().Format(time.RFC3339), cmp.Or(o.Namespace, metav1.NamespaceDefault)
	about := map[string]any{"kind": string(o.Kind), "namespace": o.Namespace, "name": o.Name, "uid": o.UID, "apiVersion": "v1"}
	switch o.Kind {
	case object.KindVpc, object.KindSubnet, object.KindIP, object.KindPool, object.KindGroup, object.KindVip, object.KindVlan, object.KindQoS, object.KindProvider:
		about["apiVersion"] = v1.APIVersion
	case object.KindPolicy:
		about["apiVersion"] = policies.GroupVersion().String()
	}
	_, err := c.client.Resource(events).Namespace(in).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]any{"generateName": "fairlead-", "namespace": in},
		"involvedObject": about, "type": level, "reason": e.Reason, "message": e.Message,
		"firstTimestamp": now, "lastTimestamp": now, "count": int64(1),
		"source": map[string]any{"component": manager}, "reportingComponent": manager,
	}}, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		c.log.Warn("an event is not recorded", "object", o.Key, "reason", e.Reason, "message", e.Message, "err", err)
	} else if err != nil {
		return fmt.Errorf("event %s of %s: %w", e.Reason, o.Key, err)
	}
	return nil
}
