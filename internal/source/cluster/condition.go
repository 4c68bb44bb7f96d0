package cluster

import (
	"context"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/condition"
)

// conditions are those of one pod as they were written last, and to which UID. The server is
// not asked how they are; nobody else has cause to write them.
type conditions struct {
	wrote []condition.Condition
	to    string
	backs int // as in written
}

// Condition sets one condition of a pod, and publishes it like the status:
// until the pod has it or is gone, also by the agent's next process. Status is True, False
// or Unknown.
func (p *Publisher) Condition(pod core.Pod, kind, status, reason, message string) {
	if !p.book.Want(pod, condition.Condition{Type: kind, Status: status, Reason: reason, Message: p.src.Shell.In(message)}) {
		return
	}
	p.keepConditions()
	p.queue.Add(idOf(pod))
}

// Told is the status of a condition that a pod was told last, "" for none.
func (p *Publisher) Told(pod core.Pod, kind string) string {
	uid, all := p.book.Of(pod)
	if i := slices.IndexFunc(all, func(c condition.Condition) bool { return c.Type == kind }); i >= 0 && uid == pod.UID {
		return all[i].Status
	}
	return ""
}

// keepConditions writes them down, without those of pods that are gone.
func (p *Publisher) keepConditions() {
	err := p.book.Save(func(pod core.Pod) bool {
		_, there := p.src.pods.get(idOf(pod))
		return there || !p.src.pods.isSynced()
	})
	if err != nil {
		p.log.Warn("conditions of pods are not written down: an agent that starts now does not know them", "err", err)
	}
}

// writeConditions applies a pod's conditions where they differ from what was
// applied last. All go in one apply: what is left out would be removed.
func (p *Publisher) writeConditions(ctx context.Context, i id, have pod) error {
	backs := p.src.revisions.Backs()
	uid, want := p.book.Of(core.Pod{Namespace: i.Namespace, Name: i.Name})
	p.mu.Lock()
	c := p.conditions[i]
	p.mu.Unlock()
	if len(want) == 0 || !have.is(uid) || c.to == have.uid && c.backs == backs && slices.Equal(want, c.wrote) {
		return nil
	}
	body := podPatch(i, have.uid)
	body.Status = &patchStatus{Conditions: want}
	rv, err := p.apply(ctx, i, body, conditionManager)
	if err != nil || rv == "" {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conditions[i] = conditions{want, have.uid, backs}
	return nil
}
