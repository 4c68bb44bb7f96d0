package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
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
// write them. How they should be is kept in a file: an agent that was started anew
// knows no more by itself that something was amiss.
type conditions struct {
	uid   string // that the caller meant, "" for whoever has the name
	want  map[string]condition
	wrote map[string]condition
	to    string
	backs int // as in written
}

// keptConditions are those of one pod in the file.
type keptConditions struct {
	Pod        core.Pod    `json:"pod"`
	Conditions []condition `json:"conditions"`
}

// Condition sets one condition of a pod, and publishes it like the status:
// until the pod has it or is gone, also by the agent's next process. Status is True, False
// or Unknown.
func (p *Publisher) Condition(pod core.Pod, kind, status, reason, message string) {
	if !p.want(pod, condition{Type: kind, Status: status, Reason: reason, Message: p.src.Shell.In(message)}) {
		return
	}
	p.keepConditions()
	p.queue.Add(idOf(pod))
}

// Told is the status of a condition that a pod was told last, "" for none.
func (p *Publisher) Told(pod core.Pod, kind string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conditions[idOf(pod)]
	if c.uid != pod.UID {
		return ""
	}
	return c.want[kind].Status
}

// want notes how a condition should be; false where it should be so already.
func (p *Publisher) want(pod core.Pod, next condition) bool {
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
	old := c.want[next.Type]
	next.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
	if old.Status == next.Status {
		next.LastTransitionTime = old.LastTransitionTime
	}
	c.want[next.Type] = next
	p.conditions[i] = c
	return next != old
}

// keepConditions writes the file, without the pods that are gone.
func (p *Publisher) keepConditions() {
	p.saving.Lock()
	defer p.saving.Unlock()
	var all []keptConditions
	p.mu.Lock()
	for i, c := range p.conditions {
		if _, there := p.src.pods.get(i); !there && p.src.pods.isSynced() {
			continue
		}
		all = append(all, keptConditions{core.Pod{Namespace: i.Namespace, Name: i.Name, UID: c.uid}, c.list()})
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b keptConditions) int { return cmp.Compare(a.Pod.String(), b.Pod.String()) })
	write := func() error { return recordfile.Save(p.file, all) }
	if len(all) == 0 {
		write = func() error { return recordfile.Remove(p.file) }
	}
	if err := write(); err != nil {
		p.log.Warn("conditions of pods are not written down: an agent that starts now does not know them", "err", err)
	}
}

// restoreConditions reads the file. The watch tells of each pod, which is written then.
func (p *Publisher) restoreConditions() {
	var all []keptConditions
	if _, err := recordfile.Load(p.file, &all); err != nil {
		p.log.Warn("what pods were told in conditions before this start is not known", "err", err)
	}
	for _, k := range all {
		c := conditions{uid: k.Pod.UID, want: map[string]condition{}}
		for _, one := range k.Conditions {
			c.want[one.Type] = one
		}
		p.conditions[idOf(k.Pod)] = c
	}
}

// list are the conditions as they should be, by type.
func (c conditions) list() []condition {
	return slices.SortedFunc(maps.Values(c.want), func(a, b condition) int { return cmp.Compare(a.Type, b.Type) })
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
	body.Status = &patchStatus{Conditions: c.list()}
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
