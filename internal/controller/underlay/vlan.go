package underlay

import (
	"cmp"
	"fmt"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Vlans are the Vlans by name, each with what keeps Subnets from it: of two with one
// id on one provider network the older one has it, whatever is wrong with the network;
// there tells that a provider network is declared.
func Vlans(all []*v1.Vlan, there func(network string) bool) map[string]declare.Vlan {
	first, out := map[declare.Vlan]string{}, map[string]declare.Vlan{}
	for _, o := range slices.SortedFunc(slices.Values(all), func(a, b *v1.Vlan) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}) {
		v, faults := declare.ReadVlan(o.Spec)
		by, taken := first[v]
		switch {
		case len(faults) > 0:
			v.Fault = faults[0].String()
		case v.Network == "":
			v.Fault = "spec.provider: it names no provider network"
		case taken:
			v.Conflict, v.Fault = true, fmt.Sprintf("spec.id: Vlan %s has id %d of provider network %s already", by, v.ID, v.Network)
		default:
			first[v] = o.Name
			if !there(v.Network) {
				v.Fault = fmt.Sprintf("spec.provider: there is no ProviderNetwork %s", v.Network)
			}
		}
		out[o.Name] = v
	}
	return out
}
