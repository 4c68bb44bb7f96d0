// Package apiserver asks an API server for the kinds that a node has to do with,
// and follows lists of them. It must not know what anybody does with them.
package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// Client asks for the kinds of v1, over one connection with those of Group.
type Client struct {
	rest.Interface
	cfg    *rest.Config
	shared *http.Client
	codec  runtime.ParameterCodec
}

// New asks nothing yet. more are kinds beside those of v1. What server says of
// the content's type counts, and is protobuf if it says nothing.
func New(server *rest.Config, more ...func(*runtime.Scheme) error) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range append(more, v1.AddToScheme) {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("kinds of %s: %w", server.Host, err)
		}
	}
	c := &Client{cfg: rest.CopyConfig(server), codec: runtime.NewParameterCodec(scheme)}
	c.cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.cfg.ContentType = cmp.Or(c.cfg.ContentType, runtime.ContentTypeProtobuf)
	c.cfg.AcceptContentTypes = cmp.Or(c.cfg.AcceptContentTypes, c.cfg.ContentType+","+runtime.ContentTypeJSON)
	var err error
	if c.shared, err = rest.HTTPClientFor(c.cfg); err != nil {
		return nil, fmt.Errorf("client of %s: %w", server.Host, err)
	}
	c.Interface, err = c.at("/api", v1.SchemeGroupVersion)
	return c, err
}

// Group asks for the kinds of a group that has a name.
func (c *Client) Group(gv schema.GroupVersion) (rest.Interface, error) { return c.at("/apis", gv) }

func (c *Client) at(path string, gv schema.GroupVersion) (rest.Interface, error) {
	cfg := rest.CopyConfig(c.cfg)
	cfg.APIPath, cfg.GroupVersion = path, &gv
	out, err := rest.RESTClientForConfigAndClient(cfg, c.shared)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	return out, nil
}

// List says which objects of v1 are followed.
type List struct {
	Resource  string         // its plural, such as "pods"
	Kind      runtime.Object // an empty one
	Namespace string         // "" is all
	Only      fields.Selector
}

// Follow lists and watches, again and again, until ctx ends; the error is that
// of ctx. heard gets all objects after the first list and after each change;
// they are not to be changed. note gets the outcome of each request. What comes
// after ctx's end is told to neither.
func (c *Client) Follow(ctx context.Context, l List, heard func([]any), note func(error)) error {
	silent := logr.Discard() // what the reflector would log is told by note
	ctx = logr.NewContext(ctx, silent)
	store := cache.NewUndeltaStore(func(all []any) {
		if ctx.Err() == nil {
			heard(all)
		}
	}, cache.MetaNamespaceKeyFunc)
	pauses := wait.Backoff{Duration: firstPause, Cap: longestPause, Steps: 10, Factor: 2, Jitter: 0.5}
	r := cache.NewReflectorWithOptions(c.asking(l, note), l.Kind, store, cache.ReflectorOptions{
		Logger: &silent, Name: l.Resource, TypeDescription: l.Resource, Backoff: &pauses})
	return pauses.DelayWithReset(clock.RealClock{}, calm).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		_ = r.ListAndWatchWithContext(ctx) // note has heard it
		return false, nil
	})
}

func (c *Client) asking(l List, note func(error)) *cache.ListWatch {
	ask := func(o *metav1.ListOptions) *rest.Request {
		o.FieldSelector = l.Only.String()
		return c.Get().Namespace(l.Namespace).Resource(l.Resource).VersionedParams(o, c.codec)
	}
	tell := func(ctx context.Context, err error) {
		if ctx.Err() == nil {
			note(err)
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := ask(&o).Do(ctx).Get()
			tell(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := ask(&o).Watch(ctx)
			tell(ctx, err)
			return w, err
		},
	}
}
