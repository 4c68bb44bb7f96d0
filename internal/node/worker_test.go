package node

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/node/checkpoint"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/probe"
	"github.com/fairlead/fairlead/internal/node/volume"
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

// TestPauses: 1 s, doubling to 10 s; a minute without reason; each up to half as
// long again (runtime.md, D).
func TestPauses(t *testing.T) {
	var pauses []time.Duration
	pause := time.Duration(0)
	for range 6 {
		pause = longer(pause)
		pauses = append(pauses, pause/time.Second)
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 10, 10}, pauses)
	for range 1000 {
		d := jitter(resync)
		require.True(t, d >= time.Minute && d <= 90*time.Second, d)
	}
}

func poked(w *worker) bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// TestWhatIsNoReason: a pod that has just failed is not tried again because its
// own traces come and go, nor because its status was written.
func TestWhatIsNoReason(t *testing.T) {
	w := newWorker(named("u", mux.API))
	w.wake = make(chan struct{}, 1)
	n := &Node{workers: map[types.UID]*worker{"u": w}, seen: map[string]bool{}, conf: Config{Log: slog.New(slog.DiscardHandler)}}
	n.wake("u")
	require.True(t, poked(w))
	w.failed = failure{err: "no network", again: time.Now().Add(time.Hour)}
	n.wake("u")
	require.False(t, poked(w), "it waits")
	told := named("u", mux.API)
	told.Status.Message = "told"
	n.update(t.Context(), mux.Update{Op: mux.RECONCILE, Pods: []*v1.Pod{told}, Source: mux.API})
	require.False(t, poked(w))
	require.Equal(t, "told", w.pod.Status.Message)
	n.update(t.Context(), mux.Update{Op: mux.UPDATE, Pods: []*v1.Pod{told}, Source: mux.API})
	require.True(t, poked(w), "its source has changed it")
	w.state = terminating
	n.wake("u")
	require.True(t, poked(w), "what died may have been what it waits for")
}

// TestSoonerEnd: a shorter grace period than the one that runs interrupts it, a
// longer one does not.
func TestSoonerEnd(t *testing.T) {
	w := newWorker(named("u", mux.API))
	w.wake, w.state = make(chan struct{}, 1), terminating
	n := &Node{workers: map[types.UID]*worker{"u": w}, seen: map[string]bool{}, conf: Config{Log: slog.New(slog.DiscardHandler)}}
	interrupted := 0
	w.cancel = func() { interrupted++ }
	for i, c := range []struct {
		grace int64
		want  int
	}{{30, 0}, {60, 0}, {10, 1}, {10, 1}, {3, 2}} {
		p := named("u", mux.API)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Now()), new(c.grace)
		n.update(t.Context(), mux.Update{Op: mux.DELETE, Pods: []*v1.Pod{p}, Source: mux.API})
		require.Equal(t, c.want, interrupted, i)
	}
}

// TestRestoredPods: pods of checkpoints run on until every source has spoken;
// those that were named by then stay.
func TestRestoredPods(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	dir := checkpoint.New(t.TempDir())
	m := mux.New(log)
	at := func(uid string) *worker {
		return &worker{uid: types.UID(uid), name: types.NamespacedName{Namespace: "default", Name: "web"}, wake: make(chan struct{}, 1), started: true}
	}
	w := map[types.UID]*worker{"named": at("named"), "left": at("left"), "unknown": at("unknown")}
	n := &Node{workers: w, seen: map[string]bool{}, conf: Config{Log: log, Checkpoints: dir, Sources: m}}
	for _, uid := range []string{"named", "left"} {
		require.NoError(t, dir.Save(named(uid, mux.API)))
	}
	n.restore(t.Context())
	require.Equal(t, []state{syncing, syncing, adopted}, []state{w["named"].state, w["left"].state, w["unknown"].state})
	m.Channel(t.Context(), mux.API)
	require.False(t, n.Heard())
	require.NoError(t, m.Set(t.Context(), mux.API, []*v1.Pod{named("named", "")}))
	require.False(t, n.Heard(), "it has not been taken yet")
	n.update(t.Context(), <-m.Updates())
	require.True(t, n.Heard())
	n.endUnclaimed()
	require.Equal(t, []state{syncing, terminating, terminating}, []state{w["named"].state, w["left"].state, w["unknown"].state})
	pods, err := dir.Load()
	require.NoError(t, err)
	require.Len(t, pods, 1)
	require.Equal(t, types.UID("named"), pods[0].UID)
	n.update(t.Context(), mux.Update{Op: mux.REMOVE, Pods: []*v1.Pod{named("named", mux.API)}, Source: mux.API})
	pods, err = dir.Load()
	require.NoError(t, err)
	require.Empty(t, pods, "before it ends: a restart must not bring it back")
}

