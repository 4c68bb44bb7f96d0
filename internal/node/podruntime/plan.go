package podruntime

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// plan is what has to happen next so that the runtime has what the pod says.
type plan struct {
	// renew says why all that runs of the pod is to end and a new sandbox is to
	// be made; "" when the sandbox stays.
	renew   string
	over    bool   // what runs is to end, and no new sandbox to be made
	attempt uint32 // of the new sandbox
	sandbox string // id of the one that stays
	stop    []stopping
	// start is in order. A failure of an init container's start ends the pass.
	start []starting
}

type stopping struct {
	container *Container
	why       string
	grace     *int64 // seconds; nil is what the container was made with
}

type starting struct {
	spec    *v1.Container
	sidecar int    // 1-based place among the init containers; 0 for others
	first   bool   // those after it wait for it
	target  string // the container whose processes it sees; "" is none
}

// decide is a pure function of the three.
func decide(pod *v1.Pod, st *Status, health map[string]Health) plan {
	p := plan{}
	p.renew, p.attempt = needsSandbox(pod, st)
	if p.renew != "" {
		p.over = begun(pod, st) && !slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return mayRestart(pod, &c) })
		return p
	}
	p.sandbox = st.Sandboxes[0].ID
	for i := range st.Containers {
		if c := &st.Containers[i]; !c.Exited() && Named(pod, c.Name) == nil {
			p.stop = append(p.stop, stopping{container: c, why: "the pod has it no more"})
		}
	}
	p.ephemeral(pod, st)
	if p.initContainers(pod, st, health) {
		for i := range pod.Spec.Containers {
			p.container(pod, starting{spec: &pod.Spec.Containers[i]}, st, health)
		}
	}
	return p
}

// begun tells that a main container has been made, in any sandbox.
func begun(pod *v1.Pod, st *Status) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return st.Of(c.Name) != nil })
}

// needsSandbox says why a pod needs a new sandbox, and which attempt it is.
func needsSandbox(pod *v1.Pod, st *Status) (string, uint32) {
	if len(st.Sandboxes) == 0 {
		return "the pod has no sandbox", 0
	}
	newest, next := st.Sandboxes[0], st.Sandboxes[0].Attempt+1
	ready := 0
	for _, b := range st.Sandboxes {
		if b.Ready {
			ready++
		}
	}
	switch {
	case ready > 1:
		return "several sandboxes are ready", next
	case !newest.Ready:
		return "the sandbox is not ready", next
	case newest.HostNetwork != pod.Spec.HostNetwork:
		return "the network mode has changed", next
	case !newest.HostNetwork && len(newest.IPs) == 0:
		return "the sandbox has no address", next
	}
	return "", newest.Attempt
}

// ephemeral plans those that people add to look into the pod. They come before
// all others, which may be what does not start, and each is started once in the
// pod's life: also a new sandbox does not bring it back.
func (p *plan) ephemeral(pod *v1.Pod, st *Status) {
	for i := range pod.Spec.EphemeralContainers {
		e := &pod.Spec.EphemeralContainers[i]
		// One that is made and not started was so when a process was killed.
		if has := st.Of(e.Name); has == nil || has.State == cri.ContainerState_CONTAINER_CREATED {
			p.start = append(p.start, starting{spec: Ephemeral(e), target: e.TargetContainerName})
		}
	}
}

// Ephemeral is an ephemeral container as any other.
func Ephemeral(e *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&e.EphemeralContainerCommon)
}

// initContainers plans the init containers and tells that the others may start.
func (p *plan) initContainers(pod *v1.Pod, st *Status, health map[string]Health) bool {
	// Once a main container was there, init containers are over for this
	// sandbox, also those whose record is gone.
	begun := slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool { return st.in(p.sandbox, c.Name) != nil })
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if sidecar(c) {
			p.container(pod, starting{spec: c, sidecar: i + 1, first: !begun}, st, health)
			if !begun && (health[c.Name].NotStarted || c.StartupProbe != nil && !running(st.in(p.sandbox, c.Name))) {
				return false
			}
			continue
		}
		if !begun && !p.initContainer(pod, c, st) {
			return false
		}
	}
	return true
}

