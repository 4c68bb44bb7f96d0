package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

// Reasons of events (spec/multinet.md, rule 10).
const (
	reasonAdded   = "AddedInterface"
	reasonRemoved = "RemovedInterface" // from a pod that runs on
	reasonMissing = "NoNetworkFound"   // a network that does not exist was asked for
	reasonFailed  = "FailedAttachment" // any other failure
)

const (
	// Events are for people: a storm of pods gets its first ones told at once,
	// the rest slowly, and what exceeds the waiting room not at all.
	eventQPS, eventBurst = 5, 50
	eventRoom            = 1000
	eventAttempts        = 5
	eventPause           = 2 * time.Second
	// quietFor is how long the same failure of the same pod is not repeated:
	// kubelet tries again every few seconds.
	quietFor = 10 * time.Minute
	// noteLimit is the API's, in bytes (events.k8s.io/v1).
	noteLimit = 1024
	// reporter is who the events are from.
	reporter = "fairlead"
)

// event is what is sent of an events.k8s.io/v1 Event.
type event struct {
	metav1.TypeMeta
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	EventTime           metav1.MicroTime `json:"eventTime"`
	ReportingController string           `json:"reportingController"`
	ReportingInstance   string           `json:"reportingInstance"`
	Action              string           `json:"action"`
	Reason              string           `json:"reason"`
	Type                string           `json:"type"` // Normal or Warning
	Regarding           regarding        `json:"regarding"`
	Note                string           `json:"note"`
}

// regarding is what an event is about: a pod, or the node.
type regarding struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// events sends events beside all else; one that cannot be sent is lost, which
// is what the API promises of events.
type events struct {
	src    *Source
	queue  chan event
	bucket flowcontrol.RateLimiter

	mu   sync.Mutex // guards the rest
	told map[string]time.Time
	lost int
	last time.Time // of the last event's name, which must be unique
	node string    // what the last event about the node said: a condition and its status
}

func newEvents(src *Source) *events {
	return &events{
		src: src, queue: make(chan event, eventRoom), told: map[string]time.Time{},
		bucket: flowcontrol.NewTokenBucketRateLimiter(eventQPS, eventBurst),
	}
}

// attached tells of one ADD: all its interfaces in one event.
func (e *events) attached(r core.Record) {
	if text := core.NetTexts(r.Statuses); text != "" {
		e.tell(r.Pod, "Normal", reasonAdded, "Added "+text)
	}
}

// detached tells of networks that were taken from a running pod.
func (e *events) detached(r core.Record) {
	if text := core.NetTexts(r.Statuses); text != "" {
		e.tell(r.Pod, "Normal", reasonRemoved, "Removed "+text)
	}
}

// failed tells of an ADD that failed, once per failure.
func (e *events) failed(a core.Attempt) {
	reason := reasonFailed
	if a.NoNetwork {
		reason = reasonMissing
	}
	if e.fresh(a.Pod.String()+"\x00"+a.Pod.UID+"\x00"+a.Error, time.Now()) {
		e.tell(a.Pod, "Warning", reason, fmt.Sprintf("%s (code %d)", a.Error, a.Code))
	}
}

// fresh tells that something was not told lately.
func (e *events) fresh(what string, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for old, at := range e.told {
		if now.Sub(at) > quietFor {
			delete(e.told, old)
		}
	}
	if _, was := e.told[what]; was || len(e.told) >= eventRoom {
		return false
	}
	e.told[what] = now
	return true
}

// Warn tells of a pod what its owner should know, once.
func (p *Publisher) Warn(pod core.Pod, reason, note string) {
	if p.events.fresh(pod.String()+"\x00"+pod.UID+"\x00"+note, time.Now()) {
		p.events.tell(pod, "Warning", reason, note)
	}
}

