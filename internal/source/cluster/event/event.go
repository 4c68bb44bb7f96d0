// Package event tells people at the Kubernetes API what befell objects: it queues Events
// (events.k8s.io/v1) and sends them beside all else, a storm's slowly. It does not know
// what it tells.
package event

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

const (
	// Events are for people: a storm of pods gets its first ones told at once,
	// the rest slowly, and what exceeds the waiting room not at all.
	qps, burst = 5, 50
	room       = 1000
	attempts   = 5
	pause      = 2 * time.Second
	// quietFor is how long the same failure of the same pod is not repeated:
	// kubelet tries again every few seconds.
	quietFor = 10 * time.Minute
	// noteLimit is the API's, in bytes (events.k8s.io/v1).
	noteLimit = 1024
	// reporter is who the events are from.
	reporter = "fairlead"
)

// Types of events.
const (
	Normal  = "Normal"
	Warning = "Warning"
)

// Event is what is sent of an events.k8s.io/v1 Event. Whoever tells one fills in Action,
// Reason, Type, Regarding and Note.
type Event struct {
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
	Type                string           `json:"type"`
	Regarding           Regarding        `json:"regarding"`
	Note                string           `json:"note"`
}

// Regarding is what an event is about.
type Regarding struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// Config says who tells, and how an event is sent to a namespace.
type Config struct {
	Node string
	Note func(string) string // how people read a note here
	Post func(ctx context.Context, namespace string, e Event) error
	Log  *slog.Logger
}

// Teller sends events; one that cannot be sent is lost, which is what the API promises of
// events.
type Teller struct {
	cfg    Config
	queue  chan Event
	bucket flowcontrol.RateLimiter

	mu   sync.Mutex // guards the rest
	told map[string]time.Time
	lost int
	last time.Time // of the last event's name, which must be unique
}

// New makes a Teller; Run sends.
func New(c Config) *Teller {
	return &Teller{cfg: c, queue: make(chan Event, room), told: map[string]time.Time{}, bucket: flowcontrol.NewTokenBucketRateLimiter(qps, burst)}
}

// Fresh tells that something was not told lately, and notes that it is now.
func (t *Teller) Fresh(what string) bool {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for old, at := range t.told {
		if now.Sub(at) > quietFor {
			delete(t.told, old)
		}
	}
	if _, was := t.told[what]; was || len(t.told) >= room {
		return false
	}
	t.told[what] = now
	return true
}

// Tell queues an event for a namespace.
func (t *Teller) Tell(namespace string, e Event) {
	e.TypeMeta = metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"}
	e.Note = core.Clip(t.cfg.Note(e.Note), noteLimit)
	e.ReportingController, e.ReportingInstance = reporter, t.cfg.Node
	e.EventTime = metav1.NewMicroTime(t.stamp())
	e.Metadata.Namespace, e.Metadata.Name = namespace, fmt.Sprintf("%.230s.%x", e.Regarding.Name, e.EventTime.UnixMicro())
	select {
	case t.queue <- e:
	default:
		t.mu.Lock()
		t.lost++
		t.mu.Unlock()
	}
}

// stamp is the time, at least a microsecond after the last one.
func (t *Teller) stamp() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now().Truncate(time.Microsecond)
	if !now.After(t.last) {
		now = t.last.Add(time.Microsecond)
	}
	t.last = now
	return now
}

// Run sends until ctx ends.
func (t *Teller) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-t.queue:
			if t.bucket.Wait(ctx) != nil {
				return
			}
			t.send(ctx, e)
		}
	}
}

// send tries some times; a refusal is final.
func (t *Teller) send(ctx context.Context, e Event) {
	for range attempts {
		err := t.cfg.Post(ctx, e.Metadata.Namespace, e)
		if err == nil || login.Refused(err) || !retry.Sleep(ctx, pause) {
			break
		}
	}
	t.mu.Lock()
	lost := t.lost
	t.lost = 0
	t.mu.Unlock()
	if lost > 0 {
		t.cfg.Log.Warn("events dropped: more came than may be sent", "events", lost)
	}
}
