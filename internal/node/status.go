package node

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/podruntime"
)

func compareNames(a, b types.NamespacedName, turnA, turnB int) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(turnA, turnB))
}

// publish makes known how a pod is.
func (n *Node) publish(w *worker, pod *v1.Pod, st *podruntime.Status, res podruntime.Result, failed error) {
	defer n.changed()
	now := metav1.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	w.due = make(map[string]time.Time, len(res.Due))
	for name, left := range res.Due {
		w.due[name] = now.Add(left)
	}
	if w.over() && len(st.Containers) == 0 {
		return // the runtime has forgotten how it ended
	}
	s := n.statusOf(w, pod, st, res)
	w.settle(&s, st)
	explain(&s, pod, st, failed, n.complaints(pod, st))
	if len(w.untold) > 0 {
		s.Conditions = append(s.Conditions, condition(conditionCarried, false, podruntime.Reason{
			Reason: reasonNotCarried, Message: strings.Join(w.untold, "; "),
		}))
	}
	if w.termination.Reason != "" {
		s.Reason, s.Message = w.termination.Reason, w.termination.Message
	}
	stamp(s.Conditions, w.status.Conditions, now)
	if !equality.Semantic.DeepEqual(&w.status, &s) {
		w.status = s
		w.version++
	}
}

// over tells that the pod has ended, for good. Node.mu is held.
func (w *worker) over() bool {
	return w.status.Phase == v1.PodSucceeded || w.status.Phase == v1.PodFailed
}

// settle gives a status the phase and the start that do not follow from what the
// runtime has. Node.mu is held.
func (w *worker) settle(s *v1.PodStatus, st *podruntime.Status) {
	if w.over() {
		s.Phase = w.status.Phase
	}
	// One that waits to be let in has none: by it admit tells those that have begun.
	if s.StartTime == nil && (w.admitted || w.termination.Reason != "" || made(st)) {
		s.StartTime = startOf(st)
	}
	if w.termination.Reason != "" && st.Idle() {
		s.Phase = v1.PodFailed // not before: a Job would start the next one
	}
}

// stamp gives conditions the time since when they are as they are.
func stamp(all, before []v1.PodCondition, now metav1.Time) {
	for i := range all {
		c := &all[i]
		c.LastTransitionTime = now
		for _, was := range before {
			if was.Type == c.Type && was.Status == c.Status {
				c.LastTransitionTime = was.LastTransitionTime
			}
		}
	}
}

// statusOf is what the runtime's records make of a pod. Node.mu is held.
func (n *Node) statusOf(w *worker, pod *v1.Pod, st *podruntime.Status, res podruntime.Result) v1.PodStatus {
	s := v1.PodStatus{Phase: phaseOf(pod, st), QOSClass: podruntime.Class(pod), HostIP: n.conf.HostIP, StartTime: w.status.StartTime}
	ips := st.IPs()
	if pod.Spec.HostNetwork && n.conf.HostIP != "" {
		ips = []string{n.conf.HostIP}
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		s.PodIP = ips[0]
	}
	initialized := initialized(pod, st)
	for i := range pod.Spec.InitContainers {
		c := n.containerStatus(w, &pod.Spec.InitContainers[i], st, res, i == 0)
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			c.Ready = true // it is done
		}
		s.InitContainerStatuses = append(s.InitContainerStatuses, c)
	}
	for i := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, n.containerStatus(w, &pod.Spec.Containers[i], st, res, initialized))
	}
	for i := range pod.Spec.EphemeralContainers {
		c := n.containerStatus(w, podruntime.Ephemeral(&pod.Spec.EphemeralContainers[i]), st, res, true)
		c.Ready, c.Started = false, nil // nothing waits for it (as kubelet)
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, c)
	}
	return s
}

