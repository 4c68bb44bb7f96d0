// Package report tells the API server how a node and its pods are: the Node
// object and its lease, pods' statuses, the end of pods that were deleted there,
// and the mirror pods that stand for static ones. It compares what is with what
// the server says and writes the difference, again and again; so nothing is
// lost while the server is away. It runs no pod, and whoever runs them need not
// know of it.
package report

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Periods (kubelet's): all pods are looked at again, the node is, its status is
// written even if nothing changed, its lease is renewed.
const (
	podPeriod   = 10 * time.Second
	nodePeriod  = 10 * time.Second
	nodeReport  = 5 * time.Minute
	leasePeriod = 10 * time.Second
	leaseSpan   = 40 * time.Second
)

// Pod is how one pod is.
type Pod struct {
	// Pod has its status as this node sees it. It is a copy.
	Pod *v1.Pod
	// Version grows with each change of a pod.
	Version uint64
	Static  bool // no object of the API server is behind it
	Gone    bool // its source names it no more
	Ended   bool // nothing of it runs, nor will
}

// Config says what is told, and to whom.
type Config struct {
	Server *rest.Config
	Node   string // its name
	// Addresses of the node; the first is its own.
	Addresses []string
	// Port at which the node answers the API server; 0 is that it does not.
	Port int32
	// Disk is a folder on the file system that pods write to.
	Disk    string
	Version string // ours
	Runtime cri.RuntimeServiceClient
	Log     *slog.Logger
}

// Node is who runs pods.
type Node interface {
	// Reports are all pods of the node.
	Reports() []Pod
	// Heard tells that every source has spoken.
	Heard() bool
}

// Reporter is made by New and lives in Run; its other methods are safe for
// concurrent use.
type Reporter struct {
	conf   Config
	client *client
	poke   chan struct{}
	known  chan struct{} // closed once the node is registered
	events chan Event
	note   teller

	mu      sync.Mutex
	node    types.UID
	labels  map[string]string // of the Node object; nil before it was read
	prefix  string            // of containers' ids, "containerd://"
	pods    map[types.UID]*v1.Pod
	mirrors map[types.NamespacedName]*v1.Pod
	heard   bool
}

// New asks nothing yet.
func New(c Config) (*Reporter, error) {
	api, err := newClient(c.Server)
	if err != nil {
		return nil, err
	}
	return &Reporter{
		conf: c, client: api, poke: make(chan struct{}, 1), known: make(chan struct{}), events: make(chan Event, eventRoom), note: teller{log: c.Log, told: map[string]string{}},
		pods: map[types.UID]*v1.Pod{}, mirrors: map[types.NamespacedName]*v1.Pod{},
	}, nil
}

// Registered is closed once the API server knows the node.
func (r *Reporter) Registered() <-chan struct{} { return r.known }

// Labels are those of the Node object, as last read; false before that.
func (r *Reporter) Labels() (map[string]string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.labels, r.labels != nil
}

// Changed makes a look at all pods due now; it never blocks.
func (r *Reporter) Changed() {
	select {
	case r.poke <- struct{}{}:
	default: // a look is due already
	}
}

// Hear takes the server's list of this node's pods and gives back those that
// are to be run: mirror pods only stand for others.
func (r *Reporter) Hear(pods []*v1.Pod) []*v1.Pod {
	run := make([]*v1.Pod, 0, len(pods))
	r.mu.Lock()
	clear(r.pods)
	clear(r.mirrors)
	r.heard = true
	for _, p := range pods {
		if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
			r.mirrors[nameOf(p)] = p
			continue
		}
		r.pods[p.UID] = p.DeepCopy()
		run = append(run, p)
	}
	r.mu.Unlock()
	r.Changed()
	return run
}

func nameOf(p *v1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// Run reports of a node until ctx ends.
func (r *Reporter) Run(ctx context.Context, of Node) error {
	var all sync.WaitGroup
	all.Go(func() { r.keepNode(ctx) })
	all.Go(func() { r.keepLease(ctx) })
	all.Go(func() { r.keepPods(ctx, of) })
	all.Go(func() { r.keepEvents(ctx) })
	all.Wait()
	return nil
}

// keepPods looks at all pods when one has changed, and now and then.
func (r *Reporter) keepPods(ctx context.Context, of Node) {
	select {
	case <-ctx.Done():
		return
	case <-r.known:
	}
	done := map[types.UID]look{}
	tick := time.NewTicker(podPeriod)
	defer tick.Stop()
	for {
		r.pass(ctx, of, done)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			clear(done)
		case <-r.poke:
		}
	}
}

// look is what was compared last: our version of a pod with an object's.
type look struct {
	version  uint64
	resource string
}

// pass brings the server to what is. Who made done keeps it: pods that did not
// change since are left out. The first answer that does not come ends it.
func (r *Reporter) pass(ctx context.Context, of Node, done map[types.UID]look) {
	heard := of.Heard() // first: what is heard after the pods were read is not among them
	now := of.Reports()
	for i := range now {
		p := &now[i]
		err := r.one(ctx, p, done)
		r.note.tell("pod "+nameOf(p.Pod).String(), err)
		if away(err) {
			return
		}
	}
	if heard {
		r.note.tell("mirror pods", r.dropMirrors(ctx, now))
	}
	present := make(map[types.UID]bool, len(now))
	for i := range now {
		present[now[i].Pod.UID] = true
	}
	for uid := range done {
		if !present[uid] {
			delete(done, uid)
		}
	}
}

// one brings the server to what one pod is.
func (r *Reporter) one(ctx context.Context, p *Pod, done map[types.UID]look) error {
	object, err := r.object(ctx, p)
	if err != nil || object == nil {
		return err
	}
	at := look{p.Version, object.ResourceVersion}
	if done[p.Pod.UID] == at {
		return nil
	}
	if err := r.writeStatus(ctx, p, object); err != nil {
		return err
	}
	if !p.Static && p.Ended && object.DeletionTimestamp != nil {
		if err := r.client.deletePod(ctx, object.Namespace, object.Name, object.UID); !absent(err) {
			return err
		}
	}
	done[p.Pod.UID] = at
	return nil
}

// object is what stands for a pod at the server; nil when nothing does.
func (r *Reporter) object(ctx context.Context, p *Pod) (*v1.Pod, error) {
	if p.Static {
		return r.mirror(ctx, p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pods[p.Pod.UID], nil
}

// absent tells that there is no such object, or another by the same name.
func absent(err error) bool {
	return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}

// away tells an error that is no answer of the server.
func away(err error) bool {
	return err != nil && !errors.As(err, new(apierrors.APIStatus))
}

// teller logs an error once, as long as it lasts.
type teller struct {
	log  *slog.Logger
	mu   sync.Mutex
	told map[string]string
}

func (t *teller) tell(what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, context.Canceled):
	case err == nil:
		if _, was := t.told[what]; was {
			t.log.Info("the API server is told again", "what", what)
			delete(t.told, what)
		}
	case t.told[what] != err.Error():
		t.log.Warn("the API server could not be told", "what", what, "err", err)
		t.told[what] = err.Error()
	}
}
