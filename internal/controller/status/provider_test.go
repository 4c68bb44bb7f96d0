package status

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
)

// TestProvider: a ProviderNetwork tells on which nodes it is and why not on others, and
// goes on to say since when.
func TestProvider(t *testing.T) {
	const key = "net1.provider-network.kubernetes.io/"
	o := &v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: "net1", Generation: 3}, Spec: v1.ProviderNetworkSpec{ExcludeNodes: []string{"d"}}}
	nodes := []ProviderNode{
		{Name: "b", Notes: map[string]string{key + "err_mesg": "this node has no link eth1"}},
		{Name: "a", Labels: map[string]string{key + "ready": "true"}},
		{Name: "c"}, {Name: "d"}, {Name: "e", Labels: map[string]string{key + "exclude": "true"}},
	}
	vlans := []*v1.Vlan{
		{ObjectMeta: metav1.ObjectMeta{Name: "v2"}, Spec: v1.VlanSpec{Provider: "net1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "v1"}, Spec: v1.VlanSpec{OldProvider: "net1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: v1.VlanSpec{Provider: "net2"}},
	}
	s := Provider(o, nodes, vlans)
	require.False(t, s.Ready)
	require.Equal(t, []string{"a"}, s.ReadyNodes)
	require.Equal(t, []string{"b", "c"}, s.NotReadyNodes)
	require.Equal(t, []string{"v1", "v2"}, s.Vlans)
	said := map[string]string{}
	for _, c := range s.Conditions {
		said[c.Node] += c.Type + " " + c.Status + " " + c.Reason + " " + c.Message
	}
	require.Equal(t, map[string]string{
		"a": "Ready True InitOVSBridgeSucceeded ", "b": "Ready False InitOVSBridgeFailed this node has no link eth1",
		"c": "Ready Unknown InitOVSBridgePending the node's agent has not said anything of it",
	}, said)
	o.Status = s
	require.Equal(t, s, Provider(o, nodes, vlans), "nothing is new")
	require.True(t, Provider(o, nodes[1:2], nil).Ready)
}
