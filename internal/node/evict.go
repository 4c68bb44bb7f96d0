package node

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/internal/node/volume"
)

// How often the volumes that have a limit are looked at, and how much of its
// time the loop spends on that at most, 1 in so many: folders may be large.
const (
	usagePeriod = 10 * time.Second
	usageShare  = 20
)

// keepLimits ends, now and then, the pods whose volumes hold more than they may.
func (n *Node) keepLimits(ctx context.Context) {
	told := map[string]bool{} // what could not be looked at
	for {
		began := time.Now()
		n.checkLimits(ctx, told)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(usagePeriod, usageShare*time.Since(began))):
		}
	}
}

func (n *Node) checkLimits(ctx context.Context, told map[string]bool) {
	failed := map[string]bool{}
	for w, pod := range n.limited() {
		excess, err := n.conf.Volumes.Over(ctx, pod)
		if excess != nil {
			n.evict(w, excess)
		}
		if err != nil && ctx.Err() == nil {
			if failed[err.Error()] = true; !told[err.Error()] {
				n.conf.Log.Warn("size of a volume not measured: its limit is not enforced", "err", err)
			}
		}
	}
	clear(told)
	for text := range failed {
		told[text] = true
	}
}

// limited are the pods that run and have volumes with a limit.
func (n *Node) limited() map[*worker]*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[*worker]*v1.Pod{}
	for _, w := range n.workers {
		if w.pod != nil && w.state == syncing && volume.Limited(w.pod) {
			out[w] = w.pod
		}
	}
	return out
}

// evict has the worker end its pod; what it does is interrupted.
func (n *Node) evict(w *worker, e *volume.Excess) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.state != syncing || w.ending.Reason != "" {
		return
	}
	w.ending = termination{Reason: ReasonEvicted, Message: fmt.Sprintf(
		"emptyDir volume %s holds more than its sizeLimit, %s, allows", e.Volume, &e.Limit)}
	if w.cancel != nil {
		w.cancel()
	}
	w.poke()
}

// evicted tells a pod that does not get its grace period: it would go on writing.
func (n *Node) evicted(w *worker) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return w.termination.Reason == ReasonEvicted
}
