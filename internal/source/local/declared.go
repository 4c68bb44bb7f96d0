package local

import (
	"context"

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
	var labels struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if _, wrong := o.Decode(&labels); wrong != nil || labels.Metadata.Labels[v1alpha1.LabelPodNetwork] != "true" {
		return nil, nil // it is the node loop's
	}
	var m corev1.ConfigMap
	if faults := decode(o, &m); faults != nil {
		return nil, faults
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
		}
	}
	a.next.declared = declared.NewIndex(pods, maps, "", nil)
	for _, f := range a.next.declared.Faults() {
		o := a.next.objects[folder.ID{Kind: folder.ConfigMap, Namespace: f.Namespace, Name: f.Name}]
		s, _ := o.value.(settings)
		a.problem(folder.ID{}, folder.Problem{Where: o.file, Line: s.lines[f.Pod], Reason: f.Err.Error()})
	}
	for i, p := range a.next.broken {
		if i.Kind == folder.PodNetwork {
			a.next.declared.Break(i.Namespace, i.Name, core.Errorf(core.CodeValue, "%s is declared but wrong: %s", i, p))
		}
	}
}

// Redeclared gets a value after what is declared of pods has changed.
func (s *Source) Redeclared() <-chan struct{} { return s.retold }

// Declared implements resolve.Declarer. A folder has no namespace of the agent's.
func (s *Source) Declared(context.Context) (*declared.Index, error) {
	return s.current.Load().declared, nil
}
