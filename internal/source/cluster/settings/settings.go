// Package settings follows what an API server has of settings that are declared of pods
// by their names: PodNetworks of all namespaces, and labelled ConfigMaps of some. It
// decides nothing.
package settings

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/declared"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

const (
	again    = 2 * time.Second  // after credentials that cannot be used
	audit    = 10 * time.Second // how often credentials are compared with those in use
	patience = 3 * time.Second  // after the start, for what was not read yet
	asking   = 2 * time.Second  // for a StatefulSet
	calm     = time.Second      // after a change, before it is written down
	// absentPause is between two looks for what the server does not have.
	absentPause = 15 * time.Second
)

// Config says which API server is followed.
type Config struct {
	Login func() (login.Login, error)
	// Namespaces are those whose ConfigMaps are read; of Common, which may be one of
	// them, they are about pods of all namespaces.
	Namespaces []string
	Common     string
	// Optional: what nobody lets us read has no objects. Else nothing is known until all
	// of it can be read.
	Optional bool
	// File keeps what was known: an agent that starts while the server is away goes on with
	// it. "": none does.
	File string
	Log  *slog.Logger
}

// Source serves what is known. Of a namespace that is not read it knows no ConfigMaps.
// Its methods may be called at the same time, and before Run.
type Source struct {
	cfg     Config
	now     atomic.Pointer[session]
	changes atomic.Uint64
	index   atomic.Pointer[made]
	ready   chan struct{} // closed when all was read once
	once    sync.Once
	poked   chan struct{} // when something is to be written down
	heard   chan struct{} // when anything is another, a status too
	retold  chan struct{} // when something else is declared
	former  *declared.Index
	late    <-chan time.Time // when nobody waits for the first reading any more

	mu     sync.Mutex
	starts map[string]int // first ordinals, by NAMESPACE/STATEFULSET
}

// known is what is kept between two lives of the agent.
type known struct {
	Read   bool                   `json:"read"` // all of it, once
	Pods   []*v1alpha1.PodNetwork `json:"podNetworks"`
	Maps   []declared.ConfigMap   `json:"configMaps"`
	Starts map[string]int         `json:"starts,omitempty"` // as in Source
}

// made is an Index of what was known after so many changes.
type made struct {
	*declared.Index

	changes uint64
}

// session is what one login follows.
type session struct {
	networks follower
	ours     rest.Interface
	maps     map[string]follower // by namespace
	apps     rest.Interface
}

// follower is one kind, of all namespaces or of one.
type follower struct {
	what    string
	store   cache.Store
	control cache.Controller
	fault   *atomic.Pointer[error] // why it cannot be read, nil where it can
}

// New makes a Source; Run has it follow.
func New(c Config) *Source {
	s := &Source{cfg: c, ready: make(chan struct{}), poked: make(chan struct{}, 1), heard: make(chan struct{}, 1), retold: make(chan struct{}, 1), starts: map[string]int{}}
	late := make(chan time.Time)
	s.late = late
	time.AfterFunc(patience, func() { close(late) })
	var kept known
	if c.File == "" {
		return s
	}
	if there, err := recordfile.Load(c.File, &kept); err != nil {
		c.Log.Warn("what was declared of pods before is not known: they wait for the API server", "err", err)
	} else if there && kept.Read {
		maps.Copy(s.starts, kept.Starts)
		s.former = declared.NewIndex(kept.Pods, kept.Maps, c.Common, s.ordinals)
	}
	return s
}

// Run follows until ctx ends.
func (s *Source) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.cfg.File != "" {
		wg.Go(func() { s.keep(ctx) })
	}
	for ctx.Err() == nil {
		l, err := s.cfg.Login()
		var next *session
		if err == nil {
			next, err = s.open(l.REST)
		}
		if err != nil {
			retry.Sleep(ctx, again)
			continue
		}
		s.follow(ctx, next, l)
	}
}

// follow runs a session until its login is another one, or ctx ends. What is known goes on
// to be served until the next has read all.
func (s *Source) follow(ctx context.Context, next *session, l login.Login) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	var synced []cache.InformerSynced
	for _, f := range next.all() {
		synced = append(synced, f.control.HasSynced)
		wg.Go(func() { f.control.RunWithContext(ctx) })
	}
	if s.now.Load() == nil {
		s.now.Store(next) // what cannot be read is told by it
	}
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			s.now.Store(next)
			s.changed()
			s.once.Do(func() { close(s.ready) })
		}
	})
	for retry.Sleep(ctx, audit) && !l.Changed() {
	}
}

func (s *Source) changed() {
	s.changes.Add(1)
	s.poke()
	wake(s.heard)
	wake(s.retold)
}

