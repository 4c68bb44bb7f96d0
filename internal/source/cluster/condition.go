package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
)

// condition is one condition of a pod or a Node (core/v1 PodCondition and
// NodeCondition).
type condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"` // True, False or Unknown
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	LastHeartbeatTime  metav1.Time `json:"lastHeartbeatTime,omitzero"` // of a Node: when it was written
}

// conditions are those of one pod: as they should be, and as they were written
// to which UID. The server is not asked how they are; nobody else has cause to
// write them.
type conditions struct {
	uid   string // that the caller meant, "" for whoever has the name
	want  map[string]condition
	wrote map[string]condition
	to    string
	backs int // as in written
}

// Condition sets one condition of a pod, and publishes it like the status:
// until the pod has it or is gone. Status is True, False or Unknown. It does not
// outlive the agent: whoever sets one sets it again after a start.
func (p *Publisher) Condition(pod core.Pod, kind, status, reason, message string) {
	i := idOf(pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conditions[i]
	if c.uid != pod.UID {
		c = conditions{}
	}
	c.uid = pod.UID
	c.want = maps.Clone(c.want)
	if c.want == nil {
		c.want = map[string]condition{}
	}
	next := condition{Type: kind, Status: status, Reason: reason, Message: p.src.Shell.In(message), LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))}
	if old, was := c.want[kind]; was && old.Status == status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	c.want[kind] = next
	p.conditions[i] = c
	p.queue.Add(i)
}

// writeConditions applies a pod's conditions where they differ from what was
// applied last. All go in one apply: what is left out would be removed.
func (p *Publisher) writeConditions(ctx context.Context, i id, have pod) error {
	backs := p.src.revisions.Backs()
	p.mu.Lock()
	c, ok := p.conditions[i]
	p.mu.Unlock()
	if !ok || !have.is(c.uid) || (c.to == have.uid && c.backs == backs && maps.Equal(c.want, c.wrote)) {
		return nil
	}
	body := podPatch(i, have.uid)
	body.Status = &patchStatus{Conditions: slices.SortedFunc(maps.Values(c.want), func(a, b condition) int { return cmp.Compare(a.Type, b.Type) })}
	rv, err := p.apply(ctx, i, body, conditionManager)
	if err != nil || rv == "" {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ok := p.conditions[i]
	if ok && now.uid == c.uid {
		now.wrote, now.to, now.backs = c.want, have.uid, backs
		p.conditions[i] = now
	}
	return nil
}
