package node_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node"
)

// failedBy is a condition for awaitPod: the node has ended the pod, and nothing
// of it runs.
func failedBy(reason string) func(*v1.Pod) string {
	return func(p *v1.Pod) string {
		if p.Status.Phase != v1.PodFailed || p.Status.Reason != reason {
			return "not failed by " + reason
		}
		return ""
	}
}

// TestDeadline: a pod ends when its activeDeadlineSeconds are over, whoever
// gives it, even when it is shortened while the pod runs. It stays ended.
func TestDeadline(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	k.awaitNodeReady()
	later, soon := int64(100000), int64(1)
	p := plain(0)
	p.Spec.ActiveDeadlineSeconds = &later
	p.Spec.Containers[0].Command[2] = "until [ -e /tmp/end ]; do sleep 0.1; done; exit 1"
	k.write(p)
	k.create("api-0", forever)
	static, object := k.awaitPod("web-0", ready), k.object(k.ns, "api-0", ready)
	// The time goes on counting over a restart: it is not the container's.
	k.exec(&static, "touch", "/tmp/end")
	k.awaitPod("web-0", func(p *v1.Pod) string {
		if restarts(p) < 1 {
			return "not started again"
		}
		return ready(p)
	})
	k.killNode()
	k.start()
	again := k.awaitPod("web-0", ready)
	require.Equal(t, static.Status.StartTime, again.Status.StartTime)

	p.Spec.ActiveDeadlineSeconds = &soon
	k.write(p)
	_, err := k.api.CoreV1().Pods(k.ns).Patch(t.Context(), "api-0", types.StrategicMergePatchType,
		[]byte(`{"spec": {"activeDeadlineSeconds": 1}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	ended := k.awaitPod("web-0", failedBy(node.ReasonDeadline))
	require.Contains(t, ended.Status.Message, "activeDeadlineSeconds, 1,")
	told := k.object(k.ns, "api-0", failedBy(node.ReasonDeadline))
	require.Equal(t, object.Status.StartTime.UTC(), told.Status.StartTime.UTC())
	require.NotNil(t, told.Status.ContainerStatuses[0].State.Terminated)

	// More time is too late, and a new process knows that it was over.
	k.killNode()
	p.Spec.ActiveDeadlineSeconds = &later
	k.write(p)
	k.write(plain(1))
	k.start()
	k.awaitPod("web-1", ready)
	require.Equal(t, ended.Status.ContainerStatuses[0].ContainerID, k.awaitPod("web-0", failedBy(node.ReasonDeadline)).Status.ContainerStatuses[0].ContainerID)
	k.object(k.ns, "api-0", failedBy(node.ReasonDeadline))
	boxes := k.sandboxes()
	require.NotContains(t, boxes, "web-0-node1")
	require.NotContains(t, boxes, "api-0")
	k.delete("api-0")
	k.absent(k.ns, "api-0")
	k.erase("web-0")
	k.erase("web-1")
	k.awaitEmpty()
	k.requireNoLeaks()
}
