package node_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	k.finish(&static)
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
	require.Len(t, told.Status.ContainerStatuses, 1)
	require.NotNil(t, told.Status.ContainerStatuses[0].State.Terminated)
	require.Len(t, ended.Status.ContainerStatuses, 1)

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

// TestEviction: a pod whose volume takes more of the disk than it may is ended
// for good, and gives the disk back; others do not suffer.
func TestEviction(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	k.awaitNodeReady()
	limit := resource.MustParse("1Mi")
	hog := func(i int, script string) *v1.Pod {
		p := plain(i)
		p.Spec.Volumes = []v1.Volume{{Name: "cache", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
		p.Spec.Containers[0].Command[2] = script + "; " + forever
		p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "cache", MountPath: "/cache"}}
		return p
	}
	k.write(hog(0, "dd if=/dev/zero of=/cache/full bs=1M count=3; sync"))
	k.write(hog(1, "dd if=/dev/zero of=/cache/half bs=1k count=500; truncate -s 1G /cache/hole"))
	api := hog(2, "mkdir /cache/d; dd if=/dev/zero of=/cache/d/full bs=1M count=3; sync")
	api.Name, api.UID, api.Namespace, api.Spec.NodeName, api.Spec.AutomountServiceAccountToken = "api-0", "", k.ns, "node1", new(bool)
	_, err := k.api.CoreV1().Pods(k.ns).Create(t.Context(), api, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, p := range []v1.Pod{k.awaitPod("web-0", failedBy(node.ReasonEvicted)), *k.object(k.ns, "api-0", failedBy(node.ReasonEvicted))} {
		require.Contains(t, p.Status.Message, "volume cache")
		require.Contains(t, p.Status.Message, "1Mi")
	}
	k.awaitEvents(k.ns, "api-0", "Evicted", "Killing")
	k.await("the disk", func() error {
		full, err := filepath.Glob(k.Path("/var/lib/fairlead/node/pods/*/volumes/empty-dir/cache/*"))
		if err == nil && len(full) != 2 {
			err = fmt.Errorf("there is %v", full)
		}
		return err
	})
	had := k.awaitPod("web-1", ready)

	// It stays so with the next process.
	k.killNode()
	k.start()
	k.write(plain(3))
	k.awaitPod("web-3", ready)
	require.Contains(t, k.awaitPod("web-0", failedBy(node.ReasonEvicted)).Status.Message, "volume cache")
	require.Equal(t, had.Status.ContainerStatuses[0].ContainerID, k.awaitPod("web-1", ready).Status.ContainerStatuses[0].ContainerID)
	require.NotContains(t, k.sandboxes(), "web-0-node1")
	k.delete("api-0")
	k.absent(k.ns, "api-0")
	for _, name := range []string{"web-0", "web-1", "web-3"} {
		k.erase(name)
	}
	k.awaitEmpty()
	k.requireNoLeaks()
}
