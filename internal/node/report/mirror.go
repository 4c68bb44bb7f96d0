package report

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hashKey is the annotation with a static pod's own hash (kubelet's
// pkg/kubelet/types); its mirror repeats it.
const hashKey = "kubernetes.io/config.hash"

// mirror is the object that stands for a static pod. One that is missing is
// made, one of another pod or that somebody deleted is replaced. nil when there
// is to be none.
func (r *Reporter) mirror(ctx context.Context, p *Pod) (*v1.Pod, error) {
	name := nameOf(p.Pod)
	r.mu.Lock()
	has, heard := r.mirrors[name], r.heard
	want := mirrorOf(p.Pod, r.conf.Node, r.node)
	r.mu.Unlock()
	switch {
	case !heard:
		return nil, nil // what is there is not known yet
	case has != nil && has.DeletionTimestamp == nil && has.Annotations[v1.MirrorPodAnnotationKey] == p.Pod.Annotations[hashKey]:
		return has, nil
	case p.Gone:
		return nil, nil
	}
	if has != nil {
		if err := r.client.deletePod(ctx, has.Namespace, has.Name, has.UID); !absent(err) {
			return nil, fmt.Errorf("replace mirror pod %s: %w", name, err)
		}
	}
	made, err := r.client.createPod(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		return nil, nil // the list that is known is older; the next has it
	}
	if err != nil {
		return nil, fmt.Errorf("create mirror pod %s: %w", name, err)
	}
	r.mu.Lock()
	r.mirrors[name] = made // the watch says so too, a little later
	r.mu.Unlock()
	return made, nil
}

// mirrorOf is a static pod as an object: the same pod, of this node.
func mirrorOf(p *v1.Pod, node string, uid types.UID) *v1.Pod {
	out := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: maps.Clone(p.Annotations),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid, Controller: new(true)}},
		},
		Spec: p.Spec,
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[v1.MirrorPodAnnotationKey] = p.Annotations[hashKey]
	return out
}

// dropMirrors deletes the mirrors of pods that this node has no more.
func (r *Reporter) dropMirrors(ctx context.Context, now []Pod) error {
	static := map[types.NamespacedName]bool{}
	for i := range now {
		if now[i].Static {
			static[nameOf(now[i].Pod)] = true
		}
	}
	var old []*v1.Pod
	r.mu.Lock()
	for name, m := range r.mirrors {
		if !static[name] {
			old = append(old, m)
		}
	}
	r.mu.Unlock()
	for _, m := range old {
		if err := r.client.deletePod(ctx, m.Namespace, m.Name, m.UID); !absent(err) {
			return fmt.Errorf("delete mirror pod %s: %w", nameOf(m), err)
		}
		r.mu.Lock()
		if r.mirrors[nameOf(m)] == m {
			delete(r.mirrors, nameOf(m))
		}
		r.mu.Unlock()
	}
	return nil
}
