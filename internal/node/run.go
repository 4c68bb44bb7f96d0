package node

import (
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/node/mux"
)

// serveRun tells all that is known of one pod.
func (n *Node) serveRun(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	found := n.named(r)
	if found == nil {
		n.mu.Unlock()
		http.Error(w, "there is no pod "+r.PathValue("namespace")+"/"+r.PathValue("pod")+" on this node", http.StatusNotFound)
		return
	}
	out := found.run()
	n.mu.Unlock()
	if n.conf.Origin != nil {
		out.Origin = n.conf.Origin(out.Source, found.uid)
	}
	n.answer(w, out)
}

// run is the worker as people see it. Node.mu is held; w.pod is not nil.
func (w *worker) run() agent.PodRun {
	p := w.now()
	out := agent.PodRun{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Node: p.Spec.NodeName, Source: p.Annotations[mux.SourceKey],
		Life: w.state.String(), Gone: w.gone, Unclaimed: w.restored,
		Phase: string(p.Status.Phase), Reason: p.Status.Reason, Message: p.Status.Message,
		LastError: w.failed.err, LastErrorAt: w.failed.at, RetryAt: w.failed.again,
		Containers: []agent.ContainerRun{}, Events: slices.Clone(w.events),
	}
	if p.Status.StartTime != nil {
		out.Started = p.Status.StartTime.Time
	}
	for _, ip := range p.Status.PodIPs {
		out.Addresses = append(out.Addresses, ip.IP)
	}
	for i := range p.Status.InitContainerStatuses {
		c := w.container(&p.Status.InitContainerStatuses[i])
		c.Init = true
		out.Containers = append(out.Containers, c)
	}
	for i := range p.Status.ContainerStatuses {
		out.Containers = append(out.Containers, w.container(&p.Status.ContainerStatuses[i]))
	}
	for i := range p.Status.EphemeralContainerStatuses {
		c := w.container(&p.Status.EphemeralContainerStatuses[i])
		c.Ephemeral = true
		out.Containers = append(out.Containers, c)
	}
	for _, c := range p.Status.Conditions {
		out.Conditions = append(out.Conditions, agent.PodCondition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message,
		})
	}
	return out
}

// container is one container as people see it.
func (w *worker) container(s *v1.ContainerStatus) agent.ContainerRun {
	out := agent.ContainerRun{Name: s.Name, Image: s.Image, ID: s.ContainerID, Ready: s.Ready, Restarts: s.RestartCount}
	switch {
	case s.State.Running != nil:
		out.State, out.Since = "running", s.State.Running.StartedAt.Time
	case s.State.Terminated != nil:
		t := s.State.Terminated
		out.State, out.Reason, out.Message, out.Since, out.ExitCode = "terminated", t.Reason, t.Message, t.FinishedAt.Time, &t.ExitCode
	case s.State.Waiting != nil:
		out.State, out.Reason, out.Message = "waiting", s.State.Waiting.Reason, s.State.Waiting.Message
		out.RetryAt = w.due[s.Name]
	}
	if t := s.LastTerminationState.Terminated; t != nil && out.ExitCode == nil {
		out.ExitCode = &t.ExitCode
	}
	return out
}
