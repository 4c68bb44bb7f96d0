// Package mux merges what the sources of pods say into one ordered stream of
// changes: each source sends the full list of its pods, the consumer hears what
// was added, updated, asked to end, removed, or only differs in its status.
//
// The rules and their order are kubelet's (pkg/kubelet/config), so that a
// consumer written for one works with the other. It must not know where pods
// come from, nor what is done with them.
package mux

import (
	"context"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Op says what happened to the pods of an Update. The numbers are kubelet's.
type Op int

// What may happen to a pod.
const (
	ADD       Op = iota // new in this source; with no pods: the source has answered
	DELETE              // has a deletion timestamp: is to end gracefully
	REMOVE              // gone from this source
	UPDATE              // spec, labels or annotations differ
	RECONCILE           // only the status differs from what was last heard
)

func (o Op) String() string {
	switch o {
	case ADD:
		return "ADD"
	case DELETE:
		return "DELETE"
	case REMOVE:
		return "REMOVE"
	case UPDATE:
		return "UPDATE"
	case RECONCILE:
		return "RECONCILE"
	}
	return "unknown"
}

// Names of the sources; they are the values of the annotation SourceKey.
const (
	File = "file"
	URL  = "http"
	API  = "api"
)

// Annotations that Mux writes into every pod (kubelet's pkg/kubelet/types).
const (
	SourceKey = "kubernetes.io/config.source" // name of the source
	SeenKey   = "kubernetes.io/config.seen"   // RFC 3339 with nanoseconds: when it was added
)

// waiting is how many updates may wait for the consumer before the sources do.
const waiting = 50

// Update is one change of one source. The pods are copies: the consumer may do
// with them what it likes.
type Update struct {
	Op     Op
	Pods   []*v1.Pod
	Source string
}

// Mux is safe for concurrent use.
type Mux struct {
	log     *slog.Logger
	updates chan Update

	// merging keeps updates in the order in which they were found. It is held
	// while the consumer is waited for, mu never is.
	merging sync.Mutex
	pods    map[string]map[types.UID]*v1.Pod // guarded by merging

	mu       sync.Mutex
	channels map[string]chan []*v1.Pod
	answered map[string]bool
}

// New has no sources yet. What is wrong with a source is told to log.
func New(log *slog.Logger) *Mux {
	return &Mux{
		log:      log,
		updates:  make(chan Update, waiting),
		pods:     map[string]map[types.UID]*v1.Pod{},
		channels: map[string]chan []*v1.Pod{},
		answered: map[string]bool{},
	}
}

// Updates is the stream of changes, in order. It is never closed.
func (m *Mux) Updates() <-chan Update { return m.updates }

// Channel is where a source sends the full list of its pods, each time anew;
// an empty list says that it has none. The lists are merged until ctx ends.
// The same name gives the same channel. The pods sent belong to Mux from then
// on.
func (m *Mux) Channel(ctx context.Context, source string) chan<- []*v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.channels[source]; ok {
		return c
	}
	c := make(chan []*v1.Pod)
	m.channels[source] = c
	go m.listen(ctx, source, c)
	return c
}

func (m *Mux) listen(ctx context.Context, source string, lists <-chan []*v1.Pod) {
	for {
		select {
		case <-ctx.Done():
			return
		case pods := <-lists:
			if m.Set(ctx, source, pods) != nil {
				return // ctx has ended
			}
		}
	}
}

// AllReady tells that every source has sent a list and that what follows from
// it was put into Updates. Before that, a pod that no source names may be one
// of a source that has not spoken yet: nothing may be cleaned up.
func (m *Mux) AllReady() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for source := range m.channels {
		if !m.answered[source] {
			return false
		}
	}
	return true
}

// SeenAllSources is AllReady for a consumer that counts for itself: seen are
// the sources of which it has taken an Update out of the channel.
func (m *Mux) SeenAllSources(seen map[string]bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for source := range m.channels {
		if !m.answered[source] || !seen[source] {
			return false
		}
	}
	return true
}

// Set merges one list of a source and returns when all that follows from it
// was put into Updates. The error is that of ctx.
func (m *Mux) Set(ctx context.Context, source string, pods []*v1.Pod) error {
	m.merging.Lock()
	defer m.merging.Unlock()
	d := m.merge(source, pods)
	first := !m.hasAnswered(source)
	for _, u := range d.inOrder(source, first) {
		select {
		case m.updates <- u:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered[source] = true
	return nil
}

func (m *Mux) hasAnswered(source string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered[source]
}

// diff is what one list changed.
type diff map[Op][]*v1.Pod

// inOrder puts removals first, so that a pod that takes the name of another
// finds it free; the status comes last, since it only repeats what we said. A
// source's first list always makes an Update: it says that the source is there.
func (d diff) inOrder(source string, first bool) []Update {
	var out []Update
	add := func(op Op) {
		u := Update{Op: op, Source: source, Pods: make([]*v1.Pod, 0, len(d[op]))}
		for _, p := range d[op] {
			u.Pods = append(u.Pods, p.DeepCopy())
		}
		out = append(out, u)
	}
	for _, op := range []Op{REMOVE, ADD, UPDATE, DELETE} {
		if len(d[op]) > 0 {
			add(op)
		}
	}
	if first && len(d[ADD])+len(d[UPDATE])+len(d[DELETE]) == 0 {
		add(ADD)
	}
	if len(d[RECONCILE]) > 0 {
		add(RECONCILE)
	}
	return out
}

// merge replaces what is known of a source.
func (m *Mux) merge(source string, list []*v1.Pod) diff {
	d := diff{}
	old, now := m.pods[source], map[types.UID]*v1.Pod{}
	for _, pod := range m.unique(source, list) {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[SourceKey] = source
		known, ok := old[pod.UID]
		if !ok {
			pod.Annotations[SeenKey] = time.Now().Format(time.RFC3339Nano)
			now[pod.UID] = pod
			d[ADD] = append(d[ADD], pod)
			continue
		}
		now[pod.UID] = known
		if op, changed := adopt(known, pod); changed {
			d[op] = append(d[op], known)
		}
	}
	for uid, pod := range old {
		if now[uid] == nil {
			d[REMOVE] = append(d[REMOVE], pod)
		}
	}
	sortByName(d[REMOVE])
	m.pods[source] = now
	return d
}

// unique leaves out pods whose namespace and name another pod of the list has
// already.
func (m *Mux) unique(source string, list []*v1.Pod) []*v1.Pod {
	have := map[types.NamespacedName]bool{}
	out := make([]*v1.Pod, 0, len(list))
	for _, pod := range list {
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		if have[name] {
			m.log.Warn("pod left out: the source names another of this name before it",
				"source", source, "pod", name.String(), "uid", pod.UID)
			continue
		}
		have[name] = true
		out = append(out, pod)
	}
	return out
}
