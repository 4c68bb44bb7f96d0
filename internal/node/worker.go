package node

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/report"
)

// state of a pod's life. It only ever grows.
type state int

const (
	adopted     state = iota // found with the runtime; no source has named it yet
	syncing                  // is to run
	terminating              // is to end
	terminated               // has ended
)

func (s state) String() string {
	return [...]string{"adopted", "syncing", "terminating", "terminated"}[s]
}

// ReasonTerminating is the reason in the status of a pod that is being ended.
const ReasonTerminating = "Terminating"

// worker does all that happens to one pod, one thing after the other. Its
// goroutine alone calls the runtime about the pod; all fields but uid, name,
// turn, wake and those at its end are guarded by Node.mu.
type worker struct {
	uid  types.UID
	name types.NamespacedName
	turn int // order among all workers
	wake chan struct{}

	state       state
	pod         *v1.Pod            // nil for one that no source has named
	restored    bool               // pod is what a checkpoint says; no source has named it yet
	gone        bool               // no source names it any more
	started     bool               // it has, or may have, something with the runtime
	next        *v1.Pod            // the same UID again, after its end
	cancel      context.CancelFunc // of the step that is being done; nil: it is not to be interrupted
	status      v1.PodStatus
	version     uint64 // of all that Reports tells of it
	failed      failure
	due         map[string]time.Time // until when containers wait
	events      []agent.PodEvent     // that were told, oldest first
	kept        bool                 // the pod's start is on the disk
	admitted    bool                 // the node has let it in
	untold      []string             // what of it has no effect on this node
	termination termination          // of the node itself
	ending      termination          // becomes it with the next step

	// Used by the worker's goroutine alone.
	retry    time.Duration
	recalled bool // what an earlier process has kept is known
}

// failure is the last one of a pod's steps; zero when the last one went well.
type failure struct {
	err   string
	at    time.Time
	again time.Time // when the next try is due
}

func newWorker(pod *v1.Pod) *worker {
	w := &worker{uid: pod.UID, name: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod: pod, state: syncing}
	// What the API server calls ended is not run again, whatever the runtime
	// has forgotten.
	over := !static(pod) && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed)
	if over {
		w.status = pod.Status
	}
	if over || pod.DeletionTimestamp != nil {
		w.end()
	}
	return w
}

// orphan is a pod that only the runtime, or the disk, knows.
func orphan(uid types.UID, namespace, name string) *worker {
	return &worker{uid: uid, name: types.NamespacedName{Namespace: namespace, Name: name}, state: terminating, started: true, gone: true}
}

// end turns a pod that runs towards its end, and interrupts what is being done
// for it. Node.mu is held, or nobody else has the worker yet.
func (w *worker) end() {
	if w.state < terminating {
		w.state = terminating
		if w.cancel != nil {
			w.cancel()
		}
	}
}

// poke makes the next step due; it never blocks.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default: // one is due already
	}
}

// static tells pods that have no object behind them.
func static(pod *v1.Pod) bool {
	return pod != nil && pod.Annotations[mux.SourceKey] != mux.API
}

// work steps until the pod is gone or ctx ends.
func (n *Node) work(ctx context.Context, w *worker) {
	for {
		again, done := n.step(ctx, w)
		if done {
			n.finish(ctx, w)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-time.After(again):
		}
	}
}

// finish forgets a worker, lets those of the same name go on, and begins anew
// when the same pod is wanted again.
func (n *Node) finish(ctx context.Context, w *worker) {
	n.conf.Objects.Hold(w.uid, nil)
	n.succeed(ctx, w)
	n.wakeNamesakes(w)
	n.changed()
}

// succeed puts the same pod in a worker's place, or nothing. The checkpoint is the next
// one's then.
func (n *Node) succeed(ctx context.Context, w *worker) {
	n.keeping.Lock()
	defer n.keeping.Unlock()
	n.mu.Lock()
	next := w.next
	delete(n.workers, w.uid)
	// In one go: housekeeping may hold a list in which the runtime still has
	// the pod.
	if next != nil {
		n.begin(ctx, newWorker(next))
	}
	n.mu.Unlock()
	if next == nil {
		n.dropCheckpoint(w.uid)
	}
}

