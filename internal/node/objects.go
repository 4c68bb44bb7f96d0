package node

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/object"
)

// followObjects has the pods looked at that name an object which came, went or
// changed.
func (n *Node) followObjects(ctx context.Context) {
	err := n.conf.Objects.Follow(ctx, n.objectChanged)
	if err != nil && ctx.Err() == nil {
		n.conf.Log.Warn("ConfigMaps and Secrets not followed any more: volumes keep the content that they have", "err", err)
	}
}

func (n *Node) objectChanged(r object.Ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.workers {
		if w.pod != nil && w.state == syncing && slices.Contains(object.Refs(w.pod), r) {
			w.poke()
		}
	}
}

// hold says which objects a pod of the API server needs.
func (n *Node) hold(pod *v1.Pod) {
	if !static(pod) {
		n.conf.Objects.Hold(pod.UID, object.Refs(pod))
	}
}
