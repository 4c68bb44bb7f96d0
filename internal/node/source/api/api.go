// Package api reads a node's pods from the API server: a list, then a watch of
// those whose spec.nodeName is the node. It is a source like the others of
// internal/node, and apart from them because it is the one that needs
// client-go. It must not know who listens.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/node/apiserver"
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
	cfg    Config
	client *apiserver.Client

	mu  sync.Mutex
	err error
}

// New makes the client; it asks nothing yet.
func New(cfg Config) (*Source, error) {
	client, err := apiserver.New(cfg.Server)
	if err != nil {
		return nil, err
	}
	return &Source{cfg: cfg, client: client}, nil
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
	mine := apiserver.List{Resource: "pods", Kind: &v1.Pod{}, Only: fields.OneTermEqualSelector("spec.nodeName", s.cfg.Node)}
	return s.client.Follow(ctx, mine, func(objects []any) { sendTo(ctx, out, objects) }, s.note)
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
func (s *Source) note(err error) {
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
