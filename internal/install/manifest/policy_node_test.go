package manifest_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestAgentsKeepToTheirNode: the agent's token changes of the Nodes only its own,
// and of that what is Fairlead's.
func TestAgentsKeepToTheirNode(t *testing.T) {
	s := newSite(t)
	here, there := "own-"+s.ns, "other-"+s.ns
	for _, n := range []string{here, there} {
		_, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Annotations: map[string]string{"note": "x"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	agent := s.agentOf(here)
	unbound := s.client(s.ServiceAccountConfig("kube-system", "fairlead-agent"))
	change := func(as kubernetes.Interface, node, body string) error {
		_, err := as.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status")
		return err
	}
	note := func(key, value string) string {
		b, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
		require.NoError(t, err)
		return string(b)
	}
	claim := note("fairlead.io/subnets", `{"ovn-default":["10.16.0.0/16"]}`)
	require.Eventually(t, func() bool { return change(agent, here, claim) == nil }, time.Minute, 50*time.Millisecond)
	require.Eventually(t, func() bool { return change(agent, there, claim) != nil }, time.Minute, 50*time.Millisecond)
	for _, c := range []struct {
		name       string
		as         kubernetes.Interface
		node, body string
		refused    string
	}{
		{"its Subnets", agent, here, claim, ""},
		{"its condition", agent, here, `{"status": {"conditions": [{"type": "fairlead.io/Addresses", "status": "False"}]}}`, ""},
		{"whether it has the network", agent, here, `{"status": {"conditions": [{"type": "NetworkUnavailable", "status": "True"}]}}`, ""},
		{"another's network", agent, there, `{"status": {"conditions": [{"type": "NetworkUnavailable", "status": "True"}]}}`, "may not change node " + there},
		{"another node", agent, there, claim, "may not change node " + there},
		{"a token that names no node", unbound, here, claim, "the agent of node (unknown)"},
		{"an annotation of others", agent, here, note("note", "y"), "no annotation of its Node but"},
		{"a new annotation", agent, here, note("more", "y"), "no annotation of its Node but"},
		{"labels", agent, here, `{"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}`, "labels"},
		{"finalizers", agent, here, `{"metadata": {"finalizers": ["a.b/c"]}}`, "finalizers"},
		{"a foreign condition", agent, here, `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, "no condition of its Node but"},
		{"its addresses", agent, here, `{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}`, "nothing of its Node's status"},
		{"its capacity", agent, here, `{"status": {"capacity": {"cpu": "400"}}}`, "nothing of its Node's status"},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge(t, change(c.as, c.node, c.body), c.refused)
		})
	}
}