func (n *Node) wakeNamesakes(w *worker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.workers {
		if other != w && other.name == w.name {
			other.poke()
		}
	}
}

// step does what is due, and says when the next step is, at the latest.
func (n *Node) step(ctx context.Context, w *worker) (again time.Duration, done bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.recall(w)
	n.mu.Lock()
	at, pod, gone := w.state, w.pod, w.gone
	w.cancel = nil
	if at == syncing || at == terminating {
		w.cancel = cancel
	}
	n.mu.Unlock()
	var err error
	again = jitter(resync)
	switch at {
	case syncing:
		again, err = n.sync(ctx, w, pod)
	case terminating:
		if err = n.kill(ctx, w, pod); err == nil {
			n.ended(w)
			return 0, false
		}
	case terminated:
		if gone {
			err = n.remove(ctx, w)
			done = err == nil
		}
	}
	if err == nil {
		w.retry = 0
		n.note(w, failure{})
		return n.within(w, again), done
	}
	w.retry = longer(w.retry)
	again = n.within(w, jitter(w.retry))
	if ctx.Err() == nil {
		if w.failed.err != err.Error() { // its status goes on saying it
			n.conf.Log.Warn("pod is tried again", "pod", w.name.String(), "uid", w.uid, "state", at.String(), "err", err)
		}
		now := time.Now()
		n.note(w, failure{err: err.Error(), at: now, again: now.Add(again)})
	}
	return again, false
}

func (n *Node) note(w *worker, f failure) {
	n.mu.Lock()
	w.failed = f
	n.mu.Unlock()
}

// longer is the pause after one more failure.
func longer(pause time.Duration) time.Duration {
	return min(max(2*pause, firstRetry), mostRetry)
}

// jitter spreads pods that began together: up to half as long again.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/2+1)) //nolint:gosec // nobody is to be surprised by it
}

// errPredecessor is why a pod does not start yet.
var errPredecessor = &podruntime.Error{Reason: "PredecessorEnding", Err: errors.New("another pod of this name has not ended yet")}

// mayStart lets static pods of one name run one after the other: they would
// share what the name stands for, fixed addresses above all.
func (n *Node) mayStart(w *worker) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.started || !static(w.pod) {
		w.started = true
		return true
	}
	for _, other := range n.workers {
		if other != w && other.name == w.name && (other.pod == nil || static(other.pod)) && other.precedes(w) {
			return false
		}
	}
	w.started = true
	return true
}

// precedes tells that a namesake has to end before w may start: it has
// something with the runtime, or waited before. Node.mu is held.
func (w *worker) precedes(later *worker) bool {
	if w.started {
		return w.state != terminated
	}
	return w.state == syncing && w.turn < later.turn
}

// sync brings a pod towards running. A pod whose containers have all ended,
// and are not to be restarted, begins its end.
func (n *Node) sync(ctx context.Context, w *worker, pod *v1.Pod) (time.Duration, error) {
	if !n.mayStart(w) {
		if none := (&podruntime.Status{}); !n.terminating(w, pod, none) {
			n.complain(ctx, pod, podruntime.Result{}, errPredecessor)
			n.publish(w, pod, none, podruntime.Result{}, errPredecessor)
		}
		return jitter(resync), nil
	}
	st, err := n.conf.Runtime.Status(ctx, w.uid)
	if err != nil {
		return 0, err
	}
	if phase := phaseOf(pod, st); phase == v1.PodSucceeded || phase == v1.PodFailed {
		n.publish(w, pod, st, podruntime.Result{}, nil)
		n.mu.Lock()
		w.end()
		n.mu.Unlock()
		return 0, nil
	}
	switch v, err := n.admit(w, pod, st); {
	case err != nil:
		n.publish(w, pod, st, podruntime.Result{}, err)
		return 0, err
	case v.Reason != "":
		n.reject(w, pod, v)
		return 0, nil
	}
	n.warn(w, pod)
	n.begun(w, st)
	if n.terminating(w, pod, st) {
		return 0, nil
	}
	res, failed := n.bringUp(ctx, w, pod, st)
	if st, err = n.conf.Runtime.Status(ctx, w.uid); err != nil {
		return 0, errors.Join(failed, err)
	}
	if n.terminating(w, pod, st) {
		return 0, nil
	}
	n.complain(ctx, pod, res, failed)
	n.look(ctx, pod, st)
	n.publish(w, pod, st, res, failed)
	if res.Again > 0 {
		return res.Again, failed
	}
	return jitter(resync), failed
}