// during is a folder of checkpoints that does something beside while it saves one.
type during struct {
	*checkpoint.Folder
	do func()
}

func (d *during) Save(pod *v1.Pod) error {
	err := d.Folder.Save(pod)
	d.do()
	return err
}

// TestCheckpointOfTheNext: a pod that comes back while its former end is not complete
// keeps its checkpoint, whatever comes first; that of one that does not goes.
func TestCheckpointOfTheNext(t *testing.T) {
	dir := &during{Folder: checkpoint.New(t.TempDir())}
	runtime, err := podruntime.Dial(filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	defer runtime.Close()
	log := slog.New(slog.DiscardHandler)
	n := &Node{workers: map[types.UID]*worker{}, seen: map[string]bool{}, conf: Config{
		Log: log, Checkpoints: dir, Objects: object.None{}, PodDir: t.TempDir(),
		Runtime: podruntime.New(podruntime.Config{Runtime: cri.NewRuntimeServiceClient(runtime), Log: log, Now: time.Now}),
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer n.works.Wait()
	defer cancel()
	var ends sync.WaitGroup
	kept := func(uid types.UID) int {
		pods, err := dir.Load()
		require.NoError(t, err)
		return len(slices.DeleteFunc(pods, func(p *v1.Pod) bool { return p.UID != uid }))
	}
	for uid, end := range map[types.UID]struct{ before, meanwhile, after bool }{
		"before": {before: true}, "meanwhile": {meanwhile: true}, "after": {after: true},
	} {
		w := newWorker(named(string(uid), mux.API))
		w.wake, w.state, w.gone = make(chan struct{}, 1), terminated, true
		n.workers[uid] = w
		finish := func(now bool) {
			if now {
				n.finish(ctx, w)
			}
		}
		dir.do = func() { ends.Go(func() { finish(end.meanwhile) }) }
		finish(end.before)
		n.update(ctx, mux.Update{Op: mux.ADD, Pods: []*v1.Pod{named(string(uid), mux.API)}, Source: mux.API})
		ends.Wait()
		finish(end.after)
		require.Equal(t, 1, kept(uid), uid)
		n.mu.Lock()
		next := n.workers[uid]
		n.mu.Unlock()
		require.NotSame(t, w, next)
		n.finish(ctx, next)
		require.Zero(t, kept(uid), uid)
	}
}

// nothing is a runtime that knows no pod.
type nothing struct{ cri.RuntimeServiceClient }

func (nothing) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest, ...grpc.CallOption) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{}, nil
}

func (nothing) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{}, nil
}

// TestVolumesGoWithTheEnd: a pod that has ended, and that its source still names, keeps
// the record of its life alone.
func TestVolumesGoWithTheEnd(t *testing.T) {
	log, root := slog.New(slog.DiscardHandler), t.TempDir()
	volumes := volume.New(volume.Config{Root: root, Log: log})
	n := &Node{prober: probe.New(probe.Config{Log: log}), conf: Config{
		Log: log, PodDir: root, Volumes: volumes, Runtime: podruntime.New(podruntime.Config{Runtime: nothing{}, Log: log, Now: time.Now}),
	}}
	defer n.prober.Close()
	w := newWorker(named("u", mux.File))
	w.pod.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	n.begun(w, &podruntime.Status{})
	mounts, err := volumes.SetUp(t.Context(), w.pod)
	require.NoError(t, err)
	require.DirExists(t, mounts["disk"].Path)
	for range 2 {
		require.NoError(t, n.kill(t.Context(), w, w.pod))
		require.NoDirExists(t, mounts["disk"].Path)
		require.FileExists(t, n.lifeFile("u"))
	}
}

