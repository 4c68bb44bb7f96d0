// Package object gives ConfigMaps and Secrets by name, and says which of them a
// pod names. It must not know what anybody does with them.
package object

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kinds of objects.
const (
	ConfigMap = "configmap"
	Secret    = "secret"
)

// Objects gives what a node has at this moment. Nobody changes what is given.
// The error wraps ErrMissing when the object is not there, and ErrUnknown when
// it is not known whether it is.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
}

// Store is Objects that tell of their changes.
type Store interface {
	Objects
	// Hold says which objects a pod names, nil when it is gone. A store that has
	// to ask for objects one by one asks for those that are held.
	Hold(uid types.UID, refs []Ref)
	// Follow calls changed with each object that came, went or changed, until
	// ctx ends. The error is that of ctx.
	Follow(ctx context.Context, changed func(Ref)) error
}

// Why an object cannot be given.
var (
	ErrMissing = errors.New("is not there")
	ErrUnknown = errors.New("is not known yet")
	// ErrNotHeld is ErrMissing, of a store that nobody has told to ask for it.
	ErrNotHeld = fmt.Errorf("%w: nobody holds it", ErrMissing)
)

// Ref is the name of one object.
type Ref struct{ Kind, Namespace, Name string }

func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Missing is the error about an object that is not there; where says who would
// have it.
func (r Ref) Missing(where string) error { return fmt.Errorf("%s %w: %s", r, ErrMissing, where) }

// Unless drops the error about an object that is missing and optional. One of
// which nothing is known is an error nevertheless.
func Unless(optional *bool, err error) error {
	if optional != nil && *optional && errors.Is(err, ErrMissing) {
		return nil
	}
	return err
}

// None is the store of a node that has no objects.
type None struct{}

// ConfigMap is never there.
func (None) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return nil, Ref{ConfigMap, namespace, name}.Missing("this node has no ConfigMaps")
}

// Secret is never there.
func (None) Secret(namespace, name string) (*v1.Secret, error) {
	return nil, Ref{Secret, namespace, name}.Missing("this node has no Secrets")
}

// Hold does nothing: there are no objects to keep.
func (None) Hold(types.UID, []Ref) {}

// Follow waits.
func (None) Follow(ctx context.Context, _ func(Ref)) error {
	<-ctx.Done()
	return ctx.Err()
}

// Both asks a first store and, for what that does not have, a second one.
type Both struct{ First, Second Store }

// ConfigMap tells the first one's error when neither has it: the second one may
// not have been meant.
func (b Both) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	return either(namespace, name, b.First.ConfigMap, b.Second.ConfigMap)
}

// Secret is as ConfigMap.
func (b Both) Secret(namespace, name string) (*v1.Secret, error) {
	return either(namespace, name, b.First.Secret, b.Second.Secret)
}

func either[T any](namespace, name string, first, second func(namespace, name string) (T, error)) (T, error) {
	o, err := first(namespace, name)
	if !errors.Is(err, ErrMissing) {
		return o, err
	}
	o, otherwise := second(namespace, name)
	if errors.Is(otherwise, ErrNotHeld) {
		return o, err
	}
	return o, otherwise
}

// Hold holds with both.
func (b Both) Hold(uid types.UID, refs []Ref) {
	b.First.Hold(uid, refs)
	b.Second.Hold(uid, refs)
}

// Follow follows both, until one of them ends.
func (b Both) Follow(ctx context.Context, changed func(Ref)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- b.First.Follow(ctx, changed)
	}()
	err := b.Second.Follow(ctx, changed)
	cancel()
	if first := <-ended; first != nil {
		return first
	}
	return err
}

// Refs are all objects that a pod, its containers and volumes name, each once and
// in the order of their names; never nil.
func Refs(pod *v1.Pod) []Ref {
	r := refs{namespace: pod.Namespace, all: []Ref{}}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			r.container(&list[i])
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		r.container((*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.add(Secret, s.Name)
	}
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i])
	}
	slices.SortFunc(r.all, func(a, b Ref) int { return slices.Compare([]string{a.Kind, a.Name}, []string{b.Kind, b.Name}) })
	return slices.Compact(r.all)
}

type refs struct {
	namespace string
	all       []Ref
}

func (r *refs) add(kind, name string) {
	if name != "" {
		r.all = append(r.all, Ref{kind, r.namespace, name})
	}
}

func (r *refs) container(c *v1.Container) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.add(ConfigMap, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.add(Secret, from.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.add(ConfigMap, ref.Name)
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			r.add(Secret, ref.Name)
		}
	}
}

func (r *refs) volume(v *v1.Volume) {
	if v.ConfigMap != nil {
		r.add(ConfigMap, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		r.add(Secret, v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for _, s := range v.Projected.Sources {
		if s.ConfigMap != nil {
			r.add(ConfigMap, s.ConfigMap.Name)
		}
		if s.Secret != nil {
			r.add(Secret, s.Secret.Name)
		}
	}
}
