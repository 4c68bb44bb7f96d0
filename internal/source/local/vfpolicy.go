package local

import (
	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/folder"
)

func makeVFPolicy(o *folder.Object) (any, []*folder.Fault) {
	p := &v1alpha1.NodeVFPolicy{}
	if faults := decode(o, p); faults != nil {
		return nil, faults
	}
	if err := vfpolicy.Check(&p.Spec); err != nil {
		return nil, []*folder.Fault{o.Faultf("spec", "%v", err)}
	}
	return vfpolicy.Policy{Name: o.ID.Name, Created: p.CreationTimestamp.Time, Spec: p.Spec}, nil
}

// VFPolicies are those of the folder, by name. It knows no node.
func (s *Source) VFPolicies() ([]vfpolicy.Policy, error) {
	return list(s.current.Load(), func(p vfpolicy.Policy) string { return p.Name }), nil
}
