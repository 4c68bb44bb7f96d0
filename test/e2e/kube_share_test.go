package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// eventNotes are the notes of the events about a pod.
func (n *clusterNode) eventNotes(pod string) (out string) {
	n.t.Helper()
	list, err := n.c.Client().EventsV1().Events(n.name).List(n.t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=" + pod})
	require.NoError(n.t, err)
	for _, e := range list.Items {
		out += e.Note + "\n"
	}
	return out
}

// TestClusterOfTwoNodes: the node that came second refuses, and says what to do
// to pod, operator and runtime; running pods are untouched; with blocks both
// give addresses, never one twice.
func TestClusterOfTwoNodes(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.Apply(subnetObject("ovn-default", map[string]any{"default": true, "natOutgoing": true, "cidrBlock": "10.16.0.0/16"}))
	add := func(n *clusterNode, name string) (*testbed.Pod, testbed.Answer) {
		p := n.pod(name, nil)
		return p, n.call("ADD", p, ownConf)
	}
	a := joinCluster(t, c, "10.16.0.0/24")
	a.Agent(a.args...).WaitReady()
	first, answer := add(a, "first")
	answer.Must()

	b := joinCluster(t, c, "10.16.1.0/24")
	agent := b.Agent(b.args...)
	eventually(t, func() string {
		if e := call(b.Node, "STATUS").Err(); e == nil || e.Code != 50 {
			return "STATUS is not 50"
		}
		return ""
	})
	why := "node " + a.name + " gives them"
	refused, answer := add(b, "refused")
	answer.MustCode(103)
	require.Contains(t, answer.Err().Details, why)
	require.Contains(t, answer.Err().Details, "kubectl annotate subnet ovn-default fairlead.io/allocate=node-block")
	eventually(t, func() string { return lacks(b.eventNotes("refused"), why) })
	eventually(t, func() string {
		node, err := c.Client().CoreV1().Nodes().Get(t.Context(), b.name, metav1.GetOptions{})
		require.NoError(t, err)
		for _, o := range node.Status.Conditions {
			if o.Type == "fairlead.io/Addresses" && o.Status == "False" {
				return lacks(o.Message, why)
			}
		}
		return "no condition"
	})
	_, err := b.TryFairlead("status")
	require.ErrorContains(t, err, why)
	require.NotContains(t, b.Run("nft", "list", "ruleset"), "10.16.", "it serves no pod of that Subnet")
	status, body, err := agent.Get("/readyz")
	require.NoError(t, err)
	require.Equal(t, 503, status)
	require.Contains(t, body, why)
	require.Nil(t, call(a.Node, "STATUS").Err())
	_, answer = add(a, "second")
	answer.Must()
	a.call("CHECK", first, ownConf).Must()

	c.Kubectl("annotate", "subnet", "ovn-default", "fairlead.io/allocate=node-block")
	agent.WaitReady()
	eventually(t, func() string {
		if e := b.call("ADD", refused, ownConf).Err(); e != nil {
			return e.Details
		}
		return ""
	})
	require.Equal(t, "10.16.1.1/16", addresses(t, refused, "eth0")[0])
	eventually(t, func() string { return lacks(b.Run("nft", "list", "ruleset"), "10.16.") })
	third, answer := add(a, "third")
	answer.Must()
	require.Equal(t, "10.16.0.4/16", addresses(t, third, "eth0")[0])
	a.call("CHECK", first, ownConf).Must()
}
