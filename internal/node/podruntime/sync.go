package podruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sync brings the runtime towards what the pod says and may be called again at
// any time; st is what was read last. It does not wait for containers: who
// calls it looks again when one of them changed. The error is an *Error when
// the pod has no sandbox or network; a container that does not run is in the
// Result.
func (r *Runtime) Sync(ctx context.Context, w Want, st *Status) (Result, error) {
	p := decide(w.Pod, st, w.Health)
	if p.over {
		return Result{}, r.Kill(ctx, st, Grace(w.Pod))
	}
	if p.renew != "" {
		var err error
		if st, err = r.renew(ctx, w, st, p); err != nil {
			return Result{}, err
		}
		if p = decide(w.Pod, st, w.Health); p.renew != "" {
			return Result{}, &Error{ReasonNetwork, fmt.Errorf("a new sandbox of %s/%s: %s", w.Pod.Namespace, w.Pod.Name, p.renew)}
		}
	}
	if len(p.stop) > 0 {
		var err error
		if st, err = r.stopAll(ctx, w, st, p); err != nil {
			return Result{}, err
		}
	}
	out := r.startAll(ctx, w, st, p)
	return out, r.prune(ctx, w.Pod, st)
}

// stopAll ends what the plan does not want to run on, and reads what became of it: what
// is stopped for a failed probe is started again as what has crashed.
func (r *Runtime) stopAll(ctx context.Context, w Want, st *Status, p plan) (*Status, error) {
	for _, s := range p.stop {
		w.tell(s.container.Name, EventKilling, "is stopped: "+s.why)
		if err := r.stop(ctx, w.Pod, s, r.reach(st)); err != nil {
			return nil, fmt.Errorf("sync %s/%s: %w", w.Pod.Namespace, w.Pod.Name, err)
		}
	}
	now, err := r.Status(ctx, w.Pod.UID)
	if err == nil && (len(now.Sandboxes) == 0 || now.Sandboxes[0].ID != p.sandbox) {
		err = fmt.Errorf("sync %s/%s: its sandbox %s has gone meanwhile", w.Pod.Namespace, w.Pod.Name, p.sandbox)
	}
	return now, err
}

// stop ends a container that the plan does not want to run on. Why it does is
// noted before: its next status has it, whoever reads that.
func (r *Runtime) stop(ctx context.Context, pod *v1.Pod, s stopping, ips []string) error {
	c := s.container
	r.conf.Log.Info("container is stopped", "namespace", pod.Namespace, "pod", pod.Name, "container", c.Name, "why", s.why)
	if err := r.noteEnd(pod.UID, c, s.why); err != nil {
		return fmt.Errorf("note why container %s is stopped: %w", c.Name, err)
	}
	grace := c.grace
	if s.grace != nil {
		grace = time.Duration(*s.grace) * time.Second
	}
	return r.stopContainer(ctx, c, ips, grace)
}

// renew ends what is there and makes a new sandbox.
func (r *Runtime) renew(ctx context.Context, w Want, st *Status, p plan) (*Status, error) {
	pod := w.Pod
	if err := r.networkReady(ctx, pod); err != nil {
		return nil, err
	}
	if len(st.Sandboxes) > 0 {
		r.conf.Log.Info("pod gets a new sandbox", "namespace", pod.Namespace, "pod", pod.Name, "why", p.renew)
		w.tell("", EventSandbox, "the pod gets a new sandbox: "+p.renew)
		if err := r.Kill(ctx, st, Grace(pod)); err != nil {
			return nil, err
		}
	}
	if err := r.runSandbox(ctx, pod, p.attempt); err != nil {
		return nil, err
	}
	return r.Status(ctx, pod.UID)
}

// networkReady spares the runtime sandboxes that cannot have a network.
func (r *Runtime) networkReady(ctx context.Context, pod *v1.Pod) error {
	if pod.Spec.HostNetwork {
		return nil
	}
	s, err := r.conf.Runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return fmt.Errorf("status of the runtime: %w", err)
	}
	for _, c := range s.GetStatus().GetConditions() {
		if c.GetType() == cri.NetworkReady && !c.GetStatus() {
			return &Error{ReasonNetwork, fmt.Errorf("network is not ready: %s: %s", c.GetReason(), c.GetMessage())}
		}
	}
	return nil
}

// startAll starts what the plan says, in order. A failure is told of the
// container and leaves the others alone, unless they wait for it.
func (r *Runtime) startAll(ctx context.Context, w Want, st *Status, p plan) Result {
	out := Result{}
	for _, s := range p.start {
		left := r.crashDelay(w.Pod, st, s)
		var err error
		if left > 0 {
			err = &Error{ReasonCrashLoop, &later{fmt.Errorf("back-off %s restarting failed container %s", left.Round(time.Second), s.spec.Name), left}}
		} else {
			err = r.start(ctx, w, st, s)
		}
		if err == nil {
			continue
		}
		out.failed(s.spec.Name, err)
		if s.first {
			break
		}
	}
	return out
}

// failed notes why a container does not run and when the next try is due.
func (r *Result) failed(name string, err error) {
	why := Reason{ReasonCreate, err.Error()}
	if e := (*Error)(nil); errors.As(err, &e) {
		why = Reason{e.Reason, e.Err.Error()}
	}
	after := firstDelay
	if l := (*later)(nil); errors.As(err, &l) {
		after = l.after
	}
	r.wait(name, why, after)
	r.again(after)
}

// crashDelay is how long the restart of a container has to wait yet.
func (r *Runtime) crashDelay(pod *v1.Pod, st *Status, s starting) time.Duration {
	last := st.Of(s.spec.Name)
	// One that was changed, or stopped with its sandbox, did not crash.
	if last == nil || !last.Exited() || last.Hash != hashOf(s.spec) || last.Sandbox != st.Sandboxes[0].ID {
		return 0
	}
	// One that was stopped for a failed probe, and has ended well, is started now or
	// never: by its code alone it is done.
	if !Restarts(pod, s.spec, last.ExitCode) {
		return 0
	}
	return r.delay.left(crashKey(pod.UID, s.spec.Name, last.Hash), last.Finished)
}

func crashKey(uid types.UID, name, hash string) string {
	return string(uid) + " crash " + name + " " + hash
}

func pullKey(uid types.UID, image string) string { return string(uid) + " pull " + image }

// prune removes what newer instances made superfluous: of each container all
// but the newest two, and old sandboxes whose containers have successors.
func (r *Runtime) prune(ctx context.Context, pod *v1.Pod, st *Status) error {
	count := map[string]int{}
	kept := map[string]bool{} // sandboxes
	var errs []error
	for i := range st.Containers {
		c := &st.Containers[i]
		count[c.Name]++
		if count[c.Name] <= 2 || !c.Exited() {
			kept[c.Sandbox] = kept[c.Sandbox] || count[c.Name] == 1
			continue
		}
		errs = append(errs, r.removeContainer(ctx, c.ID), r.dropLog(pod, c))
	}
	for i, b := range st.Sandboxes {
		if i > 0 && !b.Ready && !kept[b.ID] {
			errs = append(errs, r.removeSandbox(ctx, st, b.ID))
		}
	}
	return errors.Join(errs...)
}

// Named is a pod's container of that name, of whatever kind; nil when it has
// none.
func Named(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == name {
			return Ephemeral(e)
		}
	}
	return nil
}
