// Package underlay follows what an API server says of the physical networks of one node:
// ProviderNetworks, Vlans and the Node itself; and it writes on the Node, as one manager,
// what the node made of them. It decides nothing.
package underlay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// manager owns the labels and annotations of the Node.
const manager = "fairlead-uplinks"

const (
	again      = 2 * time.Second  // after credentials that cannot be used
	audit      = 10 * time.Second // how often credentials are compared with those in use
	writeLimit = 10 * time.Second
)

// Config says which API server is followed, as whom, and for which node.
type Config struct {
	Login func() (login.Login, error)
	Node  string
	// External: the NIC of the default Vpc's external gateway is a provider network's, too
	// (declare.ExternalNetwork), and the node may be a gateway to other clusters.
	External bool
	// Changed hears of each change. It must not block.
	Changed func()
	Log     *slog.Logger
}

// Source serves what is known. Its methods may be called at the same time, and before Run.
type Source struct {
	cfg Config
	now atomic.Pointer[session]
	// good is the external gateway as it was well last, nil for none.
	good atomic.Pointer[declare.External]
	// joined is how the cluster is joined to others as it was well last, nil for not.
	joined atomic.Pointer[declare.Interconnect]
}

// session is what one login follows.
type session struct {
	meta     metadata.Interface
	networks follower
	vlans    follower
	node     follower
	external *follower // of one ConfigMap; nil where nobody asks for it
	others   *follower // the same
}

// all are its followers.
func (n *session) all() []follower {
	out := []follower{n.networks, n.vlans, n.node}
	if n.external != nil {
		out = append(out, *n.external, *n.others)
	}
	return out
}

// follower is one kind.
type follower struct {
	store   cache.Store
	control cache.Controller
}

// New makes a Source; Run has it follow.
func New(c Config) *Source { return &Source{cfg: c} }

// Run follows until ctx ends.
func (s *Source) Run(ctx context.Context) {
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
		s.now.Store(next)
		s.follow(ctx, next, l)
	}
}

// follow runs a session until its login is another one, or ctx ends. What is known goes on
// to be served until the next has read all.
func (s *Source) follow(ctx context.Context, now *session, l login.Login) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, f := range now.all() {
		wg.Go(func() { f.control.RunWithContext(ctx) })
	}
	for retry.Sleep(ctx, audit) && !l.Changed() {
	}
}

func (s *Source) open(base *rest.Config) (*session, error) {
	out := &session{}
	var err error
	if out.meta, err = metadata.NewForConfig(base); err != nil {
		return nil, fmt.Errorf("client of %s: %w", base.Host, err)
	}
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	cfg := rest.CopyConfig(base)
	cfg.GroupVersion, cfg.APIPath = &v1.GroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	ours, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", base.Host, err)
	}
	all := func(plural string) cache.ListerWatcher {
		return cache.NewListWatchFromClient(ours, plural, "", fields.Everything())
	}
	out.networks = s.follower(all("provider-networks"), &v1.ProviderNetwork{})
	out.vlans = s.follower(all("vlans"), &v1.Vlan{})
	out.node = s.follower(s.self(out.meta), &metav1.PartialObjectMetadata{})
	if s.cfg.External {
		if err := corev1.AddToScheme(scheme); err != nil {
			return nil, err
		}
		cfg := rest.CopyConfig(cfg)
		cfg.GroupVersion, cfg.APIPath = &corev1.SchemeGroupVersion, "/api"
		core, err := rest.RESTClientFor(cfg)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", base.Host, err)
		}
		named := func(name string) *follower {
			only := fields.OneTermEqualSelector("metadata.name", name)
			f := s.follower(cache.NewListWatchFromClient(core, "configmaps", declare.ConfigNamespace, only), &corev1.ConfigMap{})
			return &f
		}
		out.external, out.others = named(declare.ConfigExternal), named(declare.ConfigInterconnect)
	}
	return out, nil
}

// nodes is the resource of Nodes.
var nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}

// self lists and watches the Node.
func (s *Source) self(meta metadata.Interface) cache.ListerWatcher {
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.cfg.Node).String()
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			only(&o)
			return meta.Resource(nodes).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			only(&o)
			return meta.Resource(nodes).Watch(ctx, o)
		},
	}
}

func (s *Source) follower(lw cache.ListerWatcher, example runtime.Object) follower {
	news := func(any) { s.cfg.Changed() }
	store, control := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: news, DeleteFunc: news,
			UpdateFunc: func(was, now any) {
				if concerns(was, now) {
					s.cfg.Changed()
				}
			},
		},
		Transform: slim,
	})
	return follower{store, control}
}

