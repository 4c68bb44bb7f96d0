// Package downward answers what a pod asks about itself (the downward API, in
// its variables as in its files). It is pure: what it does not find in the pod
// it has been told.
package downward

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Facts are all that can be asked for.
type Facts struct {
	Pod      *v1.Pod
	NodeName string
	HostIPs  []string
	PodIPs   []string // the first is the pod's own
	// Capacity is what a container without a limit may use of the node.
	Capacity v1.ResourceList
}

// Field is the value of a path in a variable (core/v1 ObjectFieldSelector).
func (f *Facts) Field(path string) (string, error) {
	if text, ok := f.meta(path); ok {
		return text, nil
	}
	if text, ok := f.entry(path); ok {
		return text, nil
	}
	value, known := map[string]string{
		"spec.nodeName":           f.NodeName,
		"spec.serviceAccountName": f.Pod.Spec.ServiceAccountName,
		"status.hostIP":           first(f.HostIPs),
		"status.hostIPs":          strings.Join(f.HostIPs, ","),
		"status.podIP":            first(f.PodIPs),
		"status.podIPs":           strings.Join(f.PodIPs, ","),
	}[path]
	if !known {
		return "", fmt.Errorf("field %s is not supported in a variable", path)
	}
	return value, nil
}

// FileField is the text of a path in a file, which may also be all labels or
// annotations (core/v1 DownwardAPIVolumeFile).
func (f *Facts) FileField(path string) (string, error) {
	if text, ok := f.meta(path); ok {
		return text, nil
	}
	if text, ok := f.entry(path); ok {
		return text, nil
	}
	switch path {
	case "metadata.labels":
		return lines(f.Pod.Labels), nil
	case "metadata.annotations":
		return lines(f.Pod.Annotations), nil
	}
	return "", fmt.Errorf("field %s is not supported in a file", path)
}

func (f *Facts) meta(path string) (string, bool) {
	switch path {
	case "metadata.name":
		return f.Pod.Name, true
	case "metadata.namespace":
		return f.Pod.Namespace, true
	case "metadata.uid":
		return string(f.Pod.UID), true
	}
	return "", false
}

// entry is one label or annotation: metadata.labels['key'].
func (f *Facts) entry(path string) (string, bool) {
	inside, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", false
	}
	field, key, ok := strings.Cut(inside, "['")
	switch {
	case ok && field == "metadata.labels":
		return f.Pod.Labels[key], true
	case ok && field == "metadata.annotations":
		return f.Pod.Annotations[key], true
	}
	return "", false
}

// lines are kubelet's: key="value", in the order of the keys (pkg/fieldpath).
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(out, "\n")
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// Resource is a request or limit of a container in units of the divisor,
// rounded up (core/v1 ResourceFieldSelector). own is the container that asks,
// nil where a file does, which has to name one.
func (f *Facts) Resource(own *v1.Container, ref *v1.ResourceFieldSelector) (string, error) {
	c, err := f.container(own, ref.ContainerName)
	if err != nil {
		return "", err
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var q resource.Quantity
	switch kind {
	case "limits":
		q = c.Resources.Limits[v1.ResourceName(name)]
		if q.IsZero() {
			q = f.Capacity[v1.ResourceName(name)]
		}
	case "requests":
		q = c.Resources.Requests[v1.ResourceName(name)]
	default:
		return "", fmt.Errorf("resource %s is not supported", ref.Resource)
	}
	unit := ref.Divisor
	if unit.IsZero() {
		unit = resource.MustParse("1")
	}
	if name == string(v1.ResourceCPU) {
		return strconv.FormatInt(ceil(q.MilliValue(), unit.MilliValue()), 10), nil
	}
	return strconv.FormatInt(ceil(q.Value(), unit.Value()), 10), nil
}

func (f *Facts) container(own *v1.Container, name string) (*v1.Container, error) {
	if own != nil && (name == "" || name == own.Name) {
		return own, nil
	}
	for _, list := range [][]v1.Container{f.Pod.Spec.Containers, f.Pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	return nil, fmt.Errorf("the pod has no container %q", name)
}

func ceil(n, by int64) int64 {
	if by <= 0 {
		return n
	}
	return (n + by - 1) / by
}
