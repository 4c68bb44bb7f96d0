package node

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/podruntime"
)

func named(uid, source string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: types.UID(uid), Annotations: map[string]string{mux.SourceKey: source},
	}}
}

func TestTurns(t *testing.T) {
	at := func(w *worker, turn int, s state, started bool) *worker {
		w.turn, w.state, w.started = turn, s, started
		return w
	}
	mine := func() *worker { return at(newWorker(named("mine", mux.File)), 5, syncing, false) }
	other := func(source string) *worker { return newWorker(named("other", source)) }
	found := orphan("other", "default", "web")
	stranger := other(mux.File)
	stranger.name.Name = "db"
	for name, c := range map[string]struct {
		other *worker
		may   bool
	}{
		"runs":             {at(other(mux.File), 1, syncing, true), false},
		"runs, made later": {at(other(mux.File), 9, syncing, true), false},
		"ends":             {at(other(mux.File), 1, terminating, true), false},
		"has ended":        {at(other(mux.File), 1, terminated, true), true},
		"waited before":    {at(other(mux.File), 1, syncing, false), false},
		"waits behind":     {at(other(mux.File), 9, syncing, false), true},
		"never began":      {at(other(mux.File), 1, terminating, false), true},
		"from a URL":       {at(other(mux.URL), 1, syncing, true), false},
		"of the API":       {at(other(mux.API), 1, syncing, true), true},
		"only the runtime": {found, false},
		"another name":     {at(stranger, 1, syncing, true), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := mine()
			n := &Node{workers: map[types.UID]*worker{"mine": w, "other": c.other}}
			require.Equal(t, c.may, n.mayStart(w))
			require.Equal(t, c.may, w.started)
		})
	}
	n := &Node{workers: map[types.UID]*worker{"other": at(other(mux.API), 1, syncing, true)}}
	require.True(t, n.mayStart(newWorker(named("mine", mux.API))), "the API server itself says who comes when")
}

// TestNeverBack: no update brings a pod back that has begun to end.
func TestNeverBack(t *testing.T) {
	for _, s := range []state{terminating, terminated} {
		for _, gone := range []bool{false, true} {
			w := newWorker(named("u", mux.File))
			w.wake, w.state, w.gone = make(chan struct{}, 1), s, gone
			n := &Node{workers: map[types.UID]*worker{"u": w}, seen: map[string]bool{}, conf: Config{Log: slog.New(slog.DiscardHandler)}}
			for _, op := range []mux.Op{mux.ADD, mux.UPDATE, mux.RECONCILE, mux.DELETE, mux.REMOVE} {
				n.update(t.Context(), mux.Update{Op: op, Pods: []*v1.Pod{named("u", mux.File)}, Source: mux.File})
				require.Equal(t, s, w.state, op)
			}
			require.True(t, w.gone)
			require.Nil(t, w.next, "a pod that its source has dropped again")
		}
	}
}

func TestUIDsThatAreNoNames(t *testing.T) {
	n := &Node{workers: map[types.UID]*worker{}, seen: map[string]bool{}, conf: Config{Log: slog.New(slog.DiscardHandler)}}
	for _, uid := range []string{"", ".", "..", "../../etc", "a/b", "*", "a\x00"} {
		n.update(t.Context(), mux.Update{Op: mux.ADD, Pods: []*v1.Pod{named(uid, mux.File)}, Source: mux.File})
		require.Empty(t, n.workers, uid)
	}
	require.True(t, n.seen[mux.File])
}

func TestPhases(t *testing.T) {
	for name, c := range map[string]struct {
		policy v1.RestartPolicy
		exits  []int32 // of m and n; -1 has none, -2 runs
		want   v1.PodPhase
	}{
		"none":              {v1.RestartPolicyAlways, []int32{-1, -1}, v1.PodPending},
		"one missing":       {v1.RestartPolicyAlways, []int32{-2, -1}, v1.PodPending},
		"all run":           {v1.RestartPolicyNever, []int32{-2, -2}, v1.PodRunning},
		"one runs":          {v1.RestartPolicyNever, []int32{-2, 1}, v1.PodRunning},
		"to be restarted":   {v1.RestartPolicyAlways, []int32{0, 0}, v1.PodRunning},
		"will be retried":   {v1.RestartPolicyOnFailure, []int32{0, 1}, v1.PodRunning},
		"done":              {v1.RestartPolicyOnFailure, []int32{0, 0}, v1.PodSucceeded},
		"done, never again": {v1.RestartPolicyNever, []int32{0, 0}, v1.PodSucceeded},
		"failed":            {v1.RestartPolicyNever, []int32{0, 1}, v1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.policy, Containers: []v1.Container{{Name: "m"}, {Name: "n"}}}}
			require.Equal(t, c.want, phaseOf(pod, statusWith(c.exits)))
		})
	}
}

// statusWith has the containers m and n: -1 is none, -2 runs, else the exit code.
func statusWith(exits []int32) *podruntime.Status {
	st := &podruntime.Status{Sandboxes: []podruntime.Sandbox{{ID: "box", Ready: true}}}
	for i, name := range []string{"m", "n"} {
		switch e := exits[i]; e {
		case -1:
		case -2:
			st.Containers = append(st.Containers, podruntime.Container{Name: name, State: cri.ContainerState_CONTAINER_RUNNING})
		default:
			st.Containers = append(st.Containers, podruntime.Container{Name: name, State: cri.ContainerState_CONTAINER_EXITED, ExitCode: e})
		}
	}
	return st
}
