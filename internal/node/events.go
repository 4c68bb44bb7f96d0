package node

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/probe"
	"github.com/fairlead/fairlead/internal/node/report"
)

// Reasons of events that are not the runtime's (kubelet's).
const (
	eventFailed    = "Failed"
	eventBackOff   = "BackOff"
	eventHook      = "FailedPostStartHook"
	eventUnhealthy = "Unhealthy"
)

// mostEvents is how many of a pod are kept for people.
const mostEvents = 20

// tell makes known what happens to a pod: here, for `describe pod`, and to who
// wants to hear of it.
func (n *Node) tell(pod *v1.Pod, e podruntime.Event) {
	if e.Message = strings.TrimSpace(e.Message); e.Container != "" {
		e.Message = "container " + e.Container + ": " + e.Message
	}
	kind := v1.EventTypeNormal
	if e.Warning {
		kind = v1.EventTypeWarning
	}
	n.mu.Lock()
	if w := n.workers[pod.UID]; w != nil {
		w.events = appended(w.events, agent.PodEvent{When: time.Now(), Type: kind, Reason: e.Reason, Note: e.Message})
	}
	n.mu.Unlock()
	if n.conf.Tell != nil {
		n.conf.Tell(report.Event{Pod: pod, Static: static(pod), Container: e.Container, Type: kind, Reason: e.Reason, Message: e.Message})
	}
}

// appended counts what was told before, and forgets the oldest of too many.
func appended(all []agent.PodEvent, e agent.PodEvent) []agent.PodEvent {
	i := slices.IndexFunc(all, func(a agent.PodEvent) bool { return a.Type == e.Type && a.Reason == e.Reason && a.Note == e.Note })
	if i >= 0 {
		e.Count = max(all[i].Count, 1) + 1
		all = slices.Delete(all, i, i+1)
	}
	all = append(all, e)
	return all[max(0, len(all)-mostEvents):]
}

// complain tells what keeps a pod, or containers of it, from running.
func (n *Node) complain(ctx context.Context, pod *v1.Pod, res podruntime.Result, failed error) {
	if ctx.Err() != nil {
		return // interrupted: that is no failure
	}
	if failed != nil {
		why := reasonOf(failed)
		n.tell(pod, podruntime.Event{Warning: true, Reason: why.Reason, Message: why.Message})
	}
	for _, name := range slices.Sorted(maps.Keys(res.Waiting)) {
		n.tell(pod, eventOf(name, res.Waiting[name]))
	}
}

// eventOf is why a container does not run. Its text leaves out how long it
// waits yet: it would be another one each time.
func eventOf(container string, why podruntime.Reason) podruntime.Event {
	e := podruntime.Event{Container: container, Warning: true, Reason: eventFailed, Message: why.Reason + ": " + why.Message}
	switch why.Reason {
	case podruntime.ReasonCrashLoop:
		e.Reason, e.Message = eventBackOff, "back-off restarting it, it has failed"
	case podruntime.ReasonPullBackOff:
		e.Warning, e.Reason, e.Message = false, eventBackOff, why.Message
	case podruntime.ReasonPostStart:
		e.Reason, e.Message = eventHook, why.Message
	}
	return e
}

// tellStopped tells which containers are stopped now.
func (n *Node) tellStopped(pod *v1.Pod, st *podruntime.Status) {
	if pod == nil {
		return
	}
	for i := range st.Containers {
		if c := &st.Containers[i]; c.Running() {
			n.tell(pod, podruntime.Event{Container: c.Name, Reason: podruntime.EventKilling, Message: "is stopped"})
		}
	}
}

// unhealthy tells of a probe that did not pass.
func (n *Node) unhealthy(i probe.Instance, kind probe.Kind, said string) {
	n.tell(i.Pod, podruntime.Event{
		Container: i.Spec.Name, Warning: true, Reason: eventUnhealthy, Message: string(kind) + " probe failed: " + cmp.Or(said, "it says nothing"),
	})
}