// WarnSubnet tells of a Subnet what its owner should know, once.
func (p *Publisher) WarnSubnet(name, reason, note string) {
	if s, _ := p.events.src.pools.subnets.get(id{Name: name}); p.events.fresh("Subnet "+name+note, time.Now()) {
		about := regarding{APIVersion: v1.GroupVersion.String(), Kind: "Subnet", Name: name, UID: s.uid}
		p.events.enqueue(metav1.NamespaceDefault, event{Action: "Set", Type: "Warning", Reason: reason, Note: note, Regarding: about})
	}
}

// WarnNode tells of the node itself what its owner should know, once in a while.
func (p *Publisher) WarnNode(reason, note string) {
	if p.events.fresh("Node"+note, time.Now()) {
		about := regarding{APIVersion: "v1", Kind: "Node", Name: p.events.src.Node, UID: p.events.src.Node}
		p.events.enqueue(metav1.NamespaceDefault, event{Action: "Set", Type: "Warning", Reason: reason, Note: note, Regarding: about})
	}
}

func (e *events) tell(p core.Pod, kind, reason, note string) {
	if p.UID == "" || staticUID.MatchString(p.UID) { // describe finds events by the API's UID
		if known, ok := e.src.pods.get(idOf(p)); ok {
			p.UID = known.uid
		}
	}
	e.enqueue(p.Namespace, event{
		Action: "Add", Type: kind, Reason: reason, Note: note,
		Regarding: regarding{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	})
}

// condition tells of one of the node that has another status, and once in a while of other
// reasons. Namespace and UID are kubelet's, by which describe finds it.
func (e *events) condition(kind string, told share.Summary) {
	status := kind + "\x00" + told.Status
	fresh := e.fresh(status+"\x00"+told.Message, time.Now())
	e.mu.Lock()
	same := e.node == status
	e.node = status
	e.mu.Unlock()
	if same && !fresh {
		return
	}
	e.enqueue(metav1.NamespaceDefault, event{
		Action: kind, Type: map[string]string{"True": "Warning", "False": "Normal"}[told.Status], Reason: told.Reason, Note: told.Message,
		Regarding: regarding{APIVersion: "v1", Kind: "Node", Name: e.src.Node, UID: e.src.Node},
	})
}

func (e *events) enqueue(namespace string, v event) {
	v.TypeMeta = metav1.TypeMeta{APIVersion: eventResource.GroupVersion().String(), Kind: "Event"}
	v.Note = core.Clip(e.src.Shell.In(v.Note), noteLimit)
	v.ReportingController, v.ReportingInstance = reporter, e.src.Node
	v.EventTime = metav1.NewMicroTime(e.stamp())
	v.Metadata.Namespace, v.Metadata.Name = namespace, fmt.Sprintf("%.230s.%x", v.Regarding.Name, v.EventTime.UnixMicro())
	select {
	case e.queue <- v:
	default:
		e.mu.Lock()
		e.lost++
		e.mu.Unlock()
	}
}

// stamp is the time, at least a microsecond after the last one.
func (e *events) stamp() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now().Truncate(time.Microsecond)
	if !now.After(e.last) {
		now = e.last.Add(time.Microsecond)
	}
	e.last = now
	return now
}

// run sends until ctx ends.
func (e *events) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-e.queue:
			if e.bucket.Wait(ctx) != nil {
				return
			}
			e.send(ctx, v)
		}
	}
}

// send tries some times; a refusal is final.
func (e *events) send(ctx context.Context, v event) {
	for range eventAttempts {
		err := e.post(ctx, v)
		if err == nil || login.Refused(err) || !retry.Sleep(ctx, eventPause) {
			break
		}
	}
	e.mu.Lock()
	lost := e.lost
	e.lost = 0
	e.mu.Unlock()
	if lost > 0 {
		e.src.Log.Warn("events dropped: more came than may be sent", "events", lost)
	}
}

func (e *events) post(ctx context.Context, v event) error {
	c := e.src.clients.Load()
	if c == nil {
		return e.src.unreachable(nil)
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	err := c.create(ctx, eventResource, v.Metadata.Namespace, v)
	e.src.denied.Note("events", err)
	return err
}
