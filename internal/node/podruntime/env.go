package podruntime

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// variables of a container's environment, in order; a later one of the same
// name replaces the earlier.
type variables struct {
	names  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, has := v.values[name]; !has {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *variables) list() []*cri.KeyValue {
	out := make([]*cri.KeyValue, 0, len(v.names))
	for _, n := range v.names {
		out = append(out, &cri.KeyValue{Key: n, Value: []byte(v.values[n])})
	}
	return out
}

// environment computes a container's variables. A reference that leads nowhere
// is an error that names it, unless it is optional.
func (r *Runtime) environment(pod *v1.Pod, c *v1.Container, ips []string) (*variables, error) {
	v := &variables{values: map[string]string{}}
	for i := range c.EnvFrom {
		if err := r.envFrom(pod.Namespace, &c.EnvFrom[i], v); err != nil {
			return nil, err
		}
	}
	for i := range c.Env {
		e := &c.Env[i]
		if e.ValueFrom == nil {
			v.set(e.Name, expand(e.Value, v.values))
			continue
		}
		value, found, err := r.valueFrom(pod, c, e.ValueFrom, ips)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", e.Name, err)
		}
		if found {
			v.set(e.Name, value)
		}
	}
	return v, nil
}

// errNoObjects is why a reference cannot be followed on this node.
var errNoObjects = errors.New("this node has no ConfigMaps and Secrets")

func (r *Runtime) configMap(namespace, name string) (*v1.ConfigMap, error) {
	if r.conf.Objects == nil {
		return nil, fmt.Errorf("configmap %s: %w", name, errNoObjects)
	}
	m, err := r.conf.Objects.ConfigMap(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("configmap %s: %w", name, err)
	}
	return m, nil
}

func (r *Runtime) secret(namespace, name string) (*v1.Secret, error) {
	if r.conf.Objects == nil {
		return nil, fmt.Errorf("secret %s: %w", name, errNoObjects)
	}
	s, err := r.conf.Objects.Secret(namespace, name)
	if err != nil {
		return nil, fmt.Errorf("secret %s: %w", name, err)
	}
	return s, nil
}

func (r *Runtime) envFrom(namespace string, from *v1.EnvFromSource, v *variables) error {
	add := func(data map[string]string) {
		for _, k := range slices.Sorted(maps.Keys(data)) {
			v.set(from.Prefix+k, data[k])
		}
	}
	if ref := from.ConfigMapRef; ref != nil {
		m, err := r.configMap(namespace, ref.Name)
		if err != nil {
			return unless(ref.Optional, err)
		}
		add(m.Data)
	}
	if ref := from.SecretRef; ref != nil {
		s, err := r.secret(namespace, ref.Name)
		if err != nil {
			return unless(ref.Optional, err)
		}
		add(texts(s.Data))
	}
	return nil
}

func texts(data map[string][]byte) map[string]string {
	out := make(map[string]string, len(data))
	for k, b := range data {
		out[k] = string(b)
	}
	return out
}

// unless drops the error of an optional reference.
func unless(optional *bool, err error) error {
	if optional != nil && *optional {
		return nil
	}
	return err
}

func (r *Runtime) valueFrom(pod *v1.Pod, c *v1.Container, from *v1.EnvVarSource, ips []string) (value string, found bool, err error) {
	switch {
	case from.FieldRef != nil:
		value, err = r.field(pod, from.FieldRef.FieldPath, ips)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err = resourceField(pod, c, from.ResourceFieldRef)
		return value, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := r.configMap(pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unless(ref.Optional, err)
		}
		return key(m.Data, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := r.secret(pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unless(ref.Optional, err)
		}
		return key(texts(s.Data), ref.Key, ref.Optional)
	}
	return "", false, errors.New("this kind of source is not supported")
}

func key(data map[string]string, name string, optional *bool) (value string, found bool, err error) {
	if value, found = data[name]; !found {
		err = unless(optional, fmt.Errorf("there is no key %s", name))
	}
	return value, found, err
}

// field reads a path of the downward API (core/v1 ObjectFieldSelector).
func (r *Runtime) field(pod *v1.Pod, path string, ips []string) (string, error) {
	if name, subscript, ok := strings.Cut(strings.TrimSuffix(path, "']"), "['"); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[subscript], nil
		case "metadata.annotations":
			return pod.Annotations[subscript], nil
		}
	}
	first := ""
	if len(ips) > 0 {
		first = ips[0]
	}
	value, known := map[string]string{
		"metadata.name":           pod.Name,
		"metadata.namespace":      pod.Namespace,
		"metadata.uid":            string(pod.UID),
		"spec.nodeName":           r.conf.NodeName,
		"spec.serviceAccountName": pod.Spec.ServiceAccountName,
		"status.hostIP":           r.conf.NodeIP,
		"status.hostIPs":          r.conf.NodeIP,
		"status.podIP":            first,
		"status.podIPs":           strings.Join(ips, ","),
	}[path]
	if !known {
		return "", fmt.Errorf("field %s is not supported", path)
	}
	return value, nil
}

// resourceField reads a container's request or limit, in units of the divisor,
// rounded up.
func resourceField(pod *v1.Pod, c *v1.Container, ref *v1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
		i := slices.IndexFunc(all, func(o v1.Container) bool { return o.Name == ref.ContainerName })
		if i < 0 {
			return "", fmt.Errorf("there is no container %s", ref.ContainerName)
		}
		c = &all[i]
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := c.Resources.Limits
	if kind == "requests" {
		list = c.Resources.Requests
	}
	q, unit := list[v1.ResourceName(name)], ref.Divisor
	if unit.IsZero() {
		unit = resource.MustParse("1")
	}
	if name == string(v1.ResourceCPU) {
		return strconv.FormatInt(ceil(q.MilliValue(), unit.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceil(q.Value(), unit.Value()), 10), nil
}

func ceil(n, by int64) int64 {
	if by <= 0 {
		return n
	}
	return (n + by - 1) / by
}

// expand replaces $(NAME) by a variable that is known; $$ is one $, and what
// is not known stays as it is (core/v1 EnvVar.value).
func expand(text string, values map[string]string) string {
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
			if value, known := values[rest[2:end]]; known {
				b.WriteString(value)
				i += end
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func expandAll(texts []string, values map[string]string) []string {
	out := make([]string, 0, len(texts))
	for _, t := range texts {
		out = append(out, expand(t, values))
	}
	return out
}
