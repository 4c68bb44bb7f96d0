package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

const (
	// podPatience is how long an ADD waits for its pod to become known. Kubelet
	// saw the pod on a watch of its own: ours lags by milliseconds, unless the
	// server is slow or down.
	podPatience = 15 * time.Second
	// downPatience replaces it while the server is known to be away: waiting
	// ADDs take the places of those that could be served from memory.
	downPatience = 3 * time.Second
	// staticPatience is for the mirror of a static pod, which may never come:
	// the static pod may be the API server.
	staticPatience = 2 * time.Second
	// askLimit bounds the one question before something is called absent.
	askLimit = 3 * time.Second
)

const (
	// annConfigHash is on the mirror of a static pod: the UID by which kubelet
	// and the runtime know the pod.
	annConfigHash = "kubernetes.io/config.hash"
	// annApplied repeats an object's whole content.
	annApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// staticUID is kubelet's hash of a static pod's manifest, which it uses as UID.
var staticUID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// pod is what the source keeps in memory of a Pod object.
type pod struct {
	uid   string
	rv    string // resourceVersion
	notes map[string]string
	// controller is the kind of the owner that made the pod.
	controller string
	machine    string // resolve.Pod.Machine
}

func readPod(o metav1.Object) pod {
	p := pod{uid: string(o.GetUID()), rv: o.GetResourceVersion(), notes: kept(o.GetAnnotations())}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.controller, p.machine = owner.Kind, v1.MachineOf(owner)
	}
	return p
}

// kept are a pod's annotations without kubectl's copy of the whole object, which
// only costs memory.
func kept(notes map[string]string) map[string]string {
	if _, has := notes[annApplied]; !has {
		return notes
	}
	notes = maps.Clone(notes)
	delete(notes, annApplied)
	return notes
}

// is tells whether the runtime's UID means this pod.
func (p pod) is(uid string) bool {
	return uid == "" || uid == p.uid || uid == p.notes[annConfigHash]
}

// answer is the pod as resolve wants it: by the runtime's UID, if that is known.
func (p pod) answer(want core.Pod) *resolve.Pod {
	if want.UID == "" {
		want.UID = p.uid
	}
	return &resolve.Pod{Pod: want, Annotations: p.notes, Controller: p.controller, Machine: p.machine}
}

// Pod implements resolve.Source. It waits for a pod that is not known yet, or
// whose name still belongs to a predecessor of another UID, and asks the server
// once before it gives up. core.ErrNotFound: a static pod whose mirror does not
// exist. Code 11: the server knows no such pod. core.ErrUnavailable: nobody
// can tell.
func (s *Source) Pod(ctx context.Context, want core.Pod) (*resolve.Pod, error) {
	i := id{Namespace: want.Namespace, Name: want.Name}
	if p, ok := s.pods.get(i); ok && p.is(want.UID) && s.isComplete() {
		return p.answer(want), nil
	}
	static, patience := staticUID.MatchString(want.UID), podPatience
	if static {
		patience = staticPatience
	}
	waiting, stop := s.health.Patient(ctx, patience, downPatience)
	defer stop()
	p, ok := s.pods.await(waiting, i, func(p pod) bool { return p.is(want.UID) })
	switch {
	case ok:
		s.awaitComplete(waiting)
		return p.answer(want), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("pod %s is not known yet: %w", want, ctx.Err())
	case static:
		return nil, fmt.Errorf("mirror of static pod %s: %w", want, core.ErrNotFound)
	}
	return s.askPod(ctx, want)
}

// Differs implements allocated.Follower. The server is not asked: a change comes by
// the watch, or not at all while that is away.
func (s *Source) Differs(ctx context.Context, want core.Pod, seen map[string]string) error {
	p, ok := s.pods.await(ctx, id{Namespace: want.Namespace, Name: want.Name}, func(p pod) bool { return !p.is(want.UID) || !maps.Equal(p.notes, seen) })
	if !ok {
		return ctx.Err()
	}
	if !p.is(want.UID) {
		return fmt.Errorf("pod %s with UID %s: %w", want, want.UID, core.ErrNotFound)
	}
	return nil
}

