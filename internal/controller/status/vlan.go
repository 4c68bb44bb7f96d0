package status

import (
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Vlans are the statuses of all Vlans by name: which Subnets name each, whether an
// older one has its id on the same provider network, and what else is wrong with it as
// judged says.
func Vlans(all []*v1.Vlan, judged map[string]declare.Vlan, subnets []*v1.Subnet) map[string]v1.VlanStatus {
	naming, out := map[string][]string{}, map[string]v1.VlanStatus{}
	for _, s := range subnets {
		naming[s.Spec.Vlan] = append(naming[s.Spec.Vlan], s.Name)
	}
	for _, o := range all {
		ready := v1.Condition{Type: v1.ConditionReady, Status: "True", Reason: CarriedOut, ObservedGeneration: o.Generation}
		conflict := v1.Condition{Type: v1.ConditionConflict, Status: "False", Reason: CarriedOut, ObservedGeneration: o.Generation}
		v := judged[o.Name]
		if v.Fault != "" {
			ready.Status, ready.Reason, ready.Message = "False", Refused, v.Fault
		}
		if v.Conflict {
			conflict.Status, conflict.Reason, conflict.Message = "True", "SameID", v.Fault
		}
		slices.Sort(naming[o.Name])
		s := v1.VlanStatus{Subnets: naming[o.Name], Conflict: v.Conflict}
		s.Conditions, _ = Merge(o.Status.Conditions, []v1.Condition{conflict, ready, Undone(o.Generation, Unknown(o.Spec.Unknown))})
		out[o.Name] = s
	}
	return out
}