// bringUp takes no longer than to the pod's deadline, as when an image does not
// come.
func (n *Node) bringUp(ctx context.Context, w *worker, pod *v1.Pod, st *podruntime.Status) (podruntime.Result, error) {
	n.mu.Lock()
	end := w.deadline()
	n.mu.Unlock()
	if !end.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	}
	n.hold(pod)
	mounts, err := n.conf.Volumes.SetUp(ctx, pod)
	if err != nil {
		return podruntime.Result{}, &podruntime.Error{Reason: "FailedMount", Err: err}
	}
	return n.conf.Runtime.Sync(ctx, podruntime.Want{
		Pod: pod, Mounts: mounts, Health: n.health(pod, st), Tell: func(e podruntime.Event) { n.tell(pod, e) },
	}, st)
}

// kill ends all that runs of a pod. Its volumes go with it: it may stay here, ended, for
// as long as its source names it. They go after its status is known, which may have last
// words that lie in one of them.
func (n *Node) kill(ctx context.Context, w *worker, pod *v1.Pod) error {
	n.prober.Set(ctx, w.uid, nil)
	st, err := n.conf.Runtime.Status(ctx, w.uid)
	if err != nil {
		return err
	}
	grace := st.OwnGrace()
	if pod != nil {
		grace = podruntime.Grace(pod)
	}
	if n.evicted(w) {
		grace = 0
	}
	n.tellStopped(pod, st)
	if err := n.conf.Runtime.Kill(ctx, st, grace); err != nil {
		return err
	}
	if st, err = n.conf.Runtime.Status(ctx, w.uid); err != nil {
		return err
	}
	if !st.Idle() {
		return errors.New("the runtime still has something of the pod running")
	}
	if pod != nil {
		n.publish(w, pod, st, podruntime.Result{}, nil)
	}
	return n.conf.Volumes.TearDown(w.uid)
}

// ended notes that nothing of the pod runs any more.
func (n *Node) ended(w *worker) {
	n.mu.Lock()
	w.state = terminated
	w.version++
	n.mu.Unlock()
	n.changed()
	n.wakeNamesakes(w)
	w.poke()
}

// remove makes a pod that has ended leave nothing behind. One that a source
// still names keeps its dead containers: they say that it has run.
func (n *Node) remove(ctx context.Context, w *worker) error {
	st, err := n.conf.Runtime.Status(ctx, w.uid)
	if err != nil {
		return err
	}
	// The folder goes last, with Remove: it is what a later process finds.
	if err := n.conf.Volumes.TearDown(w.uid); err != nil {
		return err
	}
	return n.conf.Runtime.Remove(ctx, st)
}

// Pods are all pods that sources name, or named until they have ended, with
// their status, by namespace and name.
func (n *Node) Pods() []*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*worker
	for _, w := range n.workers {
		if w.pod != nil {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *worker) int { return compareNames(a.name, b.name, a.turn, b.turn) })
	out := make([]*v1.Pod, 0, len(all))
	for _, w := range all {
		p := w.now()
		if w.state == terminating {
			p.Status.Reason = ReasonTerminating
		}
		out = append(out, p)
	}
	return out
}

// now is a copy of the pod with its status. Node.mu is held.
func (w *worker) now() *v1.Pod {
	p := w.pod.DeepCopy()
	w.status.DeepCopyInto(&p.Status)
	if p.Status.Phase == "" {
		p.Status.Phase = v1.PodPending
	}
	return p
}

// Reports are all pods as an API server is to be told of them.
func (n *Node) Reports() []report.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]report.Pod, 0, len(n.workers))
	for _, w := range n.workers {
		if w.pod == nil || w.status.Phase == "" {
			continue // nothing is known of it yet
		}
		out = append(out, report.Pod{
			Pod: w.now(), Version: w.version, Static: static(w.pod), Gone: w.gone, Ended: w.state == terminated,
		})
	}
	return out
}
