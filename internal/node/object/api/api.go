// Package api reads the ConfigMaps and Secrets that a node's pods name from the
// API server, one by one: a node may see no others. It issues the tokens of
// their service accounts too. It must not know what anybody does with them.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/fairlead/fairlead/internal/node/object"
)

// Pauses between two attempts, and after which time of calm they are short
// again.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 8 * time.Second
	calm         = time.Minute
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
	client rest.Interface
	codec  runtime.ParameterCodec
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
	c := rest.CopyConfig(cfg.Server)
	c.GroupVersion, c.APIPath = &v1.SchemeGroupVersion, "/api"
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, authentication.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("objects of the API server: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion)
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", c.Host, err)
	}
	return &Store{
		cfg: cfg, client: client, codec: runtime.NewParameterCodec(scheme), wake: make(chan struct{}, 1),
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
	silent := logr.Discard() // what the reflector would log is told by note
	ctx = logr.NewContext(ctx, silent)
	store := cache.NewUndeltaStore(func(all []any) { s.take(ctx, r, e, all, changed) }, cache.MetaNamespaceKeyFunc)
	pauses := wait.Backoff{Duration: firstPause, Cap: longestPause, Steps: 10, Factor: 2, Jitter: 0.5}
	var kind runtime.Object = &v1.ConfigMap{}
	if r.Kind == object.Secret {
		kind = &v1.Secret{}
	}
	reflector := cache.NewReflectorWithOptions(s.list(r, e, changed), kind, store, cache.ReflectorOptions{
		Logger: &silent, Name: r.String(), TypeDescription: r.Kind, Backoff: &pauses})
	// The error is that of ctx: nothing else ends it.
	_ = pauses.DelayWithReset(clock.RealClock{}, calm).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_ = reflector.ListAndWatchWithContext(ctx) // note has heard it
		return false, nil
	})
}

// take keeps what the server has under the name: one object or none.
func (s *Store) take(ctx context.Context, r object.Ref, e *entry, all []any, changed func(object.Ref)) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	e.heard, e.value = true, nil
	if len(all) > 0 {
		e.value = all[0]
	}
	s.mu.Unlock()
	changed(r)
}

// note keeps the outcome of a request; it is logged when it changes.
func (s *Store) note(ctx context.Context, r object.Ref, e *entry, err error, changed func(object.Ref)) {
	if ctx.Err() != nil {
		return
	}
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

// list asks for one object by its name.
func (s *Store) list(r object.Ref, e *entry, changed func(object.Ref)) *cache.ListWatch {
	only := fields.OneTermEqualSelector("metadata.name", r.Name).String()
	ask := func(o *metav1.ListOptions) *rest.Request {
		o.FieldSelector = only
		return s.client.Get().Namespace(r.Namespace).Resource(r.Kind+"s").VersionedParams(o, s.codec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			var list runtime.Object = &v1.ConfigMapList{}
			if r.Kind == object.Secret {
				list = &v1.SecretList{}
			}
			err := ask(&o).Do(ctx).Into(list)
			s.note(ctx, r, e, err, changed)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := ask(&o).Watch(ctx)
			s.note(ctx, r, e, err, changed)
			return w, err
		},
	}
}