// Redeclared gets a value after what is declared of pods may have changed.
func (s *Source) Redeclared() <-chan struct{} { return s.retold }

// poke has what is known written down.
func (s *Source) poke() { wake(s.poked) }

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep writes down what is known, a moment after it changed, and again where that failed.
func (s *Source) keep(ctx context.Context) {
	select {
	case <-s.ready: // until then it is the former one that counts
	case <-ctx.Done():
		return
	}
	var saved known
	for {
		select {
		case <-s.poked:
		case <-ctx.Done():
			return
		}
		if !retry.Sleep(ctx, calm) {
			return
		}
		next := s.known()
		if reflect.DeepEqual(next, saved) {
			continue
		}
		if err := recordfile.Save(s.cfg.File, next); err != nil {
			s.cfg.Log.Warn("what is declared of pods is not written down: an agent that starts while the API server is away will not know it; it is tried again", "err", err)
			retry.Sleep(ctx, audit)
			s.poke()
			continue
		}
		saved = next
	}
}

// known is what is to be written down. First ordinals are kept as long as something is
// declared of their StatefulSet.
func (s *Source) known() known {
	now := s.now.Load()
	out := known{Read: true, Pods: bare(now.podNetworks()), Maps: now.configMaps(), Starts: map[string]int{}}
	sortKnown(&out)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range out.Pods {
		key := p.Namespace + "/" + p.Spec.StatefulSet
		if n, ok := s.starts[key]; ok {
			out.Starts[key] = n
		}
	}
	return out
}

func sortKnown(k *known) {
	slices.SortFunc(k.Pods, func(a, b *v1alpha1.PodNetwork) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(k.Maps, func(a, b declared.ConfigMap) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (n *session) podNetworks() (out []*v1alpha1.PodNetwork) {
	for _, o := range n.networks.store.List() {
		if p, ok := o.(*v1alpha1.PodNetwork); ok && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

func (n *session) all() []follower {
	out := []follower{n.networks}
	for _, f := range n.maps {
		out = append(out, f)
	}
	return out
}

func (s *Source) open(base *rest.Config) (*session, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	client := func(gv schema.GroupVersion, root string) (rest.Interface, error) {
		cfg := rest.CopyConfig(base)
		cfg.GroupVersion, cfg.APIPath = &gv, root
		cfg.QPS = -1 // an ADD must not wait behind others'
		cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		c, err := rest.RESTClientFor(cfg)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", base.Host, err)
		}
		return c, nil
	}
	ours, err := client(v1alpha1.GroupVersion, "/apis")
	if err != nil {
		return nil, err
	}
	maps, err := client(corev1.SchemeGroupVersion, "/api")
	if err != nil {
		return nil, err
	}
	out := &session{ours: ours, maps: map[string]follower{}}
	if out.apps, err = client(appsv1.SchemeGroupVersion, "/apis"); err != nil {
		return nil, err
	}
	all := func(*metav1.ListOptions) {}
	out.networks = s.follower("podnetworks", cache.NewFilteredListWatchFromClient(ours, "podnetworks", "", all), &v1alpha1.PodNetwork{}, &v1alpha1.PodNetworkList{})
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelPodNetwork + "=true" }
	for _, ns := range s.namespaces() {
		out.maps[ns] = s.follower("configmaps of namespace "+ns, cache.NewFilteredListWatchFromClient(maps, "configmaps", ns, labelled), &corev1.ConfigMap{}, &corev1.ConfigMapList{})
	}
	return out, nil
}

func (s *Source) namespaces() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.cfg.Namespaces)))
}

// absent tells that there is nothing to be read.
func (s *Source) absent(err error) bool {
	return apierrors.IsNotFound(err) || s.cfg.Optional && apierrors.IsForbidden(err)
}

// nothing is a watch that hears nothing and ends after a while: then it is asked again.
func nothing(ctx context.Context) watch.Interface {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		select {
		case <-ctx.Done():
		case <-w.StopChan():
		case <-time.After(absentPause):
		}
	}()
	return w
}

// follower keeps what it hears; a kind that the server does not know has no objects.
func (s *Source) follower(what string, lw *cache.ListWatch, example, none runtime.Object) follower {
	f := follower{what: what, fault: &atomic.Pointer[error]{}}
	list := lw.ListWithContextFunc
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		f.fault.Store(nil)
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			f.fault.Store(&err)
		}
		if s.absent(err) {
			return none.DeepCopyObject(), nil
		}
		return out, err
	}
	heard := lw.WatchFuncWithContext
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := heard(ctx, o)
		if s.absent(err) && (o.SendInitialEvents == nil || !*o.SendInitialEvents) { // else it is to be listed
			return nothing(ctx), nil
		}
		return w, err
	}
	news := func(any) { s.changed() }
	newer := func(was, now any) {
		if sameSpec(was, now) {
			wake(s.heard)
		} else {
			news(now)
		}
	}
	f.store, f.control = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: example,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: news, DeleteFunc: news, UpdateFunc: newer},
		Transform: func(o any) (any, error) {
			if m, ok := o.(metav1.Object); ok {
				m.SetManagedFields(nil)
			}
			return o, nil
		},
	})
	return f
}

