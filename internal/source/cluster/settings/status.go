package settings

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// Heard gets a value after anything changed, the status of a PodNetwork too; changes that
// nobody waited for are told once.
func (s *Source) Heard() <-chan struct{} { return s.heard }

// PodNetworks are all of them, which are the Source's own; false while they are not known.
func (s *Source) PodNetworks() ([]*v1alpha1.PodNetwork, bool) {
	select {
	case <-s.ready:
		return s.now.Load().podNetworks(), true
	default:
		return nil, false
	}
}

// SetStatus writes the status of an object as it was read; where it is another by now, or
// gone, nothing is done, and Heard tells. The rest of the object is not touched.
func (s *Source) SetStatus(ctx context.Context, o *v1alpha1.PodNetwork, status v1alpha1.PodNetworkStatus) error {
	nodes := status.Nodes
	if nodes == nil {
		nodes = []v1alpha1.PodNetworkNode{} // a patch without would leave them
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": o.ResourceVersion, "uid": o.UID},
		"status":   map[string]any{"observedGeneration": status.ObservedGeneration, "conditions": status.Conditions, "nodes": nodes},
	})
	if err != nil {
		return err
	}
	now := s.now.Load()
	if now == nil {
		return core.ErrUnavailable
	}
	err = now.ours.Patch(types.MergePatchType).Namespace(o.Namespace).Resource("podnetworks").Name(o.Name).SubResource("status").Body(body).Do(ctx).Error()
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("PodNetwork %s/%s: %w", o.Namespace, o.Name, err)
}

// sameSpec tells that an object has another status at most.
func sameSpec(was, now any) bool {
	a, ok := was.(*v1alpha1.PodNetwork)
	b, is := now.(*v1alpha1.PodNetwork)
	return ok && is && a.UID == b.UID && a.Generation == b.Generation && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

// bare are objects as they are written down: without what changes with each status.
func bare(all []*v1alpha1.PodNetwork) []*v1alpha1.PodNetwork {
	out := make([]*v1alpha1.PodNetwork, len(all))
	for i, o := range all {
		b := *o
		b.Status, b.ResourceVersion = v1alpha1.PodNetworkStatus{}, ""
		out[i] = &b
	}
	return out
}