// initContainer plans one that has to end well, and tells that it has.
func (p *plan) initContainer(pod *v1.Pod, c *v1.Container, st *Status) bool {
	has := st.in(p.sandbox, c.Name)
	switch {
	case has == nil || has.State == cri.ContainerState_CONTAINER_CREATED:
		p.start = append(p.start, starting{spec: c, first: true})
	case has.Exited() && has.ExitCode == 0:
		return true
	case has.Exited() && Restarts(pod, c, has.ExitCode):
		p.start = append(p.start, starting{spec: c, first: true})
	case has.State == cri.ContainerState_CONTAINER_UNKNOWN:
		p.stop = append(p.stop, stopping{container: has, why: "its state is not known"})
		p.start = append(p.start, starting{spec: c, first: true})
	}
	return false
}

// container plans one that is to run.
func (p *plan) container(pod *v1.Pod, s starting, st *Status, health map[string]Health) {
	has := st.in(p.sandbox, s.spec.Name)
	if has == nil || !has.alive() {
		if due(pod, s.spec, has, st.Of(s.spec.Name)) {
			p.start = append(p.start, s)
		}
		return
	}
	changed := has.Hash != "" && has.Hash != hashOf(s.spec)
	next := stopping{container: has}
	switch probed := health[s.spec.Name]; {
	case !has.Running():
		next.why = "its state is not known"
	case changed:
		next.why = "its definition has changed"
	case probed.Failed != "":
		next.why, next.grace = probed.Failed, probed.Grace
	default:
		return
	}
	p.stop = append(p.stop, next)
	// A definition that changed is started whatever the policy is; after a
	// failed probe the policy counts (kubelet's rule).
	if changed || mayRestart(pod, s.spec) {
		p.start = append(p.start, s)
	}
}

// due tells that a container that does not run is to be started: has is its
// newest instance in this sandbox, last the newest of all; either may be nil.
func due(pod *v1.Pod, c *v1.Container, has, last *Container) bool {
	switch {
	case has != nil && has.Exited():
		return Restarts(pod, c, has.ExitCode)
	case has == nil && policyOf(pod, c) == v1.RestartPolicyOnFailure:
		return !succeeded(last) // in an earlier sandbox
	}
	return true
}

// Restarts tells whether a container is started again that has ended with a code: by
// the first of its own rules that is about the code, else by its policy, else by the
// pod's (KEP-5307).
func Restarts(pod *v1.Pod, c *v1.Container, exit int32) bool {
	for _, r := range c.RestartPolicyRules {
		if r.ExitCodes == nil || r.Action != v1.ContainerRestartRuleActionRestart {
			continue
		}
		listed := slices.Contains(r.ExitCodes.Values, exit)
		if listed == (r.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return true
		}
	}
	policy := policyOf(pod, c)
	return policy == v1.RestartPolicyOnFailure && exit != 0 || policy == v1.RestartPolicyAlways || policy == ""
}

// mayRestart tells that a container may be started again after some end.
func mayRestart(pod *v1.Pod, c *v1.Container) bool {
	return policyOf(pod, c) != v1.RestartPolicyNever || len(c.RestartPolicyRules) > 0
}

// policyOf is a container's own policy, or the pod's.
func policyOf(pod *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

func succeeded(c *Container) bool { return c != nil && c.Exited() && c.ExitCode == 0 }

func running(c *Container) bool { return c != nil && c.Running() }

// sidecar tells an init container that goes on beside the others.
func sidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// hashOf is that of a container's part of a pod: any difference in it makes a
// new instance.
func hashOf(c *v1.Container) string {
	text, err := json.Marshal(c)
	if err != nil { // no value of this type fails
		return err.Error()
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return fmt.Sprintf("%x", h.Sum64())
}
