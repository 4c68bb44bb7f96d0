package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/flowcontrol"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster/condition"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

// Owners of what is applied. A manager owns all that its last apply names, so
// annotation and conditions, which are written apart, have one each.
const (
	statusManager    = "fairlead"
	conditionManager = "fairlead-conditions"
)

// Writes that one agent may send: a storm of pods writes one status each, and
// what is beyond waits here and not in the server's queues.
const (
	writeQPS   = 100 // per second, in the long run
	writeBurst = 200
)

const (
	writers    = 4                // pods that are written at the same time
	writeLimit = 10 * time.Second // one write
	// unchecked: the server need not parse a body once more to warn of fields
	// that it does not know. Bodies are made from types of this package.
	unchecked = metav1.FieldValidationIgnore
	// Pauses between two attempts for one pod, the longest but for a quarter.
	firstWritePause, longestWritePause = 500 * time.Millisecond, 15 * time.Second
)

// Publisher tells the cluster what the journal says of this node's pods: the
// annotation network-status, conditions and events. It is level-triggered: for
// each pod that changed here or there it compares what is with what should be,
// and writes the difference, until it is none or the pod is gone. Over a restart the
// journal is remembered, and what conditions said.
type Publisher struct {
	src    *Source
	held   func(core.Pod) []Held
	log    *slog.Logger
	queue  *retry.Queue[id]
	bucket flowcontrol.RateLimiter
	events *events
	book   *condition.Book // how conditions should be

	mu         sync.Mutex // guards the rest
	written    map[id]written
	conditions map[id]conditions
	failing    map[id]error
}

var _ core.Notices = (*Publisher)(nil)

// written is what was written to a pod and may not have come back yet.
type written struct {
	uid  string
	text string
	rv   string // resourceVersion that the write made
	// backs is how often the server's database was an older one by then.
	backs int
}

// Held is what a pod's sandbox has of networks, complete and not about to go.
type Held struct {
	Container, UID string      // of the sandbox, and of its pod where the runtime said it
	Called         core.Moment // its ADD
	Nets           []core.Net
}

// NewPublisher makes the publisher of a source's pods. held gives what the
// journal has of a pod, by namespace and name; it is called from several
// goroutines, for each change of a pod. file keeps what conditions say over a restart. Call
// it before the source runs, and Run once.
func NewPublisher(src *Source, held func(core.Pod) []Held, file string) *Publisher {
	p := &Publisher{
		src: src, held: held, log: src.Log, events: newEvents(src),
		bucket:  flowcontrol.NewTokenBucketRateLimiter(writeQPS, writeBurst),
		queue:   retry.NewQueue[id](firstWritePause, longestWritePause),
		written: map[id]written{}, conditions: map[id]conditions{}, failing: map[id]error{},
	}
	var err error
	if p.book, err = condition.Open(file); err != nil {
		p.log.Warn("what pods were told in conditions before this start is not known", "err", err)
	}
	src.mu.Lock()
	defer src.mu.Unlock()
	src.publisher = func(i id) { p.queue.Add(i) }
	return p
}

// Run writes until ctx ends; what is under way is finished or given up with it.
func (p *Publisher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.events.Run(ctx) })
	p.queue.Run(ctx, writers, p.update)
}

// Attached implements core.Notices.
func (p *Publisher) Attached(r core.Record) {
	if r.Pod.IsZero() {
		return
	}
	p.queue.Add(idOf(r.Pod))
	p.events.attached(r)
}

// Detached implements core.Notices: what remains of the pod's networks is told,
// if anything does.
func (p *Publisher) Detached(r core.Record) {
	if r.Pod.IsZero() {
		return
	}
	p.queue.Add(idOf(r.Pod))
	if r.Phase == core.Added { // the pod runs on, without these networks
		p.events.detached(r)
	}
}

// Failed implements core.Notices.
func (p *Publisher) Failed(a core.Attempt) {
	if (a.Op == core.Add || a.Op == core.HotPlug) && !a.Pod.IsZero() {
		p.events.failed(a)
	}
}

func idOf(p core.Pod) id { return id{Namespace: p.Namespace, Name: p.Name} }

// Problems lists the pods to which nothing can be written.
func (p *Publisher) Problems() []resolve.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []resolve.Problem
	for i, err := range p.failing {
		out = append(out, resolve.Problem{File: "Pod " + i.String(), Reason: "network-status is not published: " + err.Error()})
	}
	return out
}

// update brings one pod up to date.
func (p *Publisher) update(ctx context.Context, i id) error {
	err := p.reconcile(ctx, i)
	if ctx.Err() != nil {
		err = nil // the end, which is no failure
	}
	p.settle(i, err)
	return err
}

