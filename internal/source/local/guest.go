package local

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Guest is a pod as a controller has it. Labels and ports are those of the folder's
// Pod of its name, or of the one that a node loop calls so.
type Guest struct {
	core.Pod    // UID is never ""
	Annotations map[string]string
	Labels      map[string]string
	Ports       []corev1.ContainerPort // that have names
	Controller  string                 // the kind of what made it, "" for nothing
}

// Guest gives one pod.
func (m *Machine) Guest(namespace, pod string) (Guest, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.guests[name{namespace, pod}]
	if !ok {
		return Guest{}, false
	}
	return m.whole(g), true
}

// Guests are all pods that are there.
func (m *Machine) Guests() []Guest {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Guest, 0, len(m.guests))
	for _, g := range m.guests {
		out = append(out, m.whole(g))
	}
	return out
}

// whole is a guest as a controller has it. The caller holds mu.
func (m *Machine) whole(g *guest) Guest {
	out := Guest{Pod: g.Pod}
	out.UID = cmp.Or(g.UID, "of "+g.Pod.String()) // by name: every sandbox of the name is this pod's
	out.Annotations, out.Controller = m.merged(g)
	objects := m.current.Load().objects
	o, ok := objects[podID(g.Pod)]
	if short, cut := strings.CutSuffix(g.Name, "-"+m.node); !ok && cut {
		o, ok = objects[folder.ID{Kind: folder.Pod, Namespace: g.Namespace, Name: short}]
	}
	if ok {
		p, _ := o.whole.(podWhole)
		out.Labels, out.Ports = p.labels, p.ports
	}
	return out
}

// Node is the machine's name, and the annotations that a controller gave it.
func (m *Machine) Node() (node string, annotations map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.node, maps.Clone(m.notes)
}

// AnnotateNode sets annotations of the node.
func (m *Machine) AnnotateNode(set map[string]string) {
	m.mu.Lock()
	maps.Copy(m.notes, set)
	m.mu.Unlock()
	m.news()
}

// Annotate sets annotations of a pod, and removes those of drop that were set, unless
// another has its name.
func (m *Machine) Annotate(pod core.Pod, set map[string]string, drop ...string) error {
	m.mu.Lock()
	g := m.guests[nameOf(pod)]
	if g == nil || m.whole(g).UID != pod.UID {
		m.mu.Unlock()
		return fmt.Errorf("pod %s with UID %q: %w", pod, pod.UID, core.ErrNotFound)
	}
	before := len(g.told)
	maps.DeleteFunc(g.told, func(k, _ string) bool { return slices.Contains(drop, k) })
	if len(set) == 0 && len(g.told) == before { // what the folder says of it stays
		m.mu.Unlock()
		return nil
	}
	maps.Copy(g.told, set)
	delete(m.said, podID(pod))
	of := g.Pod
	m.mu.Unlock()
	m.tell(podID(pod))
	m.Source.mu.Lock()
	watchers := slices.Clone(m.watchers)
	m.Source.mu.Unlock()
	for _, fn := range watchers {
		fn(of)
	}
	return nil
}

// Withheld tells that a Subnet which is refused is meant to be the default one: none
// takes its place.
func (m *Machine) Withheld() bool {
	all, _ := m.Subnets(context.Background()) //nolint:forbidigo // it answers from memory
	return !slices.ContainsFunc(all, func(s core.Subnet) bool { return s.Default || s.Name == v1.DefaultSubnet })
}

// Declares tells that an object of the folder is in force.
func (m *Machine) Declares(i folder.ID) bool {
	_, ok := m.current.Load().objects[i]
	return ok
}

// Get is what the folder says of one object: a T as the kind's API has it.
func Get[T any](m *Machine, i folder.ID) (out T, ok bool) {
	o, there := m.current.Load().objects[i]
	if !there {
		return out, false
	}
	out, ok = o.whole.(T)
	return out, ok
}

// List is what the folder says of all objects of a kind, in the order of files and
// lines.
func List[T any](m *Machine, kind string) (out []T) {
	var found []*object
	for i, o := range m.current.Load().objects {
		if i.Kind == kind {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *object) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	for _, o := range found {
		if v, ok := o.whole.(T); ok {
			out = append(out, v)
		}
	}
	return out
}
