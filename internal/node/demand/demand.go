// Package demand sums up what a pod asks of a node, in the units of Kubernetes. It is
// pure: it looks at no machine.
package demand

import (
	v1 "k8s.io/api/core/v1"
)

// Requests are what a pod needs: of its containers, of the pod as a whole where it
// says so, and its overhead.
func Requests(pod *v1.Pod) v1.ResourceList {
	return whole(pod, func(r v1.ResourceRequirements) v1.ResourceList { return r.Requests })
}

// Limits are what a pod may use at most. A resource that one of its containers has
// no limit for, and the pod neither, has none; its cgroup would bound the others'.
func Limits(pod *v1.Pod) v1.ResourceList {
	out := whole(pod, func(r v1.ResourceRequirements) v1.ResourceList { return r.Limits })
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range out {
				_, own := list[i].Resources.Limits[name]
				if _, bounded := ofPod(pod).Limits[name]; !own && !bounded {
					delete(out, name)
				}
			}
		}
	}
	return out
}

func ofPod(pod *v1.Pod) v1.ResourceRequirements {
	if pod.Spec.Resources == nil {
		return v1.ResourceRequirements{}
	}
	return *pod.Spec.Resources
}

func whole(pod *v1.Pod, of func(v1.ResourceRequirements) v1.ResourceList) v1.ResourceList {
	out := Together(pod, of)
	for name, q := range of(ofPod(pod)) {
		out[name] = q.DeepCopy()
	}
	for name, q := range pod.Spec.Overhead {
		if sum, ok := out[name]; ok {
			sum.Add(q)
			out[name] = sum
		}
	}
	return out
}

// Together is what the containers need at one time: all that run beside each
// other, or one init container with the sidecars before it, whatever is more.
func Together(pod *v1.Pod, of func(v1.ResourceRequirements) v1.ResourceList) v1.ResourceList {
	sum, sidecars, most := v1.ResourceList{}, v1.ResourceList{}, v1.ResourceList{}
	for _, c := range pod.Spec.Containers {
		Add(sum, of(c.Resources))
	}
	for _, c := range pod.Spec.InitContainers {
		now := v1.ResourceList{}
		Add(now, of(c.Resources))
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			Add(sum, of(c.Resources))
			Add(sidecars, of(c.Resources))
			now = sidecars
		} else {
			Add(now, sidecars)
		}
		maxOf(most, now)
	}
	maxOf(sum, most)
	return sum
}

// Add adds more to sum.
func Add(sum, more v1.ResourceList) {
	for name, q := range more {
		s, ok := sum[name]
		if !ok {
			sum[name] = q.DeepCopy()
			continue
		}
		s.Add(q)
		sum[name] = s
	}
}

func maxOf(a, b v1.ResourceList) {
	for name, q := range b {
		if has, ok := a[name]; !ok || q.Cmp(has) > 0 {
			a[name] = q.DeepCopy()
		}
	}
}
