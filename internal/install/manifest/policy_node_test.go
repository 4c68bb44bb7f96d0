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

// TestAgentsTellOfTheirPods: with the agent's token, what its own node's pods have of a
// PodNetwork, and nothing of what other nodes say, nor of the spec.
func TestAgentsTellOfTheirPods(t *testing.T) {
	s := newSite(t)
	here, there := "here-"+s.ns, "there-"+s.ns
	_, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: here}}, metav1.CreateOptions{})
	require.NoError(t, err)
	s.Apply(`{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + s.ns + `, name: db}, spec: {statefulSet: db, interfaces: [{name: net1}]}}`)
	path := "/apis/net.fairlead.io/v1alpha1/namespaces/" + s.ns + "/podnetworks/db"
	write := func(as kubernetes.Interface, sub string, body map[string]any) error {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		return as.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path + sub).Body(raw).Do(t.Context()).Error()
	}
	type list = []map[string]any
	status := func(key string, value list) map[string]any {
		return map[string]any{"status": map[string]any{key: value}}
	}
	entry := func(node, reason string) map[string]any {
		return map[string]any{"name": node, "pods": list{{"name": "db-0", "reason": reason}}}
	}
	condition := func(kind string) list {
		return list{{"type": kind, "status": "True", "reason": "Applied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
	}
	require.NoError(t, write(s.root, "/status", status("nodes", list{entry(there, "Applied")})))
	agent := s.agentOf(here)
	unbound := s.client(s.ServiceAccountConfig("kube-system", "fairlead-agent"))
	require.Eventually(t, func() bool {
		return write(agent, "/status", status("nodes", list{entry(there, "Applied"), entry(here, "Applied")})) == nil &&
			write(agent, "/status", status("nodes", list{entry(there, "Forged"), entry(here, "Applied")})) != nil
	}, time.Minute, 50*time.Millisecond)
	for _, c := range []struct {
		name    string
		as      kubernetes.Interface
		sub     string
		body    map[string]any
		refused string
	}{
		{"its own node's pods", agent, "/status", status("nodes", list{entry(there, "Applied"), entry(here, "DriverCannot")}), ""},
		{"its conditions", agent, "/status", status("conditions", condition("Ready")), ""},
		{"another node's pods", agent, "/status", status("nodes", list{entry(there, "Forged"), entry(here, "Applied")}), "may not say what pods of other nodes have"},
		{"a new node's", agent, "/status", status("nodes", list{entry(there, "Applied"), entry("third", "Applied")}), "may not say what pods of other nodes have"},
		{"a token that names no node", unbound, "/status", status("nodes", list{entry(there, "Applied")}), "the agent of node (unknown)"},
		{"another condition", agent, "/status", status("conditions", condition("Approved")), "no condition of a PodNetwork but"},
		{"the spec", agent, "", map[string]any{"spec": map[string]any{"statefulSet": "other"}}, "cannot patch resource"},
		{"the spec beside the status", agent, "/status", map[string]any{"spec": map[string]any{"statefulSet": "other"}}, ""},
		{"a node that is gone", agent, "/status", status("nodes", list{entry(here, "Applied")}), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := write(c.as, c.sub, c.body)
			if c.refused == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.refused)
			}
		})
	}
	raw, err := s.root.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(raw), `"statefulSet":"db"`, "the spec is as it was")
}
