package node_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// events are those of a pod that the node has written, by reason.
func (k *cluster) events(ns, name string) map[string][]v1.Event {
	k.t.Helper()
	list, err := k.api.CoreV1().Events(ns).List(k.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	require.NoError(k.t, err)
	out := map[string][]v1.Event{}
	for _, e := range list.Items {
		if e.Source.Component == "fairlead-node" {
			out[e.Reason] = append(out[e.Reason], e)
		}
	}
	return out
}

// awaitEvents waits until a pod has events of all these reasons.
func (k *cluster) awaitEvents(ns, name string, reasons ...string) map[string][]v1.Event {
	k.t.Helper()
	var out map[string][]v1.Event
	k.await("events of "+name, func() error {
		out = k.events(ns, name)
		for _, r := range reasons {
			if len(out[r]) == 0 {
				return fmt.Errorf("none of %s: %v", r, slices.Sorted(maps.Keys(out)))
			}
		}
		return nil
	})
	return out
}

// describe is what people see of a pod.
func (b *bed) describe(pod string) string {
	b.t.Helper()
	return b.fairlead("", "describe", "pod", pod, "--node-local").out
}

// TestEvents: what happens to pods is told to the API server, counted instead of
// repeated, and on the node itself.
func TestEvents(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	k.start()
	k.awaitNodeReady()
	k.create("good", forever)
	k.create("crashes", "exit 3")
	p := plain(0)
	p.UID = ""
	p.Spec.Volumes = []v1.Volume{{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/nowhere", Type: new(v1.HostPathDirectory)}}}}
	k.write(p)
	sick := plain(1)
	sick.Spec.Containers = append(sick.Spec.Containers, v1.Container{Name: "d", Image: "nowhere.invalid/d:1", ImagePullPolicy: v1.PullIfNotPresent})
	sick.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "echo not well; exit 1"}}}}
	k.write(sick)

	had := k.awaitEvents(k.ns, "good", "Pulled", "Created", "Started")
	up := k.object(k.ns, "good", ready)
	// Others may be there: a machine that is busy fails to make a sandbox at times.
	for _, reason := range []string{"Pulled", "Created", "Started"} {
		all := had[reason]
		require.Len(t, all, 1, reason)
		require.Equal(t, up.UID, all[0].InvolvedObject.UID)
		require.Equal(t, "spec.containers{c}", all[0].InvolvedObject.FieldPath)
		require.Equal(t, v1.EventTypeNormal, all[0].Type)
		require.Equal(t, "node1", all[0].Source.Host)
	}
	k.delete("good")
	k.awaitEvents(k.ns, "good", "Killing")
	k.absent(k.ns, "good")

	mounts := k.awaitEvents("default", "web-0-node1", "FailedMount")["FailedMount"]
	require.Contains(t, mounts[0].Message, "volume host of default/web-0-node1")
	mirror := k.object("default", "web-0-node1", func(*v1.Pod) string { return "" })
	require.Equal(t, mirror.Annotations[v1.MirrorPodAnnotationKey], string(mounts[0].InvolvedObject.UID), "kubectl describe asks for it")
	sickly := k.awaitEvents("default", "web-1-node1", "Pulling", "Failed", "BackOff", "Unhealthy")
	require.Contains(t, sickly["Unhealthy"][0].Message, "container c: readiness probe failed: sh -c echo not well")
	require.True(t, slices.ContainsFunc(sickly["Failed"], func(e v1.Event) bool {
		return strings.HasPrefix(e.Message, "container d: ErrImagePull: ")
	}), "%v", sickly["Failed"])
	require.Equal(t, "spec.containers{d}", sickly["Pulling"][0].InvolvedObject.FieldPath)
	for _, said := range []string{"Unhealthy: container c: readiness probe failed: sh -c echo not well", "BackOff: container d: "} {
		require.Contains(t, k.describe("default/web-1"), said)
	}

	// A crash loop: one event of each kind, which counts.
	k.await("the second crash", func() error {
		backoff := k.events(k.ns, "crashes")["BackOff"]
		if len(backoff) == 0 || backoff[0].Count < 2 {
			return fmt.Errorf("%d events", len(backoff))
		}
		return nil
	})
	crashes := k.events(k.ns, "crashes")
	for _, reason := range []string{"Pulled", "Created", "Started", "BackOff"} {
		require.Len(t, crashes[reason], 1, reason)
		require.Greater(t, crashes[reason][0].Count, int32(1), reason)
	}
	require.Contains(t, k.describe(k.ns+"/crashes"), "Started: container c: started (")
	require.Equal(t, 1, strings.Count(k.describe(k.ns+"/crashes"), "Started: "))

	k.delete("crashes")
	k.absent(k.ns, "crashes")
	k.erase("web-0")
	k.erase("web-1")
	k.awaitEmpty()
	k.requireNoLeaks()
}
