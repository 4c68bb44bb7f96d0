package uplink

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// TestChoose: which NIC a network has on a node, by what the object and the Node say.
func TestChoose(t *testing.T) {
	seed := v1.ProviderNetworkSpec{
		DefaultInterface: "eth0", CustomInterfaces: []v1.CustomInterface{{Interface: "enp1s0", Nodes: []string{"node1"}}}, ExcludeNodes: []string{"node2"},
	}
	const key = "net1.provider-network.kubernetes.io/"
	fast := seed
	fast.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"fast": "yes"}}
	own := seed
	own.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key + "ready": "true"}}
	vlans := seed
	vlans.VlanInterfaces, vlans.PreserveVlanInterfaces = []string{"eth0.100"}, true
	made := vlans
	made.AutoCreateVlan = true
	for _, c := range []struct {
		node          string
		spec          v1.ProviderNetworkSpec
		labels, notes map[string]string
		want          string
	}{
		{"node1", seed, nil, nil, "enp1s0"},
		{"node2", seed, nil, nil, ""},
		{"node3", seed, nil, nil, "eth0"},
		{"node3", seed, nil, map[string]string{key + "interface": "eth7"}, "eth7"},
		{"node1", seed, nil, map[string]string{key + "interface": "eth7"}, "eth7"},
		{"node3", seed, nil, map[string]string{key + "exclude": "true"}, ""},
		{"node3", seed, map[string]string{key + "exclude": "true"}, nil, "eth0"}, // what we said ourselves
		{"node3", fast, nil, nil, ""},
		{"node3", fast, map[string]string{"fast": "yes"}, nil, "eth0"},
		{"node3", own, map[string]string{key + "ready": "true"}, nil, ""},
		{"node3", v1.ProviderNetworkSpec{}, nil, nil, " no interface is named for node node3 (spec.defaultInterface, spec.customInterfaces)"},
		{"node3", vlans, nil, nil, "eth0"},
		{"node3", made, nil, nil, "eth0"},
	} {
		got := choose(c.node, declare.Underlay{
			Networks: []v1.ProviderNetwork{{ObjectMeta: metav1.ObjectMeta{Name: "net1"}, Spec: c.spec}}, Labels: c.labels, Notes: c.notes,
			Vlans: []v1.Vlan{{Spec: v1.VlanSpec{ID: 7, Provider: "net1"}}, {Spec: v1.VlanSpec{OldID: 5, OldProvider: "net1"}}, {Spec: v1.VlanSpec{ID: 9, Provider: "net2"}}, {Spec: v1.VlanSpec{ID: 7, Provider: "net1"}}},
		}, []core.Way{{Network: "net1", VLAN: 8}, {Network: "net2", VLAN: 9}, {Network: "net1"}})
		require.Len(t, got, 1)
		said := got[0].nic
		if got[0].err != nil {
			said += " " + got[0].err.Error()
		}
		require.Equal(t, c.want, said, fmt.Sprintf("%+v", c))
		require.Equal(t, []int{0, 5, 7, 8}, got[0].trunks, "a pod has VLAN 8")
		require.Equal(t, c.spec.VlanInterfaces, got[0].above)
		require.Equal(t, c.spec.AutoCreateVlan, got[0].makes)
	}
}

// TestContested: a VLAN that pods have on a NIC is not made a link above it for another network.
func TestContested(t *testing.T) {
	list := []choice{{network: "a", nic: "eth1", trunks: []int{0, 100}}, {network: "b", nic: "eth1.100", makes: true, trunks: []int{0}}, {network: "c", nic: "eth1.200", makes: true}, {network: "d", nic: "eth1.100"}}
	for network, why := range map[string]string{"a": "", "b": "VLAN 100 of eth1 is pods' of provider network a: eth1.100 is not made", "c": "", "d": ""} {
		c := list[slices.IndexFunc(list, func(c choice) bool { return c.network == network })]
		if err := contested(c, list); why == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, why)
		}
	}
}
