package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

// nadPatience covers the lag of a watch: a NAD is often made by the same
// `kubectl apply` as the pod that names it.
const nadPatience = 1500 * time.Millisecond

// Source serves what the API server says. All methods may be called at the
// same time, and before Run: everything is unavailable then.
type Source struct {
	Config
	health *health.Health
	// revisions are the Nodes'.
	revisions health.Revisions
	denied    login.Denials
	clients   atomic.Pointer[clients]
	pods      *mirror[pod]
	nads      *mirror[nad]
	pools     *pools
	dra       *nodeSlices
	nodes     *mirror[share.Node]
	self      *mirror[self]
	Logins    *login.Logins

	complete chan struct{} // closed when every kind is known
	whole    func()        // called then
	gone     func()        // called when a pod is no more
	once     sync.Once     // closes it

	mu        sync.Mutex // guards the two below
	watchers  []func(core.Pod)
	publisher func(id)
}

// New makes a source; Run connects it.
func New(c Config) *Source {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{Config: c, health: health.New(c.Log), pools: newPools(c.Log), dra: newNodeSlices(), complete: make(chan struct{}), whole: func() {}, gone: func() {}, Logins: login.New(c)}
	s.nodes = newMirror("nodes", func(o metav1.Object) share.Node { return share.ReadNode(o.GetAnnotations()) }, s.nodeHeard)
	s.self = newMirror("nodes", readSelf, func(_ id, was, now *self) {
		if was == nil || now == nil || !reflect.DeepEqual(was.join, now.join) || !maps.Equal(was.notes, now.notes) {
			s.pools.poke()
		}
	})
	s.pods = newMirror("pods", readPod, s.podHeard)
	s.nads = newMirror("network-attachment-definitions", readNAD, s.nadHeard)
	s.pods.passed, s.nads.passed, s.pools.passed = s.check, s.check, s.check
	alive := func(string) { s.health.Note(nil) }
	s.pods.alive, s.nads.alive, s.pools.subnets.alive, s.pools.vlans.alive = alive, alive, alive, alive
	s.dra.alive = alive
	s.nodes.alive = func(version string) { alive(version); s.revisions.Saw(version) }
	s.self.alive = s.nodes.alive
	return s
}

// nad is what is kept of a NetworkAttachmentDefinition.
type nad struct {
	notes   map[string]string
	config  string
	problem string // why the network cannot be used
}

func readNAD(o metav1.Object) nad {
	n := nad{notes: kept(o.GetAnnotations())}
	var spec struct {
		Config string `json:"config"`
	}
	if raw, ok := o.(*object); ok {
		if err := decode(raw.Spec, &spec); err != nil {
			n.problem = "spec: " + err.Error()
			return n
		}
	}
	n.config = spec.Config
	if strings.TrimSpace(n.config) == "" {
		return n // a file of the node's configuration directory says more
	}
	if _, err := cniconf.ParseChain([]byte(n.config), o.GetName()); err != nil {
		n.problem = "spec.config: " + err.Error()
	}
	return n
}

func (n nad) answer(i id) *resolve.NAD {
	return &resolve.NAD{Namespace: i.Namespace, Name: i.Name, Annotations: n.notes, Config: n.config}
}

func (s *Source) nadHeard(i id, before, now *nad) {
	if now != nil && now.problem != "" && (before == nil || before.problem != now.problem) {
		s.Log.Warn("object refused", "object", "NetworkAttachmentDefinition "+i.String(), "reason", now.problem)
	}
}

// NAD implements resolve.Source. One that is not known is awaited for a moment
// and asked for once before it is core.ErrNotFound.
func (s *Source) NAD(ctx context.Context, namespace, name string) (*resolve.NAD, error) {
	i := id{Namespace: namespace, Name: name}
	if n, ok := s.nads.get(i); ok {
		return n.answer(i), nil
	}
	patience := nadPatience
	if !s.nads.isSynced() {
		patience = podPatience
	}
	waiting, stop := s.health.Patient(ctx, patience, downPatience)
	defer stop()
	n, ok := s.nads.await(waiting, i, func(nad) bool { return true })
	if ok {
		return n.answer(i), nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s is not known yet: %w", i, ctx.Err())
	}
	found, err := ask(ctx, s, func(ctx context.Context, c *clients) (*object, error) { return c.object(ctx, nadResource, i) })
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s: %w", i, core.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s: %w", i, err)
	}
	return readNAD(found).answer(i), nil
}

// NADs lists the NetworkAttachmentDefinitions that are known, by namespace and
// name.
func (s *Source) NADs() []resolve.NAD {
	all := s.nads.all()
	out := make([]resolve.NAD, 0, len(all))
	for i, n := range all {
		out = append(out, *n.answer(i))
	}
	slices.SortFunc(out, func(a, b resolve.NAD) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Subnets implements resolve.Source: those in force by name, the built-in one
// included where none is declared as default. Until everything that an ADD may
// ask for was read once, it is core.ErrUnavailable, with the reasons: STATUS
// says the same.
func (s *Source) Subnets(context.Context) ([]core.Subnet, error) {
	if err := s.unsynced(); err != nil {
		return nil, err
	}
	return s.pools.inForce(), nil
}

// check sees whether every kind is known by now.
func (s *Source) check() {
	if !s.isComplete() && s.unsynced() == nil {
		s.once.Do(func() { close(s.complete); s.whole() })
		s.pools.poke() // Subnets has another answer now
	}
}

// Synced is nil once everything that an ADD may ask for was read; otherwise it
// says what is missing and why.
func (s *Source) Synced() error { return s.unsynced() }

// Writable is nil unless the API server refuses what the agent writes: pods'
// status, its Node's, events.
func (s *Source) Writable() error { return s.denied.Err() }

// unsynced is nil once every kind is known.
func (s *Source) unsynced() error {
	err := errors.Join(s.pods.unsynced(), s.nads.unsynced(), s.pools.subnets.unsynced(), s.pools.vlans.unsynced())
	if err == nil {
		return nil
	}
	if down := s.health.Down(); down != nil {
		return fmt.Errorf("objects are not known yet: %w", down)
	}
	return err
}

// Changed gets a value after the Subnets changed; changes that nobody waited
// for are told once.
func (s *Source) Changed() <-chan struct{} { return s.pools.changed }

// Problems lists what is not in force as written, and what cannot be read.
func (s *Source) Problems() []resolve.Problem {
	var out []resolve.Problem
	if err := s.health.Down(); err != nil {
		out = append(out, resolve.Problem{File: "API server", Reason: err.Error()})
	}
	kinds := map[string]error{
		s.pods.kind: s.pods.trouble(), s.nads.kind: s.nads.trouble(),
		s.pools.subnets.kind: s.pools.subnets.trouble(), s.pools.vlans.kind: s.pools.vlans.trouble(),
		s.dra.kind: s.dra.trouble(), s.nodes.kind: errors.Join(s.nodes.trouble(), s.self.trouble()),
	}
	for kind, err := range kinds {
		if login.Refused(err) {
			out = append(out, resolve.Problem{File: kind, Reason: "cannot be watched: " + err.Error()})
		}
	}
	for i, n := range s.nads.all() {
		if n.problem != "" {
			out = append(out, resolve.Problem{File: "NetworkAttachmentDefinition " + i.String(), Reason: n.problem})
		}
	}
	out = append(out, s.pools.refusals()...)
	slices.SortFunc(out, func(a, b resolve.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
