// Package vfpolicies follows the NodeVFPolicies of an API server that mean a node, and
// writes there what the node made of them. It decides nothing, and knows no card.
package vfpolicies

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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

const (
	again = 2 * time.Second  // after credentials that cannot be used
	audit = 10 * time.Second // how often credentials are compared with those in use
	// absentPause is between two looks for what the server does not have.
	absentPause = 15 * time.Second
	writing     = 10 * time.Second // for one status
)

// Config says which API server is followed, and for which node.
type Config struct {
	Login func() (login.Login, error)
	Node  string
	// Changed is called after each change. It must not block.
	Changed func()
	Log     *slog.Logger
}

// Follower serves what is known. Its methods may be called at the same time, and before Run.
type Follower struct {
	cfg Config
	now atomic.Pointer[session]

	mu      sync.Mutex
	reports map[string]vfpolicy.Report // what is to be written, by policy
	wrote   map[string]v1alpha1.NodeVFStatus
	queue   *retry.Queue[string]
}

// session is what one login follows: policies, and the node once there is one.
type session struct {
	policies, node kind
	client         rest.Interface
	heard          atomic.Bool // all was read once
}

// kind is what is known of one kind.
type kind struct {
	store   cache.Store
	control cache.Controller
}

// Pauses after failures, the longest but for a quarter.
const (
	firstPause = time.Second
	mostPause  = time.Minute
)

// New makes a Follower; Run has it follow.
func New(c Config) *Follower {
	return &Follower{cfg: c, reports: map[string]vfpolicy.Report{}, wrote: map[string]v1alpha1.NodeVFStatus{}, queue: retry.NewQueue[string](firstPause, mostPause)}
}

// Run follows until ctx ends.
func (s *Follower) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.queue.Run(ctx, 1, s.write) })
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
// to be served until the next has read all. Nodes are read once there is a policy.
func (s *Follower) follow(ctx context.Context, next *session, l login.Login) {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { next.policies.control.RunWithContext(ctx) })
	wg.Go(func() {
		if !cache.WaitForCacheSync(ctx.Done(), next.policies.control.HasSynced) {
			return
		}
		for len(next.policies.store.ListKeys()) == 0 {
			s.serve(next)
			if !retry.Sleep(ctx, again) {
				return
			}
		}
		wg.Go(func() { next.node.control.RunWithContext(ctx) })
		if cache.WaitForCacheSync(ctx.Done(), next.node.control.HasSynced) {
			next.heard.Store(true)
			s.serve(next)
		}
	})
	for retry.Sleep(ctx, audit) && !l.Changed() {
	}
}

func (s *Follower) serve(next *session) {
	if s.now.Swap(next) != next || next.heard.Load() {
		s.cfg.Changed()
	}
}

// VFPolicies are those that mean the node; core.ErrUnavailable while that is not known.
func (s *Follower) VFPolicies() ([]vfpolicy.Policy, error) {
	now := s.now.Load()
	if now == nil {
		return nil, fmt.Errorf("NodeVFPolicies are not known yet: %w", core.ErrUnavailable)
	}
	all := now.policies.store.List()
	if len(all) == 0 {
		return nil, nil
	}
	labels, err := s.labels(now)
	if err != nil {
		return nil, err
	}
	var out []vfpolicy.Policy
	for _, o := range all {
		in, ok := o.(*v1alpha1.NodeVFPolicy)
		if !ok || in.DeletionTimestamp != nil {
			continue
		}
		p := vfpolicy.Policy{Name: in.Name, Generation: in.Generation, Created: in.CreationTimestamp.Time, Spec: in.Spec}
		if p.Means(labels) {
			p.Spec.NodeSelector = nil // which is settled
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b vfpolicy.Policy) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

func (s *Follower) labels(now *session) (map[string]string, error) {
	if !now.heard.Load() {
		return nil, fmt.Errorf("labels of node %s are not known yet: %w", s.cfg.Node, core.ErrUnavailable)
	}
	o, is, err := now.node.store.GetByKey(s.cfg.Node)
	if n, ok := o.(*corev1.Node); is && ok && err == nil {
		return n.Labels, nil
	}
	return nil, fmt.Errorf("node %s: %w", s.cfg.Node, core.ErrUnavailable)
}

func (s *Follower) open(base *rest.Config) (*session, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	client := func(gv schema.GroupVersion, root string) (rest.Interface, error) {
		cfg := rest.CopyConfig(base)
		cfg.GroupVersion, cfg.APIPath = &gv, root
		cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		return rest.RESTClientFor(cfg)
	}
	ours, err := client(v1alpha1.GroupVersion, "/apis")
	if err != nil {
		return nil, err
	}
	nodes, err := client(corev1.SchemeGroupVersion, "/api")
	if err != nil {
		return nil, err
	}
	self := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.cfg.Node).String()
	}
	return &session{
		client:   ours,
		policies: s.kind(optional(cache.NewFilteredListWatchFromClient(ours, "nodevfpolicies", "", func(*metav1.ListOptions) {})), &v1alpha1.NodeVFPolicy{}),
		node:     s.kind(cache.NewFilteredListWatchFromClient(nodes, "nodes", "", self), &corev1.Node{}),
	}, nil
}

