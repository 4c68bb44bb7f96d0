package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// The API server is slow, then down, then back: what is known is answered, what
// is not known is "try again later", and nothing that happened meanwhile is lost.
func TestAPIServerSlowDownAndBack(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	const ns, node = "default", "node1"
	config, _ := account(c, ns)
	c.Apply(nadYAML(ns, "net", `{"cniVersion":"1.0.0","type":"macvlan"}`))
	warm := newAgent(t, cluster.Config{Kubeconfig: config, Node: node})
	warm.synced()
	known := makePod(c, ns, "known", node, networks, "net")
	require.NoError(t, (<-warm.askPod(known)).err)

	// Slow: an ADD for a pod that nobody told of yet waits through it.
	c.Pause()
	require.NoError(t, (<-warm.askPod(known)).err)
	late := warm.askPod(core.Pod{Namespace: ns, Name: "late"})
	c.Resume()
	p := makePod(c, ns, "late", node)
	got := <-late
	require.NoError(t, got.err)
	require.Equal(t, p, got.pod.Pod)

	// Down.
	c.Stop()
	eventually(t, "the outage", func() bool { return strings.Contains(warm.problems(), "the API server is not reached since") })
	require.NoError(t, (<-warm.askPod(known)).err)
	_, err := warm.NAD(t.Context(), ns, "net")
	require.NoError(t, err)
	_, err = warm.Subnets(t.Context())
	require.NoError(t, err)
	require.NoError(t, warm.Synced(), "known once is enough for STATUS")
	unknown := warm.askPod(core.Pod{Namespace: ns, Name: "unknown"})
	_, err = warm.NAD(t.Context(), ns, "unknown")
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorIs(t, (<-unknown).err, core.ErrUnavailable)

	cold := newAgent(t, cluster.Config{Kubeconfig: config, Node: node})
	require.ErrorIs(t, (<-cold.askPod(known)).err, core.ErrUnavailable)
	require.ErrorIs(t, cold.Synced(), core.ErrUnavailable)
	eventually(t, "the reason", func() bool { return strings.Contains(cold.Synced().Error(), "connection refused") })

	// What was attached meanwhile is published by whoever runs then: the one
	// that attached it, or its successor after a restart.
	warm.attach(record(known, "c1", "10.16.0.2"))
	cold.commit(record(p, "c2", "10.16.0.3"))
	c.Restart()
	warm.synced()
	cold.synced()
	eventually(t, "both statuses", func() bool { return status(t, c, known) != "" && status(t, c, p) != "" })
	eventually(t, "the end of the outage", func() bool { return warm.problems() == "" && cold.problems() == "" })
}

// A watch that was cut off for so long that the server forgot where it stood
// (410) starts anew, and nothing is missed.
func TestRelistAfter410(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	const ns, node = "default", "node1"
	account(c, ns)
	g, through := newGate(t, c, c.ServiceAccountConfig(ns, "agent"))
	a := newAgent(t, cluster.Config{Kubeconfig: through, Node: node})
	goes, stays := makePod(c, ns, "goes", node), makePod(c, ns, "stays", node, networks, "one")
	require.NoError(t, (<-a.askPod(goes)).err)
	require.NoError(t, (<-a.askPod(stays)).err)

	g.shut()
	deletePod(c, goes)
	makePod(c, ns, "stays", node, networks, "two")
	comes := makePod(c, ns, "comes", node)
	c.Restart() // its memory of changes begins now
	since := c.Mark()
	g.open()
	require.NoError(t, (<-a.askPod(comes)).err)
	eventually(t, "the other changes", func() bool {
		now, err := a.Known(stays)
		_, gone := a.Known(goes)
		return err == nil && now.Annotations[networks] == "two" && gone != nil
	})
	again := false
	for _, r := range c.Requests(kube.Filter{UserAgent: "fairlead/", Resource: "pods", Since: since}) {
		again = again || r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true")
	}
	require.True(t, again, "the watch went on: the test made no 410")
}

// The database behind the API server is replaced by an old snapshot: what the agent
// knows is what there is, and what it wrote since is written again. Watches go on from
// where they stood, and tell nothing.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	const ns, node, note = "default", "node1", "ovn.kubernetes.io/test"
	config, _ := account(c, ns)
	c.RegisterNode(node)
	a := newAgent(t, cluster.Config{Kubeconfig: config, Node: node})
	a.synced()
	stays := makePod(c, ns, "stays", node, networks, "one")
	require.NoError(t, (<-a.askPod(stays)).err)
	rollBack := c.Snapshot()

	goes := makePod(c, ns, "goes", node)
	makePod(c, ns, "stays", node, networks, "two")
	a.attach(record(stays, "c1", "10.16.0.2"))
	a.Condition(stays, "example.com/told", "True", "Test", "")
	told := func() bool {
		p, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), "stays", metav1.GetOptions{})
		return err == nil && p.Annotations["k8s.v1.cni.cncf.io/network-status"] != "" &&
			slices.ContainsFunc(p.Status.Conditions, func(o corev1.PodCondition) bool { return o.Type == "example.com/told" })
	}
	eventually(t, "what is told", told)
	for i := range 20 { // what comes after the snapshot is less
		_, err := c.Client().CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, note, i), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	eventually(t, "all of it", func() bool {
		now, err := a.Known(stays)
		_, there := a.Known(goes)
		return err == nil && there == nil && now.Annotations[networks] == "two" && a.Note(note) == "19"
	})

	rollBack() // nothing of it is told by then, unless the agent was quick
	comes := makePod(c, ns, "comes", node)
	eventually(t, "what there is", func() bool {
		now, err := a.Known(stays)
		_, gone := a.Known(goes)
		_, there := a.Known(comes)
		return err == nil && now.Annotations[networks] == "one" && gone != nil && there == nil && a.Note(note) == ""
	})
	eventually(t, "what was told", told)
}