// Declared implements resolve.Declarer. Until all was read once it waits for a moment;
// then what a former agent knew counts, and without that it is core.ErrUnavailable, with
// the reason.
func (s *Source) Declared(ctx context.Context) (*declared.Index, error) {
	select {
	case <-s.ready:
		return s.latest(), nil
	default:
	}
	select {
	case <-s.ready:
		return s.latest(), nil
	case <-ctx.Done():
	case <-s.late:
	}
	if s.former != nil {
		return s.former, nil
	}
	return nil, s.unread()
}

// latest is the Index of what is known now, once all was read.
func (s *Source) latest() *declared.Index {
	changes := s.changes.Load()
	if x := s.index.Load(); x != nil && x.changes == changes {
		return x.Index
	}
	now := s.now.Load()
	x := declared.NewIndex(now.podNetworks(), now.configMaps(), s.cfg.Common, s.ordinals)
	s.index.Store(&made{x, changes})
	return x
}

// unread says what was not read, and why.
func (s *Source) unread() error {
	now := s.now.Load()
	if now == nil {
		return fmt.Errorf("PodNetworks are not known yet: %w", core.ErrUnavailable)
	}
	for _, f := range now.all() {
		if why := f.fault.Load(); why != nil && !f.control.HasSynced() {
			return fmt.Errorf("%s cannot be read: %w: %w", f.what, core.ErrUnavailable, *why)
		}
	}
	return fmt.Errorf("PodNetworks are not known yet: %w", core.ErrUnavailable)
}

// Problems are what nobody lets us read, and what is wrong in ConfigMaps.
func (s *Source) Problems() (out []resolve.Problem) {
	now := s.now.Load()
	if now == nil {
		return nil
	}
	for _, f := range now.all() {
		if why := f.fault.Load(); why != nil {
			out = append(out, resolve.Problem{File: f.what, Reason: "cannot be read: " + (*why).Error()})
		}
	}
	select {
	case <-s.ready:
		for _, f := range s.latest().Faults() {
			out = append(out, resolve.Problem{File: f.Object, Reason: f.Err.Error()})
		}
	default:
	}
	return out
}

func (n *session) configMaps() (out []declared.ConfigMap) {
	for _, f := range n.maps {
		for _, o := range f.store.List() {
			if m, ok := o.(*corev1.ConfigMap); ok && m.DeletionTimestamp == nil {
				out = append(out, declared.ConfigMap{Namespace: m.Namespace, Name: m.Name, Data: m.Data})
			}
		}
	}
	return out
}

// ordinals are those of a StatefulSet (declared.Ordinals); where nobody answers, its first
// one as it was known last. One that is gone began at 0: its pods go as well.
func (s *Source) ordinals(ctx context.Context, namespace, set string) (start, replicas int, err error) {
	start, replicas, err = s.ask(ctx, namespace, set)
	key := namespace + "/" + set
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.starts[key]
	switch {
	case err != nil && known:
		return last, math.MaxInt32, nil
	case err != nil:
		return 0, 0, fmt.Errorf("StatefulSet %s: %w: %w", key, core.ErrUnavailable, err)
	case !known || start != last:
		s.starts[key] = start
		s.poke()
	}
	return start, replicas, nil
}

// ask asks the server.
func (s *Source) ask(ctx context.Context, namespace, set string) (start, replicas int, err error) {
	now := s.now.Load()
	if now == nil {
		return 0, 0, core.ErrUnavailable
	}
	ctx, stop := context.WithTimeout(ctx, asking)
	defer stop()
	var out appsv1.StatefulSet
	err = now.apps.Get().Namespace(namespace).Resource("statefulsets").Name(set).Do(ctx).Into(&out)
	switch {
	case apierrors.IsNotFound(err):
		return 0, 0, nil
	case err != nil:
		return 0, 0, err
	case out.Spec.Ordinals != nil:
		start = int(out.Spec.Ordinals.Start)
	}
	if replicas = 1; out.Spec.Replicas != nil {
		replicas = int(*out.Spec.Replicas)
	}
	return start, replicas, nil
}

var _ resolve.Declarer = (*Source)(nil)