// absent tells that there are no policies to be read: the kind is not there, or an older
// chart gave no right to it.
func absent(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// optional has no objects where the kind cannot be read.
func optional(lw *cache.ListWatch) *cache.ListWatch {
	list, heard := lw.ListWithContextFunc, lw.WatchFuncWithContext
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		out, err := list(ctx, o)
		if absent(err) {
			return &v1alpha1.NodeVFPolicyList{}, nil
		}
		return out, err
	}
	lw.WatchFuncWithContext = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		w, err := heard(ctx, o)
		if !absent(err) || o.SendInitialEvents != nil && *o.SendInitialEvents { // then it is to be listed
			return w, err
		}
		events := make(chan watch.Event)
		none := watch.NewProxyWatcher(events)
		go func() {
			defer close(events)
			select {
			case <-ctx.Done():
			case <-none.StopChan():
			case <-time.After(absentPause):
			}
		}()
		return none, nil
	}
	return lw
}

// kind keeps what it hears, but for what others write of it: a policy's status has an entry
// of each node.
func (s *Follower) kind(lw *cache.ListWatch, example runtime.Object) kind {
	news := func(any) { s.cfg.Changed() }
	var k kind
	k.store, k.control = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw, ObjectType: example,
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: news, DeleteFunc: news, UpdateFunc: func(was, now any) {
			if concerns(was) != concerns(now) {
				news(now)
			}
		}},
		Transform: func(o any) (any, error) {
			switch o := o.(type) {
			case *v1alpha1.NodeVFPolicy:
				o.Status = v1alpha1.NodeVFPolicyStatus{}
				o.ManagedFields = nil
			case *corev1.Node:
				return &corev1.Node{TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion, Labels: o.Labels}}, nil
			}
			return o, nil
		},
	})
	return k
}

// concerns is what of an object decides: statuses of nodes change all the time.
func concerns(o any) string {
	switch o := o.(type) {
	case *v1alpha1.NodeVFPolicy:
		return fmt.Sprint(o.Generation, o.DeletionTimestamp)
	case *corev1.Node:
		return fmt.Sprint(o.Labels) // sorted by key
	}
	return ""
}

// ReportVFs has the node's part of the status of each policy be this.
func (s *Follower) ReportVFs(reports []vfpolicy.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.reports
	s.reports = map[string]vfpolicy.Report{}
	for _, r := range reports {
		s.reports[r.Policy] = r
		s.queue.Add(r.Policy)
	}
	for name := range old {
		if _, stays := s.reports[name]; !stays {
			s.queue.Add(name)
		}
	}
}

// write applies the node's part of a policy's status; of one that does not mean the node
// any more it takes that away.
func (s *Follower) write(ctx context.Context, name string) error {
	now := s.now.Load()
	if now == nil {
		return core.ErrUnavailable
	}
	s.mu.Lock()
	r, is := s.reports[name]
	status := s.status(r)
	s.mu.Unlock()
	body := v1alpha1.NodeVFPolicyStatus{}
	if is {
		body.Nodes = []v1alpha1.NodeVFStatus{status}
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.APIVersion, "kind": "NodeVFPolicy", "metadata": map[string]string{"name": name}, "status": body,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, writing)
	defer stop()
	err = now.client.Patch(types.ApplyPatchType).Resource("nodevfpolicies").Name(name).SubResource("status").
		VersionedParams(&metav1.PatchOptions{FieldManager: "fairlead-" + s.cfg.Node, Force: new(true)}, metav1.ParameterCodec).Body(raw).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		err = nil // it is gone, and its status with it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && is {
		s.wrote[name] = status
	} else if err == nil {
		delete(s.wrote, name)
	}
	if err != nil {
		s.cfg.Log.Warn("status of a policy not written; tried again", "policy", name, "err", err)
	}
	return err
}

// Conditions of a policy on a node.
const (
	ready    = "Ready"
	conflict = "Conflict"
)

// status is a report as it stands in the policy.
func (s *Follower) status(r vfpolicy.Report) v1alpha1.NodeVFStatus {
	out := v1alpha1.NodeVFStatus{
		Name: s.cfg.Node, ObservedGeneration: r.Generation, Devices: r.Devices, Healthy: r.Healthy,
		Ready: len(r.Amiss)+len(r.Conflicts) == 0,
	}
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{
			Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: r.Generation, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
		}
		if is {
			c.Status = metav1.ConditionTrue
		}
		for _, old := range s.wrote[r.Policy].Conditions {
			if old.Type == kind && old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
		}
		out.Conditions = append(out.Conditions, c)
	}
	reason := map[bool]string{true: "InForce", false: "NotInForce"}[out.Ready]
	set(ready, out.Ready, reason, clip(slices.Concat(r.Amiss, r.Conflicts)))
	if len(r.Conflicts) > 0 {
		set(conflict, true, "HeldByAnotherPolicy", clip(r.Conflicts))
	}
	return out
}

// clip keeps a condition's message within what the API takes.
func clip(parts []string) string {
	const most = 1024
	text := strings.Join(parts, "; ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}
