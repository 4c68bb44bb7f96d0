package declare

import (
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// Underlay is what is declared of the physical networks of nodes.
type Underlay struct {
	Networks []v1.ProviderNetwork // by name
	Unread   []string             // of these what they want is not known: what they have stays
	Vlans    []v1.Vlan
	// Node: there is an object of the node; Labels and Notes are its labels and annotations.
	Node          bool
	Labels, Notes map[string]string
}

// Trunks are the VLANs of a provider network that its NICs carry, 0 for untagged frames,
// in order.
func (u Underlay) Trunks(network string) []int {
	ids := []int{0}
	for _, v := range u.Vlans {
		provider, id := v.Spec.Provider, v.Spec.ID
		if provider == "" {
			provider = v.Spec.OldProvider
		}
		if id == 0 {
			id = v.Spec.OldID
		}
		if provider == network && id >= 0 && id <= maxVlan && v.DeletionTimestamp == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// maxVlan is the highest id of IEEE 802.1Q.
const maxVlan = 4094
