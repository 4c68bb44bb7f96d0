// Package node runs the pods that sources name: it hears what is to run, gives
// each pod a worker that brings the runtime there and takes it down again, and
// says how each pod is. It knows sources only as a stream of updates, and the
// runtime only through podruntime.
//
// Of a pod's life only its start is kept on disk, and that the node has ended it
// for good: a new process finds all that runs with the runtime, and with
// Checkpoints what the pods of remote sources are. It goes on with them, waits
// until every source has spoken, and ends what none of them names.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/node/carried"
	"github.com/fairlead/fairlead/internal/node/mux"
	"github.com/fairlead/fairlead/internal/node/object"
	"github.com/fairlead/fairlead/internal/node/pleg"
	"github.com/fairlead/fairlead/internal/node/podruntime"
	"github.com/fairlead/fairlead/internal/node/probe"
	"github.com/fairlead/fairlead/internal/node/report"
	"github.com/fairlead/fairlead/internal/node/volume"
)

// Volumes makes the folders that a pod's volumes are, says which of them holds
// more than it may, and removes them. Each may be called again at any time.
type Volumes interface {
	SetUp(ctx context.Context, pod *v1.Pod) (map[string]volume.Mount, error)
	Over(ctx context.Context, pod *v1.Pod) (*volume.Excess, error)
	TearDown(uid types.UID) error
}

// Checkpoints keeps the pods of remote sources over restarts. Each call may be
// made again at any time; pods that Load cannot read are told in its error.
type Checkpoints interface {
	Save(pod *v1.Pod) error
	Drop(uid types.UID) error
	Load() ([]*v1.Pod, error)
}

// Sources is who merges what sources say.
type Sources interface {
	Updates() <-chan mux.Update
	SeenAllSources(seen map[string]bool) bool
}

// Config says what a node is made of.
type Config struct {
	Sources Sources
	Runtime *podruntime.Runtime
	Volumes Volumes
	Objects object.Store
	// Checkpoints may be nil: then a pod whose source does not answer after a
	// restart is left as it is.
	Checkpoints Checkpoints
	// Changed, if not nil, hears that Reports has changed. It must not block.
	Changed func()
	// Tell, if not nil, hears what happens to pods. It must not block.
	Tell func(report.Event)
	// Origin, if not nil, is where exactly a source has a pod from: the file, for
	// people to read.
	Origin func(source string, uid types.UID) string
	// Warnings, if not nil, says what a source does not understand of a pod.
	Warnings func(uid types.UID) []string
	// Capacity is what the node has for all pods; Labels are its own, false while
	// they are not known.
	Capacity v1.ResourceList
	Labels   func() (map[string]string, bool)
	// Machine decides which fields of a pod are carried out.
	Machine carried.Machine
	PodDir  string // the same as podruntime's; what no pod owns there is removed
	// NodeIP is where a pod in the node's network is asked; "" is the loopback. HostIP
	// is the node's address in pods' status.
	NodeIP, HostIP string
	Log            *slog.Logger
}

// Periods of the loop.
const (
	relist       = time.Second
	housekeeping = 2 * time.Second
	resync       = time.Minute
	firstRetry   = time.Second
	mostRetry    = 10 * time.Second
)

// Node is made by New and lives in Run; its other methods are safe for
// concurrent use.
type Node struct {
	conf   Config
	pleg   *pleg.PLEG
	works  sync.WaitGroup
	prober Prober

	// keeping has what is kept of a pod follow what is decided of it: whoever writes or
	// drops a checkpoint, and changes what that is about, does both in one go. It is
	// taken before mu.
	keeping sync.Mutex

	mu      sync.Mutex
	workers map[types.UID]*worker
	seen    map[string]bool // sources of which an update was taken
	count   int             // of workers ever made: gives them their order
}

// New starts nothing.
func New(c Config) *Node {
	n := &Node{
		conf: c, pleg: pleg.New(c.Runtime, relist, c.Log),
		workers: map[types.UID]*worker{}, seen: map[string]bool{},
	}
	n.prober = probe.New(probe.Config{Checker: probe.Checks{Exec: c.Runtime}, Changed: n.wake, Failed: n.unhealthy, Log: c.Log})
	return n
}

