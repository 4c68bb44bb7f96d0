package report

import (
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestIDs: containers' ids are the runtime's, and those of a pod that had ended
// before this process began are the server's own words already.
func TestIDs(t *testing.T) {
	for had, want := range map[string]string{"": "", "abc": "containerd://abc", "docker://abc": "docker://abc"} {
		ours := v1.PodStatus{
			ContainerStatuses:          []v1.ContainerStatus{{ContainerID: had}},
			EphemeralContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: had}}}},
		}
		got := merged(&v1.PodStatus{}, &Pod{Pod: &v1.Pod{Status: ours}}, false, "containerd://")
		require.Equal(t, want, got.ContainerStatuses[0].ContainerID)
		require.Equal(t, want, got.EphemeralContainerStatuses[0].State.Terminated.ContainerID)
		require.Equal(t, had, ours.ContainerStatuses[0].ContainerID, "what the node says stays")
	}
}

// TestReference: what kubectl describe looks for.
func TestReference(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "i"}},
		Containers:          []v1.Container{{Name: "c"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
	}}
	pod.UID, pod.Annotations = "own", map[string]string{hashKey: "hash"}
	for container, want := range map[string]string{
		"": "", "i": "spec.initContainers{i}", "c": "spec.containers{c}", "e": "spec.ephemeralContainers{e}",
	} {
		require.Equal(t, want, reference(&Event{Pod: pod, Container: container}).FieldPath)
	}
	require.EqualValues(t, "own", reference(&Event{Pod: pod}).UID)
	require.EqualValues(t, "hash", reference(&Event{Pod: pod, Static: true}).UID)
}
