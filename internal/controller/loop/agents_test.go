package loop

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
)

// TestUnled: the Nodes for whose agents a controller waits are those whose agents choose
// addresses, or may begin to.
func TestUnled(t *testing.T) {
	t.Parallel()
	plain := &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	block := &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: "block", Annotations: map[string]string{v1.AnnAllocate: v1.AllocateNodeBlock}}}
	gives := object.Node{Name: "gives", Gives: []string{"plain"}, Unled: true}
	idle := object.Node{Name: "idle", Unled: true}
	led, bare := object.Node{Name: "led"}, object.Node{Name: "bare"} // with --ovn; without an agent
	for name, c := range map[string]struct {
		nodes   []object.Node
		subnets []*v1.Subnet
		want    map[string]string
	}{
		"none":                              {nil, nil, map[string]string{}},
		"all with OVN, or without agents":   {[]object.Node{led, bare}, []*v1.Subnet{plain, block}, map[string]string{}},
		"one gives":                         {[]object.Node{led, gives}, []*v1.Subnet{plain}, map[string]string{"gives": "kubectl annotate node gives fairlead.io/subnets-"}},
		"one among others would be refused": {[]object.Node{led, idle}, []*v1.Subnet{plain}, map[string]string{}},
		"one has a block":                   {[]object.Node{led, idle, bare}, []*v1.Subnet{plain, block}, map[string]string{"idle": "kubectl annotate subnet block fairlead.io/allocate-"}},
		"one alone":                         {[]object.Node{idle}, []*v1.Subnet{plain}, map[string]string{"idle": "without --ovn"}},
	} {
		got := unled(c.nodes, c.subnets)
		require.Len(t, got, len(c.want), name)
		for node, text := range c.want {
			require.Contains(t, got[node], text, name)
		}
	}
}
