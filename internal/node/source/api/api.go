// Package api reads a node's pods from the API server: a list, then a watch of
// those whose spec.nodeName is the node. It is a source like the others of
// internal/node, and apart from them because it is the one that needs
// client-go. It must not know who listens.
package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Pauses between two attempts, and after which time of calm they are short
// again.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 8 * time.Second
	calm         = time.Minute
)

// Config says which server and whose pods.
type Config struct {
	Server *rest.Config
	Node   string
	// After, if not nil, is waited for before anything is asked: the node
	// itself must be known first, because pods are admitted by its labels.
	After <-chan struct{}
	Log   *slog.Logger
}

// Source keeps what the server said last while it cannot be reached.
type Source struct {
	cfg  Config
	list *cache.ListWatch

	mu  sync.Mutex
	err error
}

// New makes the client; it asks nothing yet.
func New(cfg Config) (*Source, error) {
	c := rest.CopyConfig(cfg.Server)
	c.GroupVersion, c.APIPath = &v1.SchemeGroupVersion, "/api"
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("pods of node %s: %w", cfg.Node, err)
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion) // Status, and the options of requests
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", c.Host, err)
	}
	s := &Source{cfg: cfg}
	s.list = s.podsOf(client, runtime.NewParameterCodec(scheme))
	return s, nil
}

// Err is why the server could not be asked the last time, nil if it could.
func (s *Source) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Run sends all pods to out, in the order of their names, on each change until
// ctx ends. Nothing is sent before the server has given its first list, and
// nothing while it is away. The error is that of ctx.
func (s *Source) Run(ctx context.Context, out chan<- []*v1.Pod) error {
	if s.cfg.After != nil {
		select {
		case <-s.cfg.After:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// What the reflector would log is told by note.
	silent := logr.Discard()
	ctx = logr.NewContext(ctx, silent)
	store := cache.NewUndeltaStore(func(objects []any) { sendTo(ctx, out, objects) }, cache.MetaNamespaceKeyFunc)
	pauses := wait.Backoff{Duration: firstPause, Cap: longestPause, Steps: 10, Factor: 2, Jitter: 0.5}
	r := cache.NewReflectorWithOptions(s.list, &v1.Pod{}, store, cache.ReflectorOptions{
		Logger: &silent, Name: "pods", TypeDescription: "pods", Backoff: &pauses})
	return pauses.DelayWithReset(clock.RealClock{}, calm).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_ = r.ListAndWatchWithContext(ctx) // note has heard it
		return false, nil
	})
}

// sendTo sends copies: the store goes on using its own.
func sendTo(ctx context.Context, out chan<- []*v1.Pod, objects []any) {
	pods := make([]*v1.Pod, 0, len(objects))
	for _, o := range objects {
		if pod, ok := o.(*v1.Pod); ok {
			pods = append(pods, pod.DeepCopy())
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	select {
	case out <- pods:
	case <-ctx.Done():
	}
}

// note keeps the outcome of a request; it is logged when it changes.
func (s *Source) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && (s.err == nil || s.err.Error() != err.Error()):
		s.cfg.Log.Warn("pods cannot be read from the API server; those that are known stay", "err", err)
	case err == nil && s.err != nil:
		s.cfg.Log.Info("pods are read from the API server again")
	}
	s.err = err
}

// podsOf asks for the node's pods.
func (s *Source) podsOf(client rest.Interface, codec runtime.ParameterCodec) *cache.ListWatch {
	mine := fields.OneTermEqualSelector("spec.nodeName", s.cfg.Node).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = mine
			list := &v1.PodList{}
			err := client.Get().Resource("pods").VersionedParams(&o, codec).Do(ctx).Into(list)
			s.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.Watch = mine, true
			w, err := client.Get().Resource("pods").VersionedParams(&o, codec).Watch(ctx)
			s.note(ctx, err)
			return w, err
		},
	}
}