// settle notes the outcome, and logs a failure when it begins.
func (p *Publisher) settle(i id, err error) {
	p.mu.Lock()
	_, was := p.failing[i]
	if err == nil {
		delete(p.failing, i)
	} else {
		p.failing[i] = err
	}
	p.mu.Unlock()
	if err != nil && !was && !errors.Is(err, core.ErrUnavailable) {
		p.log.Warn("pod's status not published yet", "pod", i.String(), "err", err)
	}
}

// reconcile writes what differs. A pod that is not known is gone, or comes: then
// the watch calls again.
func (p *Publisher) reconcile(ctx context.Context, i id) error {
	have, ok := p.src.pods.get(i)
	if !ok {
		if p.src.pods.isSynced() {
			p.forget(i)
		}
		return nil
	}
	var errs []error
	if text := p.wanted(i, have); text != "" && text != have.notes[v1.AnnStatus] && !p.pending(i, have, text) {
		errs = append(errs, p.writeStatus(ctx, i, have.uid, text))
	}
	return errors.Join(append(errs, p.writeConditions(ctx, i, have))...)
}

func (p *Publisher) forget(i id) {
	p.mu.Lock()
	delete(p.written, i)
	delete(p.conditions, i)
	p.mu.Unlock()
	if p.book.Forget(core.Pod{Namespace: i.Namespace, Name: i.Name}) {
		p.keepConditions()
	}
}

// wanted is the annotation's text; "" while there is nothing to say. It is about
// the pod's newest sandbox: an older one may still wait for its DEL.
func (p *Publisher) wanted(i id, have pod) string {
	held := slices.DeleteFunc(p.held(core.Pod{Namespace: i.Namespace, Name: i.Name}), func(h Held) bool { return !have.is(h.UID) })
	slices.SortStableFunc(held, func(a, b Held) int { return a.Called.Compare(b.Called) })
	var nets []core.Net
	for _, h := range held {
		if h.Container == held[len(held)-1].Container {
			nets = append(nets, h.Nets...)
		}
	}
	if len(nets) == 0 {
		return ""
	}
	text, err := json.MarshalIndent(nets, "", "    ")
	if err != nil {
		p.log.Error("network-status cannot be written as JSON", "pod", i.String(), "err", err)
		return ""
	}
	return string(text)
}

// pending tells that the text was written and that what is known is older than
// that: the watch will bring it, and call again.
func (p *Publisher) pending(i id, have pod, text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.written[i]
	if !ok || w.uid != have.uid || w.text != text || w.backs != p.src.revisions.Backs() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(have.rv, w.rv)
	return err == nil && order < 0
}

// writeStatus applies the annotation to the pod of a UID.
func (p *Publisher) writeStatus(ctx context.Context, i id, uid, text string) error {
	body := podPatch(i, uid)
	body.Metadata.Annotations = map[string]string{v1.AnnStatus: text}
	backs := p.src.revisions.Backs()
	rv, err := p.apply(ctx, i, body, statusManager)
	if err != nil || rv == "" {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written[i] = written{uid: uid, text: text, rv: rv, backs: backs}
	return nil
}

// patch is the part of a pod that is applied.
type patch struct {
	metav1.TypeMeta
	Metadata struct {
		Namespace   string            `json:"namespace"`
		Name        string            `json:"name"`
		UID         string            `json:"uid"` // the server refuses it for a successor of the pod
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status *patchStatus `json:"status,omitempty"`
}

type patchStatus struct {
	Conditions []condition.Condition `json:"conditions"`
}

func podPatch(i id, uid string) patch {
	p := patch{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	p.Metadata.Namespace, p.Metadata.Name, p.Metadata.UID = i.Namespace, i.Name, uid
	return p
}

// apply applies a patch to pods/status, where the agent's rights end, and gives
// the resourceVersion that it made; "" when there is no such pod any more.
func (p *Publisher) apply(ctx context.Context, i id, body patch, manager string) (string, error) {
	c := p.src.clients.Load()
	if c == nil {
		return "", p.src.unreachable(nil)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return "", fmt.Errorf("apply pod %s: %w", i, err)
	}
	if err := p.bucket.Wait(ctx); err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	force := true
	out, err := c.meta.Resource(podResource).Namespace(i.Namespace).Patch(ctx, i.Name, types.ApplyPatchType, raw,
		metav1.PatchOptions{FieldManager: manager, Force: &force, FieldValidation: unchecked}, "status")
	p.src.health.Note(err)
	p.src.denied.Note("pods/status", err)
	switch {
	case err == nil:
		return out.ResourceVersion, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Gone, or replaced by a pod of another UID, which the watch will tell.
		return "", nil
	case !login.Refused(err):
		return "", p.src.unreachable(err)
	}
	return "", fmt.Errorf("apply pod %s: %w", i, err)
}