// containerStatus is the state of a container's newest instance.
func (n *Node) containerStatus(w *worker, c *v1.Container, st *podruntime.Status, res podruntime.Result, mayRun bool) v1.ContainerStatus {
	out := v1.ContainerStatus{Name: c.Name, Image: c.Image}
	has := st.Of(c.Name)
	if has != nil {
		out.ContainerID, out.ImageID, out.RestartCount = has.ID, has.ImageID, int32(has.Attempt)
		out.State = stateOf(has)
		if has.Image != "" && !strings.HasPrefix(has.Image, "sha256:") {
			out.Image = has.Image
		}
	}
	why, waits := waiting(c.Name, has, res, mayRun)
	if waits {
		out.LastTerminationState = v1.ContainerState{Terminated: out.State.Terminated}
		out.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
	}
	if before := st.Before(c.Name); !waits && before != nil && before.Exited() {
		out.LastTerminationState = stateOf(before)
	}
	h := n.prober.Health(w.uid, c, out.ContainerID)
	up := out.State.Running != nil && h.Started
	out.Started, out.Ready = &up, up && h.Ready
	return out
}

// waiting is why a container does not run that is to run.
func waiting(name string, has *podruntime.Container, res podruntime.Result, mayRun bool) (podruntime.Reason, bool) {
	why, waits := res.Waiting[name]
	switch {
	case waits || has != nil:
		return why, waits
	case mayRun:
		return podruntime.Reason{Reason: podruntime.ReasonBeingCreated}, true
	}
	return podruntime.Reason{Reason: podruntime.ReasonInitializing}, true
}

func stateOf(c *podruntime.Container) v1.ContainerState {
	switch {
	case c.Running():
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Started)}}
	case c.Exited():
		reason := cmp.Or(c.Reason, map[bool]string{true: "Completed", false: "Error"}[c.ExitCode == 0])
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: c.ExitCode, Reason: reason, Message: c.Message, ContainerID: c.ID,
			StartedAt: metav1.NewTime(c.Started), FinishedAt: metav1.NewTime(c.Finished),
		}}
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: podruntime.ReasonBeingCreated}}
}

// alwaysUp tells a sidecar.
func alwaysUp(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// initialized tells that all init containers are done, and the sidecars up.
func initialized(pod *v1.Pod, st *podruntime.Status) bool {
	for i := range pod.Spec.Containers {
		if st.Of(pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		has := st.Of(c.Name)
		if has == nil || alwaysUp(c) && !has.Running() || !alwaysUp(c) && (!has.Exited() || has.ExitCode != 0) {
			return false
		}
	}
	return true
}

// phaseOf is a pod's phase by kubelet's rules (pkg/kubelet getPhase).
func phaseOf(pod *v1.Pod, st *podruntime.Status) v1.PodPhase {
	switch {
	case initialized(pod, st):
		return phaseOfMain(pod, st)
	case initFailed(pod, st):
		return v1.PodFailed
	}
	return v1.PodPending
}

// phaseOfMain is the phase once the main containers may run.
func phaseOfMain(pod *v1.Pod, st *podruntime.Status) v1.PodPhase {
	running, failed, missing := countContainers(pod, st)
	switch {
	case pod.Spec.RestartPolicy == v1.RestartPolicyNever && running == 0 && missing > 0 && lost(pod, st, missing):
		return v1.PodFailed // those that are missing will never be made
	case missing > 0:
		return v1.PodPending
	case running > 0:
		return v1.PodRunning
	case failed == 0:
		return v1.PodSucceeded
	}
	return v1.PodFailed
}

// lost tells that the pod's sandbox has ended after some of its containers were
// made.
func lost(pod *v1.Pod, st *podruntime.Status, missing int) bool {
	return missing < len(pod.Spec.Containers) && len(st.Sandboxes) > 0 && !st.Sandboxes[0].Ready
}

// initFailed tells that an init container has failed for good.
func initFailed(pod *v1.Pod, st *podruntime.Status) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c v1.Container) bool {
		has := st.Of(c.Name)
		return has != nil && has.Exited() && has.ExitCode != 0 && !alwaysUp(&c) && !podruntime.Restarts(pod, &c, has.ExitCode)
	})
}

// countContainers counts by their newest instances; one that will be started again
// counts as running, sidecars do not count.
func countContainers(pod *v1.Pod, st *podruntime.Status) (running, failed, missing int) {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		switch has := st.Of(c.Name); {
		case has == nil || !has.Running() && !has.Exited():
			missing++
		case has.Running(), podruntime.Restarts(pod, c, has.ExitCode):
			running++
		case has.ExitCode != 0:
			failed++
		}
	}
	return running, failed, missing
}

