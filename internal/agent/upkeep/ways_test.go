package upkeep

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestWays: a NIC has the way that its Subnet has now, and if that has none, since its Vlan is gone,
// the one that the NIC was made with.
func TestWays(t *testing.T) {
	t.Parallel()
	nic := func(subnet string, w core.Way) core.Record {
		return core.Record{Specs: []core.Spec{{DefaultRoute: &core.DefaultRoute{}}, {NIC: &core.NICSpec{Subnet: subnet, OVS: &core.OVSPort{Way: w}}}, {NIC: &core.NICSpec{Subnet: subnet}}}}
	}
	got := Ways([]core.Record{
		nic("changed", core.Way{Network: "net1", VLAN: 10}), nic("old", core.Way{}), nic("old", core.Way{}), nic("gone", core.Way{}), nic("web", core.Way{}), nic("gone", core.Way{Network: "net2"}),
		nic("web", core.Way{Network: "net1", VLAN: 20}),
	}, []core.Subnet{{Name: "changed", Underlay: "net1", VLAN: 11}, {Name: "old", Underlay: "net1", VLAN: 30}, {Name: "web"}, {Name: "empty", Underlay: "net1", VLAN: 50}})
	require.Equal(t, []core.Way{{Network: "net1", VLAN: 11}, {Network: "net1", VLAN: 30}, {Network: "net2"}, {Network: "net1", VLAN: 20}}, got)
}
