package manifest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clients "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// TestAgentsWriteTheirHeartbeat: with a node's own token that node's heartbeat is made, renewed and
// deleted, others are read, and no other Lease is written.
func TestAgentsWriteTheirHeartbeat(t *testing.T) {
	s := newSite(t)
	here, there := "here-"+s.ns, "there-"+s.ns
	for _, n := range []string{here, there} {
		_, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	as, err := kubernetes.NewForConfig(s.tokenOf(here))
	require.NoError(t, err)
	const fairlead = "kube-system" // Fairlead's own namespace, as the chart has it
	agent, root := as.CoordinationV1().Leases(fairlead), s.root.CoordinationV1().Leases(fairlead)
	create := func(as clients.LeaseInterface, name string, dry ...string) error {
		_, err := as.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
	own, others, leader := "fairlead-node-"+here, "fairlead-node-"+there, "leader-"+s.ns
	require.Eventually(t, func() bool { // policy and rights are in force a moment after they were made
		return create(agent, "any", metav1.DryRunAll) != nil && create(agent, own, metav1.DryRunAll) == nil
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, create(agent, own))
	require.NoError(t, create(root, others))
	require.NoError(t, create(root, leader))
	t.Cleanup(func() {
		for _, name := range []string{others, leader} {
			require.NoError(t, root.Delete(context.Background(), name, metav1.DeleteOptions{}))
		}
	})
	renew := func(name string) error {
		have, err := agent.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		now := metav1.NowMicro()
		have.Spec.RenewTime = &now
		_, err = agent.Update(t.Context(), have, metav1.UpdateOptions{})
		return err
	}
	remove := func(name string) error { return agent.Delete(t.Context(), name, metav1.DeleteOptions{}) }
	const refused = "may write no Lease but its heartbeat"
	judge(t, renew(own), "")
	judge(t, renew(others), refused)
	judge(t, renew(leader), refused)
	judge(t, remove(others), refused)
	judge(t, remove(leader), refused)
	judge(t, create(agent, "anything"), refused)
	judge(t, remove(own), "")
}
