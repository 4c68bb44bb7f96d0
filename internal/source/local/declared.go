package local

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// settings are a ConfigMap that declares settings of pods, with the lines of its keys.
type settings struct {
	declared.ConfigMap

	lines map[string]int
}

func makePodNetwork(o *folder.Object) (any, []*folder.Fault) {
	p := &v1alpha1.PodNetwork{}
	if faults := decode(o, p); faults != nil {
		return nil, faults
	}
	p.Namespace, p.Name = o.ID.Namespace, o.ID.Name
	if err := declared.Check(p); err != nil {
		return nil, []*folder.Fault{o.Faultf("spec", "%v", err)}
	}
	return p, nil
}

// makeConfigMap takes one with the label; what its values say of pods these hear, and
// the problems tell it (declare).
func makeConfigMap(o *folder.Object) (any, []*folder.Fault) {
	var m corev1.ConfigMap
	if _, wrong := o.Decode(&m); wrong != nil || m.Labels[v1alpha1.LabelPodNetwork] != "true" {
		return nil, nil // the node loop says what is wrong with it
	}
	s := settings{declared.ConfigMap{Namespace: o.ID.Namespace, Name: o.ID.Name, Data: m.Data}, map[string]int{}}
	for pod := range m.Data {
		s.lines[pod] = o.LineOfKey("data", pod)
	}
	return s, nil
}

// declare makes the index of what is declared of pods, and tells which of it is wrong.
func (a *assembly) declare() {
	var pods []*v1alpha1.PodNetwork
	var maps []declared.ConfigMap
	for _, o := range a.next.objects {
		switch v := o.value.(type) {
		case *v1alpha1.PodNetwork:
			pods = append(pods, v)
		case settings:
			maps = append(maps, v.ConfigMap)
			for pod, line := range v.lines {
				if _, err := declared.InConfigMap(v.Namespace, v.Name, v.Data, core.Pod{Namespace: v.Namespace, Name: pod}, declared.OfNamespace); err != nil {
					a.problem(folder.ID{}, folder.Problem{Where: o.file, Line: line, Reason: err.Error()})
				}
			}
		}
	}
	slices.SortFunc(pods, func(p, q *v1alpha1.PodNetwork) int {
		return cmp.Or(cmp.Compare(p.Namespace, q.Namespace), cmp.Compare(p.Name, q.Name))
	})
	a.next.declared = declared.NewIndex(pods, maps, "", nil)
	for i, p := range a.next.broken {
		if i.Kind == folder.PodNetwork {
			a.next.declared.Break(i.Namespace, i.Name, core.Errorf(core.CodeValue, "%s is declared but wrong: %s", i, p))
		}
	}
}

// Declared implements resolve.Declarer. A folder has no namespace of the agent's.
func (s *Source) Declared(context.Context) (*declared.Index, error) {
	return s.current.Load().declared, nil
}