// Run runs pods until ctx ends. Pods go on running then: who takes over finds
// them with the runtime.
func (n *Node) Run(ctx context.Context) error {
	defer n.prober.Close()
	defer n.works.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := n.adopt(ctx); err != nil {
		return err
	}
	n.works.Go(func() { n.pleg.Run(ctx) })
	n.works.Go(func() { n.conf.Runtime.Watch(ctx, n.pleg.News) })
	n.works.Go(func() { n.keepHouse(ctx) })
	n.works.Go(func() { n.keepLimits(ctx) })
	n.works.Go(func() { n.followObjects(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-n.conf.Sources.Updates():
			n.update(ctx, u)
		case e := <-n.pleg.Events():
			n.wake(e.UID)
		}
	}
}

// adopt gives every pod that the runtime has a worker, before any source is
// heard, so that a pod of the same name does not start beside it. It waits for
// the runtime.
func (n *Node) adopt(ctx context.Context) error {
	told := false
	for {
		pods, err := n.conf.Runtime.List(ctx)
		if err == nil {
			for _, p := range pods {
				n.add(ctx, &worker{uid: p.UID, name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, state: adopted, started: true})
			}
			n.restore(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to end while it waited
		}
		if !told {
			n.conf.Log.Warn("waiting for the runtime", "err", err)
			told = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstRetry):
		}
	}
}

// restore gives the pods that checkpoints name to their workers: they are run
// on until their source has spoken.
func (n *Node) restore(ctx context.Context) {
	if n.conf.Checkpoints == nil {
		return
	}
	pods, err := n.conf.Checkpoints.Load()
	if err != nil {
		n.conf.Log.Warn("some checkpoints not read: their pods wait for their sources", "err", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range pods {
		w := n.workers[p.UID]
		if w == nil {
			w = newWorker(p)
			w.restored = true
			n.begin(ctx, w)
			continue
		}
		w.pod, w.state, w.restored = p, syncing, true
		if p.DeletionTimestamp != nil {
			w.end()
		}
		w.poke()
	}
}

// keep makes checkpoints of what a remote source says. A file needs none: it is
// on the disk itself.
func (n *Node) keep(u mux.Update, pod *v1.Pod) {
	if n.conf.Checkpoints == nil || u.Source == mux.File || u.Op == mux.RECONCILE {
		return
	}
	var err error
	if u.Op == mux.REMOVE {
		err = n.conf.Checkpoints.Drop(pod.UID)
	} else {
		err = n.conf.Checkpoints.Save(pod)
	}
	if err != nil {
		n.conf.Log.Warn("checkpoint of the pod not written: a restart finds the former one", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}

// update takes what a source says into the workers.
func (n *Node) update(ctx context.Context, u mux.Update) {
	for _, pod := range u.Pods {
		if !usable(pod.UID) {
			n.conf.Log.Warn("pod left out: its UID is no name of a folder", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "source", u.Source)
			continue
		}
		n.take(ctx, u, pod)
	}
	// Not before its pods have their workers: housekeeping would take those that
	// were adopted for nobody's.
	n.mu.Lock()
	n.seen[u.Source] = true
	n.mu.Unlock()
	n.changed()
}

// take takes in what a source says of one pod.
func (n *Node) take(ctx context.Context, u mux.Update, pod *v1.Pod) {
	n.keeping.Lock()
	defer n.keeping.Unlock()
	n.keep(u, pod)
	switch u.Op {
	case mux.ADD, mux.UPDATE, mux.DELETE:
		n.want(ctx, pod)
	case mux.RECONCILE:
		n.reconciled(pod)
	case mux.REMOVE:
		n.drop(pod.UID)
	}
}

func (n *Node) changed() {
	if n.conf.Changed != nil {
		n.conf.Changed()
	}
}

// usable tells UIDs that may be the name of a folder, which is removed with the
// pod: a file may name any.
func usable(uid types.UID) bool {
	return uid != "" && uid != "." && uid != ".." && !strings.ContainsAny(string(uid), "/*?[\\\x00") && len(uid) <= 128
}

// want gives a pod its worker, or the worker its new pod.
func (n *Node) want(ctx context.Context, pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.workers[pod.UID]
	switch {
	case w == nil:
		n.begin(ctx, newWorker(pod))
		return
	case w.gone:
		w.next = pod // the same pod again, once its end is complete
	default:
		if w.pod != nil && w.cancel != nil && w.hastens(pod) {
			w.cancel()
		}
		w.pod, w.restored = pod, false
		w.version++
		if w.state == adopted {
			w.state, w.started = syncing, true
		}
		if pod.DeletionTimestamp != nil {
			w.end()
		}
	}
	w.poke()
}

// hastens tells that a newer pod has to end sooner than what is being done for
// it would let it. Node.mu is held.
func (w *worker) hastens(newer *v1.Pod) bool {
	switch w.state {
	case terminating:
		return podruntime.Grace(newer) < podruntime.Grace(w.pod)
	case syncing:
		return activeFor(newer) < activeFor(w.pod)
	}
	return false
}

// reconciled takes what the API server has as a pod's status, mostly what it
// was told: no reason to look at the pod, unless somebody has opened a readiness gate.
func (n *Node) reconciled(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.workers[pod.UID]; w != nil && w.pod != nil {
		gates := closedGates(w.pod)
		w.pod = pod
		if !slices.Equal(gates, closedGates(pod)) {
			w.poke()
		}
	}
}

// drop ends a pod that its source names no more.
func (n *Node) drop(uid types.UID) {
	n.mu.Lock()
	w := n.workers[uid]
	if w != nil {
		w.gone, w.next = true, nil
		w.version++
		w.end()
	}
	n.mu.Unlock()
	if w != nil {
		w.poke()
	}
}

func (n *Node) wake(uid types.UID) {
	n.mu.Lock()
	w := n.workers[uid]
	// What failed is not tried again because of its own traces: a sandbox that
	// could not be made comes and goes too.
	waits := w != nil && w.state == syncing && time.Now().Before(w.failed.again)
	n.mu.Unlock()
	if w != nil && !waits {
		w.poke()
	}
}

// add starts a worker, unless there is one of its UID.
func (n *Node) add(ctx context.Context, w *worker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.workers[w.uid] == nil {
		n.begin(ctx, w)
	}
}

// begin starts a worker in the place of none. Node.mu is held.
func (n *Node) begin(ctx context.Context, w *worker) {
	n.count++
	w.turn, w.wake = n.count, make(chan struct{}, 1)
	n.workers[w.uid] = w
	n.works.Go(func() { n.work(ctx, w) })
}

// keepHouse ends, now and then, what no source names. Before all sources have
// spoken nothing is touched: the pod may be one of a source that is late.
func (n *Node) keepHouse(ctx context.Context) {
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		if err := n.clean(ctx); err != nil && ctx.Err() == nil {
			n.conf.Log.Warn("housekeeping not complete: what no source names is removed at the next try", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Node) clean(ctx context.Context) error {
	if !n.Heard() {
		return nil
	}
	n.endUnclaimed()
	pods, err := n.conf.Runtime.List(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		n.add(ctx, orphan(p.UID, p.Namespace, p.Name))
	}
	// Folders of pods of which the runtime knows nothing any more.
	dirs, err := os.ReadDir(n.conf.PodDir)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("list the pods' folders: %w", err)
	}
	for _, d := range dirs {
		n.add(ctx, orphan(types.UID(d.Name()), "", ""))
	}
	if err := n.conf.Runtime.SweepLogs(n.knows); err != nil {
		return fmt.Errorf("log folders: %w", err)
	}
	return nil
}

func (n *Node) knows(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.workers[uid] != nil
}

// Heard tells that every source has spoken, and that its pods have workers.
func (n *Node) Heard() bool {
	n.mu.Lock()
	seen := make(map[string]bool, len(n.seen))
	for s := range n.seen {
		seen[s] = true
	}
	n.mu.Unlock()
	return n.conf.Sources.SeenAllSources(seen)
}

func (n *Node) dropCheckpoint(uid types.UID) {
	if n.conf.Checkpoints == nil {
		return
	}
	if err := n.conf.Checkpoints.Drop(uid); err != nil {
		n.conf.Log.Warn("checkpoint of an ended pod not removed: a restart takes it for one that is to run", "uid", uid, "err", err)
	}
}

// endUnclaimed ends the pods that were found at the start and that no source
// has named.
func (n *Node) endUnclaimed() {
	n.keeping.Lock()
	defer n.keeping.Unlock()
	n.mu.Lock()
	var ended []*worker
	for _, w := range n.workers {
		if w.state == adopted || w.restored {
			w.gone, w.restored = true, false
			w.end()
			ended = append(ended, w)
		}
	}
	n.mu.Unlock()
	for _, w := range ended {
		n.dropCheckpoint(w.uid)
		n.conf.Log.Info("pod is ended: no source names it", "pod", w.name.String(), "uid", w.uid)
		w.poke()
	}
}