// TestEndedForTheServer: what the API server calls ended is not run again; a
// static pod's status is nobody's word.
func TestEndedForTheServer(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodSucceeded, v1.PodFailed} {
		p := named("u", mux.API)
		p.Status.Phase = phase
		require.Equal(t, terminating, newWorker(p).state)
		p.Annotations[mux.SourceKey] = mux.File
		require.Equal(t, syncing, newWorker(p).state)
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

// TestEventsAreCounted: the newest are kept, each once, in the order in which
// they were last.
func TestEventsAreCounted(t *testing.T) {
	n := &Node{workers: map[types.UID]*worker{}}
	w := newWorker(named("mine", mux.File))
	n.workers[w.uid] = w
	for i := range mostEvents + 5 {
		n.tell(w.pod, podruntime.Event{Container: "c", Warning: true, Reason: "BackOff", Message: "again\n"})
		n.tell(w.pod, podruntime.Event{Reason: "Pulled", Message: strconv.Itoa(i)})
	}
	n.tell(named("stranger", mux.File), podruntime.Event{Reason: "Pulled"})
	require.Len(t, w.events, mostEvents)
	last := w.events[mostEvents-2]
	require.Equal(t, "Warning BackOff container c: again", last.Type+" "+last.Reason+" "+last.Note)
	require.Equal(t, mostEvents+5, last.Count)
	require.Equal(t, strconv.Itoa(mostEvents+4), w.events[mostEvents-1].Note)
	require.Zero(t, w.events[0].Count)
}

// TestShorterTime: what is being done for a pod is interrupted by one that has
// to end sooner, and by nothing else.
func TestShorterTime(t *testing.T) {
	pod := func(deadline, grace *int64) *v1.Pod {
		p := named("mine", mux.API)
		p.Spec.ActiveDeadlineSeconds, p.DeletionGracePeriodSeconds = deadline, grace
		return p
	}
	few, many, beyond := new(int64(5)), new(int64(50)), new(int64(1)<<62)
	w := newWorker(pod(many, nil))
	require.True(t, w.hastens(pod(few, nil)))
	require.False(t, w.hastens(pod(many, few)))
	require.False(t, w.hastens(pod(beyond, nil)))
	require.False(t, w.hastens(pod(nil, nil)))
	w.state = terminating
	require.True(t, w.hastens(pod(nil, few)))
	require.False(t, w.hastens(pod(few, many)))
	w.state = terminated
	require.False(t, w.hastens(pod(few, few)))

	w.status.StartTime = new(metav1.Now())
	require.Equal(t, w.status.StartTime.Add(50*time.Second), w.deadline())
	w.pod = pod(beyond, nil)
	require.True(t, w.deadline().After(time.Now()), "no overflow")
	w.pod = pod(nil, nil)
	require.Zero(t, w.deadline())
}

// TestReadinessGates: a pod whose containers are ready is so once others have set
// what it waits for, and says what that is.
func TestReadinessGates(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "m"}}, ReadinessGates: []v1.PodReadinessGate{{ConditionType: "x.y/lb"}}}}
	at := func() v1.PodCondition { return serving(pod, true, podruntime.Reason{}) }
	require.Equal(t, v1.ConditionFalse, at().Status)
	require.Equal(t, "ReadinessGatesNotReady", at().Reason)
	require.Contains(t, at().Message, "x.y/lb")
	pod.Status.Conditions = []v1.PodCondition{{Type: "x.y/lb", Status: v1.ConditionFalse}}
	require.Equal(t, v1.ConditionFalse, at().Status)
	pod.Status.Conditions[0].Status = v1.ConditionTrue
	require.Equal(t, v1.ConditionTrue, at().Status)
	require.Equal(t, v1.ConditionFalse, serving(pod, false, podruntime.Reason{}).Status)

	w := newWorker(pod)
	w.wake = make(chan struct{}, 1)
	n := &Node{workers: map[types.UID]*worker{"": w}}
	n.reconciled(pod)
	require.Empty(t, w.wake, "its status alone is no reason")
	closed := pod.DeepCopy()
	closed.Status.Conditions = nil
	n.reconciled(closed)
	require.Len(t, w.wake, 1)
}