// awaitComplete waits until every kind is known, or ctx ends: the first ADD of
// an agent that has just connected has questions beyond its pod.
func (s *Source) awaitComplete(ctx context.Context) {
	select {
	case <-s.complete:
	case <-ctx.Done():
	}
}

func (s *Source) isComplete() bool {
	select {
	case <-s.complete:
		return true
	default:
		return false
	}
}

// Known is what is in memory of a pod; it never waits. Errors are
// core.ErrNotFound, or core.ErrUnavailable while nothing is known at all.
func (s *Source) Known(want core.Pod) (*resolve.Pod, error) {
	p, ok := s.pods.get(id{Namespace: want.Namespace, Name: want.Name})
	if ok && p.is(want.UID) {
		return p.answer(want), nil
	}
	if err := s.pods.unsynced(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("pod %s: %w", want, core.ErrNotFound)
}

// askPod has the last word about a pod that no watch told of.
func (s *Source) askPod(ctx context.Context, want core.Pod) (*resolve.Pod, error) {
	found, err := ask(ctx, s, func(ctx context.Context, c *clients) (*metav1.PartialObjectMetadata, error) {
		return c.pod(ctx, id{Namespace: want.Namespace, Name: want.Name})
	})
	if apierrors.IsNotFound(err) {
		return nil, &core.Error{
			Code: core.CodeTryAgain, Msg: "pod " + want.String() + " is not known to the API server",
			Details: "it was deleted, or the runtime runs a pod that no kubelet of this cluster asked for",
		}
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", want, err)
	}
	p := readPod(found)
	if !p.is(want.UID) {
		return nil, core.Errorf(core.CodeTryAgain, "pod %s: K8S_POD_UID is %q but the API server has UID %q: another pod took the name", want, want.UID, p.uid)
	}
	return p.answer(want), nil
}

// ask puts one question to the server. Whatever is no answer is
// core.ErrUnavailable; a plain "not found" comes as it is.
func ask[T any](ctx context.Context, s *Source, question func(context.Context, *clients) (T, error)) (T, error) {
	var none T
	c := s.clients.Load()
	if c == nil {
		return none, s.unreachable(nil)
	}
	limited, stop := context.WithTimeout(ctx, askLimit)
	defer stop()
	v, err := question(limited, c)
	if ctx.Err() == nil {
		s.health.Note(err)
	}
	if err == nil || apierrors.IsNotFound(err) {
		return v, err
	}
	return none, s.unreachable(err)
}

// unreachable is err, of a question to the API server, as one that wraps
// core.ErrUnavailable; where the server is known to be down, it says since when.
func (s *Source) unreachable(err error) error {
	if down := s.health.Down(); down != nil {
		return down
	}
	if err == nil {
		err = errors.New("no connection was made yet")
	}
	return fmt.Errorf("%w: API server: %w", core.ErrUnavailable, err)
}

// WatchPods has fn called for each pod of this node: when it becomes known and
// when its annotations change, but for those that are written here. Calls must
// not block; they come one at a time.
func (s *Source) WatchPods(fn func(core.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers, fn)
}

// podHeard passes a change of a pod on.
func (s *Source) podHeard(i id, before, now *pod) {
	s.mu.Lock()
	watchers, publisher := s.watchers, s.publisher
	s.mu.Unlock()
	if publisher != nil {
		publisher(i)
	}
	if now == nil || before != nil && before.uid != now.uid {
		s.gone()
	}
	if now == nil || (before != nil && before.uid == now.uid && sameRequests(before.notes, now.notes)) {
		return
	}
	for _, fn := range watchers {
		fn(core.Pod{Namespace: i.Namespace, Name: i.Name, UID: now.uid})
	}
}

// sameRequests compares annotations without our own.
func sameRequests(a, b map[string]string) bool {
	n := 0
	for k, v := range a {
		if k == v1.AnnStatus {
			continue
		}
		if w, has := b[k]; !has || w != v {
			return false
		}
		n++
	}
	if _, has := b[v1.AnnStatus]; has {
		n++
	}
	return n == len(b)
}
