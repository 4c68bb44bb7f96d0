// Package api reads the ConfigMaps and Secrets that a node's pods name from the
// API server, one by one: a node may see no others. It issues the tokens of
// their service accounts too. It must not know what anybody does with them.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/node/apiserver"
	"github.com/fairlead/fairlead/internal/node/object"
)

// Config says which server.
type Config struct {
	Server *rest.Config
	Log    *slog.Logger
}

// Store watches what pods name, each object by its name, as long as one does.
// It keeps what the server said last while that cannot be reached.
type Store struct {
	cfg    Config
	client *apiserver.Client
	wake   chan struct{}

	mu     sync.Mutex
	held   map[types.UID][]object.Ref
	known  map[object.Ref]*entry
	tokens map[request]issued
}

// entry is one object that is held.
type entry struct {
	heard bool // the server has answered once
	value any  // *v1.ConfigMap or *v1.Secret; nil when it is not there
	err   error
	stop  context.CancelFunc // nil before it is watched
}

// New asks nothing yet.
func New(cfg Config) (*Store, error) {
	client, err := apiserver.New(cfg.Server, authentication.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Store{
		cfg: cfg, client: client, wake: make(chan struct{}, 1),
		held: map[types.UID][]object.Ref{}, known: map[object.Ref]*entry{}, tokens: map[request]issued{},
	}, nil
}

// ConfigMap is the last that the server told.
func (s *Store) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	o, err := s.object(object.Ref{Kind: object.ConfigMap, Namespace: namespace, Name: name})
	m, _ := o.(*v1.ConfigMap)
	return m, err
}

// Secret is the last that the server told.
func (s *Store) Secret(namespace, name string) (*v1.Secret, error) {
	o, err := s.object(object.Ref{Kind: object.Secret, Namespace: namespace, Name: name})
	out, _ := o.(*v1.Secret)
	return out, err
}

func (s *Store) object(r object.Ref) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := s.known[r]; {
	case e == nil:
		return nil, fmt.Errorf("%s %w", r, object.ErrNotHeld)
	case e.value != nil:
		return e.value, nil
	case e.heard:
		return nil, r.Missing("the API server has none")
	case e.err != nil:
		return nil, fmt.Errorf("%s %w: %w", r, object.ErrUnknown, e.err)
	}
	return nil, fmt.Errorf("%s %w: the API server is being asked", r, object.ErrUnknown)
}

// Hold begins to watch what a pod names, and ends what none names any more.
func (s *Store) Hold(uid types.UID, refs []object.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[uid] = refs; len(refs) == 0 {
		delete(s.held, uid)
	}
	if refs == nil {
		s.forget(uid)
	}
	wanted := s.wanted()
	for r, e := range s.known {
		if wanted[r] {
			continue
		}
		if e.stop != nil {
			e.stop()
		}
		delete(s.known, r)
	}
	for r := range wanted {
		if s.known[r] == nil {
			s.known[r] = &entry{}
			s.poke()
		}
	}
}

// wanted are all that are held. s.mu is held.
func (s *Store) wanted() map[object.Ref]bool {
	out := map[object.Ref]bool{}
	for _, all := range s.held {
		for _, r := range all {
			out[r] = true
		}
	}
	return out
}

func (s *Store) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // a look is due already
	}
}

// Follow watches what is held.
func (s *Store) Follow(ctx context.Context, changed func(object.Ref)) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for r, e := range s.idle() {
			one, stop := context.WithCancel(ctx)
			s.mu.Lock()
			e.stop = stop
			gone := s.known[r] != e
			s.mu.Unlock()
			if gone { // between the two looks
				stop()
			}
			watches.Go(func() { s.watch(one, r, e, changed) })
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
	}
}

// idle are those that are held and not watched yet.
func (s *Store) idle() map[object.Ref]*entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[object.Ref]*entry{}
	for r, e := range s.known {
		if e.stop == nil {
			out[r] = e
		}
	}
	return out
}

// watch lists and watches one object until ctx ends.
func (s *Store) watch(ctx context.Context, r object.Ref, e *entry, changed func(object.Ref)) {
	l := apiserver.List{Resource: r.Kind + "s", Kind: &v1.ConfigMap{}, Namespace: r.Namespace, Only: fields.OneTermEqualSelector("metadata.name", r.Name)}
	if r.Kind == object.Secret {
		l.Kind = &v1.Secret{}
	}
	// The error is that of ctx: nothing else ends it.
	_ = s.client.Follow(ctx, l, func(all []any) { s.take(r, e, all, changed) }, func(err error) { s.note(r, e, err, changed) })
}

// take keeps what the server has under the name: one object or none.
func (s *Store) take(r object.Ref, e *entry, all []any, changed func(object.Ref)) {
	s.mu.Lock()
	e.heard, e.value = true, nil
	if len(all) > 0 {
		e.value = all[0]
	}
	s.mu.Unlock()
	changed(r)
}

// note keeps the outcome of a request; it is logged when it changes.
func (s *Store) note(r object.Ref, e *entry, err error, changed func(object.Ref)) {
	s.mu.Lock()
	was, heard := e.err, e.heard
	e.err = err
	s.mu.Unlock()
	switch {
	case err != nil && (was == nil || was.Error() != err.Error()):
		s.cfg.Log.Warn("an object cannot be read from the API server; what is known of it stays", "object", r.String(), "err", err)
		if !heard {
			changed(r) // pods say why they wait
		}
	case err == nil && was != nil:
		s.cfg.Log.Info("an object is read from the API server again", "object", r.String())
	}
}