// slim keeps what is needed of an object.
func slim(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// concerns tells that a change is about more than the heartbeat of a Node, or the status
// of another object.
func concerns(was, now any) bool {
	a, isNode := was.(*metav1.PartialObjectMetadata)
	b, both := now.(*metav1.PartialObjectMetadata)
	if isNode && both {
		return a.UID != b.UID || fmt.Sprint(a.Labels, a.Annotations) != fmt.Sprint(b.Labels, b.Annotations)
	}
	if _, isMap := was.(*corev1.ConfigMap); isMap { // which has no generation
		return true
	}
	x, isObject := was.(metav1.Object)
	y, ok := now.(metav1.Object)
	return !isObject || !ok || x.GetGeneration() != y.GetGeneration() || (x.GetDeletionTimestamp() == nil) != (y.GetDeletionTimestamp() == nil)
}

// Underlay is what is known; core.ErrUnavailable until all of it was read, and while there is no
// Node: kubelet registers again one that was deleted, and what labels and annotations of it
// say decides which NICs it gives.
func (s *Source) Underlay() (declare.Underlay, error) {
	now := s.now.Load()
	if now == nil || !now.networks.control.HasSynced() || !now.vlans.control.HasSynced() || !now.node.control.HasSynced() {
		return declare.Underlay{}, fmt.Errorf("provider networks are not known yet: %w", core.ErrUnavailable)
	}
	own := now.self(s.cfg.Node)
	if own == nil {
		return declare.Underlay{}, fmt.Errorf("there is no Node %s now: %w", s.cfg.Node, core.ErrUnavailable)
	}
	var u declare.Underlay
	for _, o := range now.networks.store.List() {
		if p, ok := o.(*v1.ProviderNetwork); ok && p.DeletionTimestamp == nil {
			u.Networks = append(u.Networks, *p)
		}
	}
	if !slices.ContainsFunc(u.Networks, func(p v1.ProviderNetwork) bool { return p.Name == declare.ExternalNetwork }) {
		s.outside(now, own.Labels, &u)
	}
	slices.SortFunc(u.Networks, func(a, b v1.ProviderNetwork) int { return strings.Compare(a.Name, b.Name) })
	for _, o := range now.vlans.store.List() {
		if v, ok := o.(*v1.Vlan); ok {
			u.Vlans = append(u.Vlans, *v)
		}
	}
	u.Node, u.Labels, u.Notes = true, own.Labels, own.Annotations
	return u, nil
}

// outside adds the provider network of the external gateway, if there is one; it leaves out
// nodes that are none. Of one that has a fault, which the controller tells, the last good
// version counts; where that is not known, what the network has stays.
func (s *Source) outside(now *session, labels map[string]string, u *declare.Underlay) {
	if now.external == nil {
		return
	}
	if !now.external.control.HasSynced() { // an agent without the right to read it serves the other networks
		u.Unread = append(u.Unread, declare.ExternalNetwork)
		return
	}
	var e *declare.External
	for _, o := range now.external.store.List() {
		if m, _ := o.(*corev1.ConfigMap); m != nil && m.DeletionTimestamp == nil {
			var faults []declare.Fault
			if e, faults = declare.ReadExternal(m.Data); len(faults) > 0 {
				if e = s.good.Load(); e == nil {
					u.Unread = append(u.Unread, declare.ExternalNetwork)
				}
			}
		}
	}
	if s.good.Store(e); e == nil {
		return
	}
	out := v1.ProviderNetwork{ObjectMeta: metav1.ObjectMeta{Name: declare.ExternalNetwork}, Spec: v1.ProviderNetworkSpec{DefaultInterface: e.NIC}}
	if !e.IsGateway(s.cfg.Node, labels) {
		out.Spec.ExcludeNodes = []string{s.cfg.Node}
	}
	u.Networks = append(u.Networks, out)
}

// Joins tells that the node is a gateway to other clusters; known is false while that is not
// known. Of a ConfigMap that has a fault, which the controller tells, the last good version counts.
func (s *Source) Joins() (gateway, known bool) {
	now := s.now.Load()
	if now == nil || now.others == nil || !now.others.control.HasSynced() || !now.node.control.HasSynced() {
		return false, false
	}
	var i *declare.Interconnect
	for _, o := range now.others.store.List() {
		if m, _ := o.(*corev1.ConfigMap); m != nil && m.DeletionTimestamp == nil {
			var faults []declare.Fault
			if i, faults = declare.ReadInterconnect(m.Data); len(faults) > 0 {
				if i = s.joined.Load(); i == nil {
					return false, false
				}
			}
		}
	}
	if s.joined.Store(i); i == nil {
		return false, true
	}
	var labels map[string]string
	if own := now.self(s.cfg.Node); own != nil {
		labels = own.Labels
	}
	return i.IsGateway(s.cfg.Node, labels), true
}

func (n *session) self(node string) *metav1.PartialObjectMetadata {
	o, _, _ := n.node.store.GetByKey(node)
	out, _ := o.(*metav1.PartialObjectMetadata)
	return out
}

// Tell has the Node have these labels and annotations, and none of others that were told
// before. A Node that is gone is no error.
func (s *Source) Tell(ctx context.Context, labels, notes map[string]string) error {
	now := s.now.Load()
	if now == nil {
		return fmt.Errorf("node %s: %w", s.cfg.Node, core.ErrUnavailable)
	}
	own := now.self(s.cfg.Node)
	if own == nil {
		return nil // the watch will tell of it
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": own.Name, "uid": own.UID, "labels": labels, "annotations": notes},
	})
	if err != nil {
		return fmt.Errorf("apply node %s: %w", s.cfg.Node, err)
	}
	ctx, stop := context.WithTimeout(ctx, writeLimit)
	defer stop()
	force := true
	_, err = now.meta.Resource(nodes).Patch(ctx, s.cfg.Node, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager, Force: &force}, "status")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("apply node %s: %w", s.cfg.Node, err)
	}
	return nil
}
