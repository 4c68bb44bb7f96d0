package cluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/event"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

// Reasons of events (spec/multinet.md, rule 10); a failure that has a reason of its own
// (spec/sriov.md, Errors) is told by that.
const (
	reasonAdded   = "AddedInterface"
	reasonRemoved = "RemovedInterface" // from a pod that runs on
	reasonMissing = "NoNetworkFound"   // a network that does not exist was asked for
	reasonFailed  = "FailedAttachment" // any other failure
)

// events say what is told of pods, Subnets and the node.
type events struct {
	*event.Teller

	src *Source

	mu   sync.Mutex
	node string // what the last event about the node said: a condition and its status
}

func newEvents(src *Source) *events {
	return &events{src: src, Teller: event.New(event.Config{Node: src.Node, Note: src.Shell.In, Post: src.post, Log: src.Log})}
}

// post sends one event.
func (s *Source) post(ctx context.Context, namespace string, e event.Event) error {
	c := s.clients.Load()
	if c == nil {
		return s.unreachable(nil)
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	err := c.create(ctx, eventResource, namespace, e)
	s.denied.Note("events", err)
	return err
}

// attached tells of one ADD: all its interfaces in one event.
func (e *events) attached(r core.Record) {
	if text := core.NetTexts(r.Statuses); text != "" {
		e.tell(r.Pod, event.Normal, reasonAdded, "Added "+text)
	}
}

// detached tells of networks that were taken from a running pod.
func (e *events) detached(r core.Record) {
	if text := core.NetTexts(r.Statuses); text != "" {
		e.tell(r.Pod, event.Normal, reasonRemoved, "Removed "+text)
	}
}

// failed tells of an ADD that failed, once per failure.
func (e *events) failed(a core.Attempt) {
	reason := cmp.Or(a.Reason, reasonFailed)
	if a.NoNetwork {
		reason = reasonMissing
	}
	if e.Fresh(a.Pod.String() + "\x00" + a.Pod.UID + "\x00" + a.Error) {
		e.tell(a.Pod, event.Warning, reason, fmt.Sprintf("%s (code %d)", a.Error, a.Code))
	}
}

// Warn tells of a pod what its owner should know, once.
func (p *Publisher) Warn(pod core.Pod, reason, note string) {
	if p.events.Fresh(pod.String() + "\x00" + pod.UID + "\x00" + note) {
		p.events.tell(pod, event.Warning, reason, note)
	}
}

// WarnObject tells of an object of a namespace what its owner should know, once.
func (p *Publisher) WarnObject(about event.Regarding, reason, note string) {
	p.warn(about.Namespace, about, reason, note)
}

// WarnSubnet tells of a Subnet what its owner should know, once.
func (p *Publisher) WarnSubnet(name, reason, note string) {
	s, _ := p.events.src.pools.subnets.get(id{Name: name})
	p.warn(metav1.NamespaceDefault, event.Regarding{APIVersion: v1.GroupVersion.String(), Kind: "Subnet", Name: name, UID: s.uid}, reason, note)
}

// WarnNode tells of the node itself what its owner should know, once in a while.
func (p *Publisher) WarnNode(reason, note string) {
	p.warn(metav1.NamespaceDefault, event.Regarding{APIVersion: "v1", Kind: "Node", Name: p.events.src.Node, UID: p.events.src.Node}, reason, note)
}

func (p *Publisher) warn(namespace string, about event.Regarding, reason, note string) {
	if p.events.Fresh(about.Kind + " " + about.Namespace + "/" + about.Name + "\x00" + about.UID + "\x00" + note) {
		p.events.Tell(namespace, event.Event{Action: "Set", Type: event.Warning, Reason: reason, Note: note, Regarding: about})
	}
}

func (e *events) tell(p core.Pod, kind, reason, note string) {
	if p.UID == "" || staticUID.MatchString(p.UID) { // describe finds events by the API's UID
		if known, ok := e.src.pods.get(idOf(p)); ok {
			p.UID = known.uid
		}
	}
	e.Tell(p.Namespace, event.Event{
		Action: "Add", Type: kind, Reason: reason, Note: note,
		Regarding: event.Regarding{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	})
}

// condition tells of one of the node that has another status, and once in a while of other
// reasons. Namespace and UID are kubelet's, by which describe finds it.
func (e *events) condition(kind string, told share.Summary) {
	status := kind + "\x00" + told.Status
	fresh := e.Fresh(status + "\x00" + told.Message)
	e.mu.Lock()
	same := e.node == status
	e.node = status
	e.mu.Unlock()
	if same && !fresh {
		return
	}
	e.Tell(metav1.NamespaceDefault, event.Event{
		Action: kind, Type: map[string]string{"True": event.Warning, "False": event.Normal}[told.Status], Reason: told.Reason, Note: told.Message,
		Regarding: event.Regarding{APIVersion: "v1", Kind: "Node", Name: e.src.Node, UID: e.src.Node},
	})
}
