// Package env computes the variables of a container from its pod and the
// objects that it names. It knows no runtime but the shape in which CRI wants
// them.
package env

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/downward"
	"github.com/fairlead/fairlead/internal/node/object"
)

// Variables of a container, in order; a later one of the same name replaces the
// earlier. The zero value is ready for use.
type Variables struct {
	names  []string
	values map[string]string
}

func (v *Variables) set(name, value string) {
	if v.values == nil {
		v.values = map[string]string{}
	}
	if _, has := v.values[name]; !has {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// List are the variables as CRI's calls have them.
func (v *Variables) List() []*cri.KeyValue {
	out := make([]*cri.KeyValue, 0, len(v.names))
	for _, n := range v.names {
		out = append(out, &cri.KeyValue{Key: n, Value: []byte(v.values[n])})
	}
	return out
}

// Of computes a container's variables. A reference that leads nowhere is an
// error that names it, unless it is optional.
func Of(facts *downward.Facts, c *v1.Container, objects object.Objects) (*Variables, error) {
	v := &Variables{}
	e := computing{facts: facts, container: c, objects: objects}
	for i := range c.EnvFrom {
		if err := e.from(&c.EnvFrom[i], v); err != nil {
			return nil, fmt.Errorf("envFrom[%d]: %w", i, err)
		}
	}
	for i := range c.Env {
		one := &c.Env[i]
		if one.ValueFrom == nil {
			v.set(one.Name, v.Expand(one.Value))
			continue
		}
		value, found, err := e.value(one.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", one.Name, err)
		}
		if found {
			v.set(one.Name, value)
		}
	}
	return v, nil
}

// Fixed are the variables whose values stand in the container itself, as far as
// a probe's command may name them.
func Fixed(c *v1.Container) *Variables {
	v := &Variables{}
	for i := range c.Env {
		if e := &c.Env[i]; e.ValueFrom == nil {
			v.set(e.Name, v.Expand(e.Value))
		}
	}
	return v
}

type computing struct {
	facts     *downward.Facts
	container *v1.Container
	objects   object.Objects
}

func (e *computing) from(from *v1.EnvFromSource, v *Variables) error {
	data, err := e.all(from)
	if err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(data)) {
		v.set(from.Prefix+k, data[k])
	}
	return nil
}

func (e *computing) all(from *v1.EnvFromSource) (map[string]string, error) {
	namespace := e.facts.Pod.Namespace
	if ref := from.ConfigMapRef; ref != nil {
		m, err := e.objects.ConfigMap(namespace, ref.Name)
		if err != nil {
			return nil, object.Unless(ref.Optional, err)
		}
		return m.Data, nil
	}
	if ref := from.SecretRef; ref != nil {
		s, err := e.objects.Secret(namespace, ref.Name)
		if err != nil {
			return nil, object.Unless(ref.Optional, err)
		}
		return texts(s.Data), nil
	}
	return nil, errors.New("this kind of source is not supported")
}

func texts(data map[string][]byte) map[string]string {
	out := make(map[string]string, len(data))
	for k, b := range data {
		out[k] = string(b)
	}
	return out
}

func (e *computing) value(from *v1.EnvVarSource) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = e.facts.Field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = e.facts.Resource(e.container, from.ResourceFieldRef)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := e.objects.ConfigMap(e.facts.Pod.Namespace, ref.Name)
		if err != nil {
			return "", false, object.Unless(ref.Optional, err)
		}
		return key(m.Data, ref.Key, "configmap "+ref.Name, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := e.objects.Secret(e.facts.Pod.Namespace, ref.Name)
		if err != nil {
			return "", false, object.Unless(ref.Optional, err)
		}
		return key(texts(s.Data), ref.Key, "secret "+ref.Name, ref.Optional)
	}
	return "", false, errors.New("this kind of source is not supported")
}

func key(data map[string]string, name, where string, optional *bool) (value string, found bool, err error) {
	if value, found = data[name]; !found {
		err = object.Unless(optional, fmt.Errorf("key %s of %s %w", name, where, object.ErrMissing))
	}
	return value, found, err
}

// Expand replaces $(NAME) by a variable that is known; $$ is one $, and what
// is not known stays as it is (core/v1 EnvVar.value).
func (v *Variables) Expand(text string) string {
	out, _ := v.expand(text)
	return out
}

// ExpandAll expands each of the texts.
func (v *Variables) ExpandAll(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, t := range texts {
		out = append(out, v.Expand(t))
	}
	return out
}

// MustExpand is Expand for texts in which every variable has to be known
// (core/v1 VolumeMount.subPathExpr).
func (v *Variables) MustExpand(text string) (string, error) {
	out, unknown := v.expand(text)
	if len(unknown) > 0 {
		return "", fmt.Errorf("%s: variable %s is not set", text, strings.Join(unknown, ", "))
	}
	return out, nil
}

func (v *Variables) expand(text string) (expanded string, unknown []string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		if strings.HasPrefix(rest, "$$") {
			b.WriteByte('$')
			i++
			continue
		}
		end := strings.IndexByte(rest, ')')
		if strings.HasPrefix(rest, "$(") && end > 0 {
			name := rest[2:end]
			if value, known := v.values[name]; known {
				b.WriteString(value)
				i += end
				continue
			}
			unknown = append(unknown, name)
		}
		b.WriteByte(text[i])
	}
	return b.String(), unknown
}
