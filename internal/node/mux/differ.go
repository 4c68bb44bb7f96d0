package mux

import (
	"cmp"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// local tells the annotations that are written on the node: a source does not
// send them, so their absence there is no change. The mirror annotation is the
// one that the API server's copy of a static pod carries.
func local(key string) bool {
	return key == SourceKey || key == SeenKey || key == v1.MirrorPodAnnotationKey
}

// adopt makes known what pod says, and tells by which Op that is to be heard;
// false when nothing differs. Name, namespace and owner of a UID never change
// and are left alone.
func adopt(known, pod *v1.Pod) (Op, bool) {
	if same(known, pod) {
		if reflect.DeepEqual(known.Status, pod.Status) {
			return 0, false
		}
		known.Status = pod.Status
		return RECONCILE, true
	}
	known.Spec = pod.Spec
	known.Labels = pod.Labels
	known.DeletionTimestamp = pod.DeletionTimestamp
	known.DeletionGracePeriodSeconds = pod.DeletionGracePeriodSeconds
	known.Generation = pod.Generation
	known.Status = pod.Status
	known.Annotations = annotations(known, pod)
	if pod.DeletionTimestamp != nil {
		return DELETE, true
	}
	return UPDATE, true
}

// same tells that nothing but the status differs.
func same(known, pod *v1.Pod) bool {
	return reflect.DeepEqual(known.Spec, pod.Spec) &&
		reflect.DeepEqual(known.Labels, pod.Labels) &&
		reflect.DeepEqual(known.DeletionTimestamp, pod.DeletionTimestamp) &&
		reflect.DeepEqual(known.DeletionGracePeriodSeconds, pod.DeletionGracePeriodSeconds) &&
		sameAnnotations(known.Annotations, pod.Annotations)
}

func sameAnnotations(a, b map[string]string) bool {
	covers := func(a, b map[string]string) bool {
		for k, v := range a {
			if w, ok := b[k]; !local(k) && (!ok || v != w) {
				return false
			}
		}
		return true
	}
	return covers(a, b) && covers(b, a)
}

// annotations are the pod's, and the local ones of the pod that is known.
func annotations(known, pod *v1.Pod) map[string]string {
	out := make(map[string]string, len(pod.Annotations)+1)
	for k, v := range pod.Annotations {
		out[k] = v
	}
	for k, v := range known.Annotations {
		if local(k) {
			out[k] = v
		}
	}
	return out
}

// sortByName gives what comes out of a map an order that is always the same.
func sortByName(pods []*v1.Pod) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}