// explain adds the conditions, each with the reason why it is not met.
func explain(s *v1.PodStatus, pod *v1.Pod, st *podruntime.Status, failed error, complaints map[string]string) {
	why := podruntime.Reason{}
	if failed != nil {
		why = reasonOf(failed)
		s.Reason, s.Message = why.Reason, why.Message
	}
	hasSandbox := len(st.Sandboxes) > 0 && st.Sandboxes[0].Ready && (pod.Spec.HostNetwork || len(st.IPs()) > 0)
	notReady := waitingFor(slices.Concat(s.InitContainerStatuses, s.ContainerStatuses), complaints)
	if s.Phase == v1.PodSucceeded {
		notReady = podruntime.Reason{Reason: "PodCompleted"}
	} else if notReady.Reason == "" {
		notReady = why
	}
	ready := s.Phase == v1.PodRunning && allReady(s.ContainerStatuses) && sidecarsReady(pod, s.InitContainerStatuses) && hasSandbox
	ended := s.Phase == v1.PodSucceeded
	s.Conditions = []v1.PodCondition{
		condition(v1.PodScheduled, true, why),
		condition(v1.PodReadyToStartContainers, hasSandbox, why),
		condition(v1.PodInitialized, ended || initialized(pod, st), notReady),
		condition(v1.ContainersReady, ready, notReady),
		serving(pod, ready, notReady),
	}
}

// serving is the condition that a pod is ready: its containers are, and its gates are
// open.
func serving(pod *v1.Pod, ready bool, otherwise podruntime.Reason) v1.PodCondition {
	gates := closedGates(pod)
	if ready && len(gates) > 0 {
		otherwise = podruntime.Reason{Reason: "ReadinessGatesNotReady", Message: "these conditions of the pod are not True: " + strings.Join(gates, ", ")}
	}
	return condition(v1.PodReady, ready && len(gates) == 0, otherwise)
}

// closedGates are the readiness gates of a pod whose conditions, which others set,
// are not true.
func closedGates(pod *v1.Pod) []string {
	var out []string
	for _, g := range pod.Spec.ReadinessGates {
		open := func(c v1.PodCondition) bool { return c.Type == g.ConditionType && c.Status == v1.ConditionTrue }
		if !slices.ContainsFunc(pod.Status.Conditions, open) {
			out = append(out, string(g.ConditionType))
		}
	}
	return out
}

func condition(kind v1.PodConditionType, met bool, otherwise podruntime.Reason) v1.PodCondition {
	if met {
		return v1.PodCondition{Type: kind, Status: v1.ConditionTrue}
	}
	return v1.PodCondition{Type: kind, Status: v1.ConditionFalse, Reason: otherwise.Reason, Message: otherwise.Message}
}

func allReady(all []v1.ContainerStatus) bool {
	return !slices.ContainsFunc(all, func(c v1.ContainerStatus) bool { return !c.Ready })
}

// sidecarsReady leaves out the init containers that are done, or long forgotten.
func sidecarsReady(pod *v1.Pod, all []v1.ContainerStatus) bool {
	for i := range pod.Spec.InitContainers {
		if alwaysUp(&pod.Spec.InitContainers[i]) && !all[i].Ready {
			return false
		}
	}
	return true
}

// waitingFor names the containers that are not ready and says why; complaints
// are what probes said of those that run.
func waitingFor(all []v1.ContainerStatus, complaints map[string]string) podruntime.Reason {
	var texts []string
	for _, c := range all {
		switch w := c.State.Waiting; {
		case c.Ready:
		case w != nil:
			texts = append(texts, strings.TrimSuffix("container "+c.Name+": "+w.Reason+": "+w.Message, ": "))
		default:
			texts = append(texts, strings.TrimSuffix("container "+c.Name+" is not ready: "+complaints[c.Name], ": "))
		}
	}
	if len(texts) == 0 {
		return podruntime.Reason{}
	}
	return podruntime.Reason{Reason: "ContainersNotReady", Message: strings.Join(texts, "; ")}
}

// oldest is when the first container of a pod that was found with the runtime
// had been started.
func oldest(st *podruntime.Status) time.Time {
	var out time.Time
	for i := range st.Containers {
		if t := st.Containers[i].Created; out.IsZero() || t.Before(out) {
			out = t
		}
	}
	return out
}
