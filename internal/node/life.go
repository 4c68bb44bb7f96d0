package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/lib/hostfile"
	"github.com/fairlead/fairlead/internal/node/podruntime"
)

// Reasons in the status of a pod that the node itself has ended (kubelet's).
const (
	ReasonDeadline = "DeadlineExceeded"
	ReasonEvicted  = "Evicted"
)

// termination is why the node ends a pod for good, whatever its source says; none
// has no reason.
type termination struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// life is what has to be known of a pod after a restart of this process and
// neither the source nor the runtime tells: a static pod has no object, and of
// each container the runtime keeps two instances.
type life struct {
	Started     metav1.Time  `json:"started"` // status.startTime
	Termination *termination `json:"verdict,omitempty"`
}

// lifeFile is in the pod's folder, so that it goes with the pod.
func (n *Node) lifeFile(uid types.UID) string {
	return filepath.Join(n.conf.PodDir, string(uid), "life.json")
}

// recall takes in what is known of a pod since an earlier process, once. Only
// the worker's goroutine calls it.
func (n *Node) recall(w *worker) {
	if w.recalled {
		return
	}
	n.mu.Lock()
	pod := w.pod
	n.mu.Unlock()
	if pod == nil {
		return
	}
	w.recalled = true
	l, err := readLife(n.lifeFile(w.uid))
	if err != nil {
		n.conf.Log.Warn("record of the pod's start and end not read: what the runtime has counts", "pod", w.name.String(), "err", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if w.status.StartTime == nil && !static(pod) {
		w.status.StartTime = pod.Status.StartTime.DeepCopy() // what others have read counts
	}
	if w.status.StartTime == nil && !l.Started.IsZero() {
		w.status.StartTime = &l.Started
	}
	if l.Termination != nil {
		w.termination = *l.Termination
		w.end()
	}
}

// readLife gives nothing for a pod that has no file.
func readLife(file string) (life, error) {
	out := life{}
	text, err := os.ReadFile(filepath.Clean(file))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return life{}, fmt.Errorf("read %s: %w", file, err)
	}
	return out, nil
}

// begun gives a pod its start, and keeps it.
func (n *Node) begun(w *worker, st *podruntime.Status) {
	n.mu.Lock()
	if w.status.StartTime == nil {
		w.status.StartTime = startOf(st)
	}
	kept := w.kept
	w.kept = true
	n.mu.Unlock()
	if !kept {
		n.remember(w)
	}
}

// startOf is when a pod was started of which only the runtime knows.
func startOf(st *podruntime.Status) *metav1.Time {
	if t := oldest(st); !t.IsZero() {
		return &metav1.Time{Time: t}
	}
	now := metav1.Now()
	return &now
}

// remember writes a pod's life. A disk that takes nothing more keeps no pod
// from running, or from being ended.
func (n *Node) remember(w *worker) {
	n.mu.Lock()
	l := life{}
	if w.status.StartTime != nil {
		l.Started = *w.status.StartTime
	}
	if w.termination.Reason != "" {
		l.Termination = &w.termination
	}
	text, err := json.Marshal(l)
	n.mu.Unlock()
	file := n.lifeFile(w.uid)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o750)
	}
	if err == nil {
		err = hostfile.Write(file, text, 0o600)
	}
	if err != nil {
		n.conf.Log.Warn("start or end of the pod not kept: after a restart it is unknown", "pod", w.name.String(), "err", err)
	}
}

// deadline is when a pod has to have ended; zero when it may go on. Node.mu is
// held.
func (w *worker) deadline() time.Time {
	if w.pod == nil || w.pod.Spec.ActiveDeadlineSeconds == nil || w.status.StartTime == nil {
		return time.Time{}
	}
	return w.status.StartTime.Add(activeFor(w.pod))
}

// activeFor is how long a pod may be there at all.
func activeFor(pod *v1.Pod) time.Duration {
	if s := pod.Spec.ActiveDeadlineSeconds; s != nil && *s < math.MaxInt32 { // the API's own bound
		return time.Duration(*s) * time.Second
	}
	return math.MaxInt32 * time.Second
}

// terminating begins the end of a pod that the node does not let run on, and tells
// that it has.
func (n *Node) terminating(w *worker, pod *v1.Pod, st *podruntime.Status) bool {
	n.mu.Lock()
	v := w.ending
	if at := w.deadline(); v.Reason == "" && !at.IsZero() && !time.Now().Before(at) {
		v = termination{Reason: ReasonDeadline, Message: fmt.Sprintf(
			"the pod was there for longer than its activeDeadlineSeconds, %d, allow", *w.pod.Spec.ActiveDeadlineSeconds)}
	}
	n.mu.Unlock()
	if v.Reason == "" {
		return false
	}
	n.terminate(w, pod, st, v)
	return true
}

// terminate begins the end of a pod for good. Only the worker's goroutine calls it.
func (n *Node) terminate(w *worker, pod *v1.Pod, st *podruntime.Status, v termination) {
	n.mu.Lock()
	w.termination = v
	n.mu.Unlock()
	n.remember(w) // before anything ends: what has ended would be started again
	n.publish(w, pod, st, podruntime.Result{}, nil)
	n.tell(pod, podruntime.Event{Warning: true, Reason: v.Reason, Message: v.Message})
	n.conf.Log.Info("pod is ended", "pod", w.name.String(), "uid", w.uid, "reason", v.Reason, "why", v.Message)
	n.mu.Lock()
	w.end()
	n.mu.Unlock()
}

// within shortens a pause to the pod's deadline.
func (n *Node) within(w *worker, pause time.Duration) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at := w.deadline(); w.state == syncing && !at.IsZero() {
		return max(0, min(pause, time.Until(at)))
	}
	return pause
}
