package manifest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestAgentsLabelTheirOwnNode: with the agent's token, what the node has of provider
// networks, and no other label or annotation, and no other Node's.
func TestAgentsLabelTheirOwnNode(t *testing.T) {
	s := newSite(t)
	here, there := "here-"+s.ns, "there-"+s.ns
	for _, n := range []string{here, there} {
		node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"zone": "a"}}}
		_, err := s.root.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	agent := s.agentOf(here)
	try := func(node string, labels, notes map[string]any) error {
		meta := map[string]any{}
		if labels != nil {
			meta["labels"] = labels
		}
		if notes != nil {
			meta["annotations"] = notes
		}
		body, err := json.Marshal(map[string]any{"metadata": meta})
		require.NoError(t, err)
		_, err = agent.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		return err
	}
	const net1 = "net1.provider-network.kubernetes.io/"
	ready := map[string]any{net1 + "ready": "true", net1 + "interface": "eth1", net1 + "mtu": "1500"}
	require.Eventually(t, func() bool { return try(here, map[string]any{"zone": "b"}, nil) != nil && try(here, ready, nil) == nil }, time.Minute, 50*time.Millisecond)
	for _, c := range []struct {
		name    string
		node    string
		labels  map[string]any
		notes   map[string]any
		refused string
	}{
		{"left out", here, map[string]any{net1 + "ready": nil, net1 + "exclude": "true"}, nil, ""},
		{"why not", here, nil, map[string]any{net1 + "err_mesg": "no link eth1"}, ""},
		{"why not, no more", here, nil, map[string]any{net1 + "err_mesg": nil}, ""},
		{"another node", there, ready, nil, "may not change node " + there},
		{"another label", here, map[string]any{"zone": "b"}, nil, "no label of its Node but"},
		{"a label less", here, map[string]any{"zone": nil}, nil, "no label of its Node but"},
		{"another label of the network", here, map[string]any{net1 + "other": "x"}, nil, "no label of its Node but"},
		{"what an administrator says of the network", here, nil, map[string]any{net1 + "interface": "eth0"}, "no annotation of its Node but"},
	} {
		t.Run(c.name, func(t *testing.T) { judge(t, try(c.node, c.labels, c.notes), c.refused) })
	}
}
