package ports_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/ports"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// TestGatewaysInOrder: those that the ConfigMap names come first, in its order; one that is
// no chassis is none.
func TestGatewaysInOrder(t *testing.T) {
	t.Parallel()
	for label, is := range map[string]func(string, map[string]string) bool{
		declare.LabelExternal:     declare.External{Nodes: []string{"n2", "n1"}}.IsGateway,
		declare.LabelInterconnect: declare.Interconnect{Nodes: []string{"n2", "n1"}}.IsGateway,
	} {
		node := func(name, chassis, value string) object.Node {
			return object.Node{Name: name, Annotations: map[string]string{v1.AnnChassis: chassis}, Labels: map[string]string{label: value}}
		}
		var names []string
		for _, n := range ports.Gateways([]object.Node{node("n0", "c0", "true"), node("n1", "c1", ""), node("n2", "c2", "false"), node("n3", "c3", "false"), node("n4", "", "true")}, []string{"n2", "n1"}, is) {
			names = append(names, n.Name)
		}
		require.Equal(t, []string{"n2", "n1", "n0"}, names, label)
	}
}
