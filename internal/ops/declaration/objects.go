package declaration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// API is what is asked of the Kubernetes API (query.Client).
type API interface {
	Get(ctx context.Context, k query.Kind, namespace, name string) (query.Object, error)
	Each(ctx context.Context, k query.Kind, s query.Scope, use func(query.Object)) error
	InForce(ctx context.Context) ([]core.Subnet, error)
}

// objects are a resolve.Source and a resolve.Declarer over the API server, for one pod.
type objects struct {
	api    API
	common string
	index  *declared.Index
	failed error // why the server did not answer; it is no refusal of the pod
	notes  []string
}

// read lists what may speak of a pod: the PodNetworks of its namespace, and labelled
// ConfigMaps there and in the common namespace. ConfigMaps that may not be seen are noted.
func (o *objects) read(ctx context.Context, pod core.Pod) error {
	var nets []*v1alpha1.PodNetwork
	var wrong error
	err := o.api.Each(ctx, query.PodNetworks, query.Scope{Namespace: pod.Namespace}, func(x query.Object) {
		p := &v1alpha1.PodNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: x.Metadata.Namespace, Name: x.Metadata.Name}}
		if err := query.Read(x.Spec, &p.Spec); err != nil {
			wrong = fmt.Errorf("PodNetwork %s/%s: spec: %w", p.Namespace, p.Name, err)
		}
		if x.Metadata.Deleted == nil {
			nets = append(nets, p)
		}
	})
	if err != nil && !errors.Is(err, core.ErrNotFound) || wrong != nil {
		return errors.Join(err, wrong)
	}
	var maps []declared.ConfigMap
	for _, ns := range slices.Compact([]string{pod.Namespace, cmp.Or(o.common, pod.Namespace)}) {
		err := o.api.Each(ctx, query.ConfigMaps, query.Scope{Namespace: ns, Labels: v1alpha1.LabelPodNetwork + "=true"}, func(x query.Object) {
			m := declared.ConfigMap{Namespace: x.Metadata.Namespace, Name: x.Metadata.Name, Data: map[string]string{}}
			for key, value := range x.Data {
				m.Data[key] = fmt.Sprint(value)
			}
			maps = append(maps, m)
		})
		if denied := (*query.DeniedError)(nil); errors.As(err, &denied) {
			o.notes = append(o.notes, "ConfigMaps of namespace "+ns+": "+denied.Error())
		} else if err != nil {
			return err
		}
	}
	o.index = declared.NewIndex(nets, maps, o.common, o.ordinals)
	return nil
}

// ordinals implements declared.Ordinals.
func (o *objects) ordinals(ctx context.Context, namespace, set string) (start, replicas int, err error) {
	x, err := o.api.Get(ctx, query.StatefulSets, namespace, set)
	if errors.Is(err, core.ErrNotFound) {
		return 0, 0, nil
	}
	spec := struct {
		Replicas int `json:"replicas"`
		Ordinals struct {
			Start int `json:"start"`
		} `json:"ordinals"`
	}{Replicas: 1}
	if err == nil {
		err = query.Read(x.Spec, &spec)
	}
	return spec.Ordinals.Start, spec.Replicas, o.note(err)
}

// note keeps why the server did not answer.
func (o *objects) note(err error) error {
	if err != nil && !errors.Is(err, core.ErrNotFound) {
		o.failed = errors.Join(o.failed, err)
	}
	return err
}

// Declared implements resolve.Declarer.
func (o *objects) Declared(context.Context) (*declared.Index, error) { return o.index, nil }

// Pod implements resolve.Source.
func (o *objects) Pod(ctx context.Context, p core.Pod) (*resolve.Pod, error) {
	x, err := o.api.Get(ctx, query.Pods, p.Namespace, p.Name)
	if err != nil {
		return nil, o.note(err)
	}
	p.UID = x.Metadata.UID
	out := &resolve.Pod{Pod: p, Annotations: x.Metadata.Annotations}
	if owner := metav1.GetControllerOf(&metav1.ObjectMeta{OwnerReferences: x.Metadata.Owners}); owner != nil {
		out.Controller = owner.Kind
	}
	return out, nil
}

// NAD implements resolve.Source.
func (o *objects) NAD(ctx context.Context, namespace, name string) (*resolve.NAD, error) {
	x, err := o.api.Get(ctx, query.NADs, namespace, name)
	if err != nil {
		return nil, o.note(err)
	}
	var spec struct {
		Config string `json:"config"`
	}
	err = query.Read(x.Spec, &spec)
	return &resolve.NAD{Namespace: namespace, Name: name, Annotations: x.Metadata.Annotations, Config: spec.Config}, err
}

// Subnets implements resolve.Source.
func (o *objects) Subnets(ctx context.Context) ([]core.Subnet, error) {
	all, err := o.api.InForce(ctx)
	return all, o.note(err)
}
