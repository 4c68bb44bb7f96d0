package report

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/fairlead/fairlead/internal/core"
)

// component is who events are from; their host is the node.
const component = "fairlead-node"

// Bounds of events: how many may wait for the node to be known, and how long
// the text of one may be, in bytes (as in events.k8s.io/v1).
const (
	eventRoom   = 1000
	eventLength = 1024
)

// Event is something that people want to know of a pod.
type Event struct {
	Pod       *v1.Pod
	Static    bool
	Container string // its name; "" when it is about the pod
	Type      string // Normal or Warning
	Reason    string
	Message   string
}

// Tell writes an event, beside all else. It never blocks: of more than wait,
// and of what the server refuses, nothing is heard, which is what the API
// promises of events.
func (r *Reporter) Tell(e Event) {
	select {
	case r.events <- e:
	default:
	}
}

// keepEvents writes events until ctx ends. client-go counts the same one
// instead of repeating it, puts many alike together, and lets one pod have 25 at
// once and one every 5 minutes from then on.
func (r *Reporter) keepEvents(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.known:
	}
	// What the broadcaster would log is told by note.
	quiet := logr.NewContext(ctx, logr.Discard())
	broadcaster := record.NewBroadcaster(record.WithContext(quiet))
	defer broadcaster.Shutdown()
	defer broadcaster.StartRecordingToSink(r.sink(ctx)).Stop()
	recorder := broadcaster.NewRecorder(runtime.NewScheme(), v1.EventSource{Component: component, Host: r.conf.Node})
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.events:
			recorder.Event(reference(&e), e.Type, e.Reason, core.Clip(e.Message, eventLength))
		}
	}
}

// reference is what `kubectl describe` finds events by: of a mirror pod, it is
// the UID of the static pod that it stands for.
func reference(e *Event) *v1.ObjectReference {
	out := &v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: e.Pod.Namespace, Name: e.Pod.Name, UID: e.Pod.UID, ResourceVersion: e.Pod.ResourceVersion,
	}
	if hash := e.Pod.Annotations[hashKey]; e.Static && hash != "" {
		out.UID = types.UID(hash)
	}
	if e.Container != "" {
		out.FieldPath = fmt.Sprintf("spec.%s{%s}", fieldOf(&e.Pod.Spec, e.Container), e.Container)
	}
	return out
}

// fieldOf is the list that a container is in.
func fieldOf(s *v1.PodSpec, container string) string {
	for i := range s.InitContainers {
		if s.InitContainers[i].Name == container {
			return "initContainers"
		}
	}
	for i := range s.EphemeralContainers {
		if s.EphemeralContainers[i].Name == container {
			return "ephemeralContainers"
		}
	}
	return "containers"
}

// sink is a record.EventSink, whose calls have no context of their own.
type sink struct {
	create func(*v1.Event) (*v1.Event, error)
	patch  func(*v1.Event, []byte) (*v1.Event, error)
}

func (r *Reporter) sink(ctx context.Context) *sink {
	return &sink{
		create: func(e *v1.Event) (*v1.Event, error) {
			made, err := r.client.createEvent(ctx, e)
			r.note.tell("events of namespace "+e.Namespace, err)
			return made, err
		},
		patch: func(e *v1.Event, patch []byte) (*v1.Event, error) {
			return r.client.patchEvent(ctx, e, patch) // one that has gone is made anew
		},
	}
}

// Create makes an event.
func (s *sink) Create(e *v1.Event) (*v1.Event, error) { return s.create(e) }

// Update is never asked for: what is counted is patched.
func (s *sink) Update(e *v1.Event) (*v1.Event, error) { return s.create(e) }

// Patch counts one more of an event.
func (s *sink) Patch(e *v1.Event, patch []byte) (*v1.Event, error) { return s.patch(e, patch) }