// TestRestartOfOneContainer: rules come before the container's policy, and that
// before the pod's.
func TestRestartOfOneContainer(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	rules := func(op v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}}
	}
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for name, c := range map[string]struct {
		pod  v1.RestartPolicy
		c    v1.Container
		exit int32
		want bool
	}{
		"the pod's":       {v1.RestartPolicyOnFailure, v1.Container{}, 1, true},
		"its own":         {v1.RestartPolicyNever, v1.Container{RestartPolicy: &always}, 0, true},
		"its own, never":  {v1.RestartPolicyAlways, v1.Container{RestartPolicy: &never}, 1, false},
		"a rule":          {v1.RestartPolicyNever, v1.Container{RestartPolicy: &never, RestartPolicyRules: rules(in, 3, 42)}, 42, true},
		"another code":    {v1.RestartPolicyNever, v1.Container{RestartPolicy: &never, RestartPolicyRules: rules(in, 3, 42)}, 4, false},
		"none of these":   {v1.RestartPolicyNever, v1.Container{RestartPolicy: &never, RestartPolicyRules: rules(notIn, 0, 1)}, 2, true},
		"one of these":    {v1.RestartPolicyNever, v1.Container{RestartPolicy: &never, RestartPolicyRules: rules(notIn, 0, 1)}, 1, false},
		"before a policy": {v1.RestartPolicyAlways, v1.Container{RestartPolicy: &always, RestartPolicyRules: rules(in, 1)}, 2, true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: c.pod}}
		require.Equal(t, c.want, podruntime.Restarts(pod, &c.c, c.exit), name)
	}
}

// TestAdmission: pods are let in as long as there is room, in turn, and one that has
// begun is not judged again.
func TestAdmission(t *testing.T) {
	asks := func(uid, cpu string) *worker {
		w := newWorker(named(uid, mux.File))
		w.pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}}
		return w
	}
	n := &Node{workers: map[types.UID]*worker{}, conf: Config{Capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}
	admit := func(w *worker, st *podruntime.Status) string {
		n.workers[w.uid] = w
		v, err := n.admit(w, w.pod, st)
		require.NoError(t, err)
		return v.Reason
	}
	none := &podruntime.Status{}
	first := asks("1", "1500m")
	require.Empty(t, admit(first, none))
	second := asks("2", "600m")
	require.Equal(t, "OutOfcpu", admit(second, none))
	require.Empty(t, admit(asks("3", "500m"), none))
	require.Empty(t, admit(asks("4", "1"), &podruntime.Status{Sandboxes: []podruntime.Sandbox{{ID: "box"}}}), "it runs already")
	require.Empty(t, admit(first, none), "once let in")
	first.state, n.workers["4"].state = terminated, terminated
	require.Empty(t, admit(second, none), "there is room again")

	// What cannot be known yet is waited for.
	n.conf.Labels = func() (map[string]string, bool) { return nil, false }
	far := asks("5", "0")
	far.pod.Spec.NodeSelector = map[string]string{"zone": "a"}
	_, err := n.admit(far, far.pod, none)
	require.ErrorIs(t, err, errLabels)
	n.conf.Labels = func() (map[string]string, bool) { return map[string]string{"zone": "a"}, true }
	require.Empty(t, admit(far, none))
}

// TestWaitingIsNoBeginning: a pod of which it was told that it waits is judged as any
// other.
func TestWaitingIsNoBeginning(t *testing.T) {
	n := &Node{prober: probe.New(probe.Config{}), conf: Config{Labels: func() (map[string]string, bool) { return nil, false }}}
	defer n.prober.Close()
	none := &podruntime.Status{}
	w := newWorker(named("u", mux.API))
	w.pod.Spec.Containers, w.pod.Spec.NodeSelector = []v1.Container{{Name: "m"}}, map[string]string{"zone": "a"}
	for _, why := range []error{errPredecessor, errLabels} {
		n.publish(w, w.pod, none, podruntime.Result{}, why)
		require.Equal(t, v1.PodPending, w.status.Phase)
		require.Nil(t, w.status.StartTime)
	}
	n.conf.Labels = func() (map[string]string, bool) { return map[string]string{"zone": "b"}, true }
	v, err := n.admit(w, w.pod, none)
	require.NoError(t, err)
	require.Equal(t, ReasonAffinity, v.Reason)
	w.termination = v
	n.publish(w, w.pod, none, podruntime.Result{}, nil)
	require.Equal(t, v1.PodFailed, w.status.Phase)
	require.NotNil(t, w.status.StartTime, "as kubelet tells it of those that it refuses")
}
