// Package lease keeps the leases of addresses and MACs as objects of an API server:
// AddressLeases of net.fairlead.io/v1alpha1. Each is written by an update of what was read
// a moment before, so that of two who write one is refused; so are IPAMClaims, which keep
// addresses for pods. It must not know what an address is for, nor which pods there are.
package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
)

const (
	resource = "addressleases"
	asking   = 3 * time.Second // one request
	attempts = 8               // of a write that others come before
	outOf    = "node.kubernetes.io/out-of-service"
)

// Store is one API server's leases. Its methods may be called at the same time.
type Store struct {
	// Login says which API server is asked, and as whom.
	Login func() (login.Login, error)
	// Node and BootID are this node's.
	Node, BootID string
	// Namespace is Fairlead's own, where heartbeats are.
	Namespace string
	// Clock is CLOCK_BOOTTIME; nil: the machine's.
	Clock func() time.Duration

	mu     sync.Mutex
	now    *Client
	by     login.Login
	beat   *coordinationv1.Lease // this node's heartbeat as it was written last, nil where that is not known
	beheld map[string]beheld     // heartbeats, by name
}

// Client asks with one login.
type Client struct{ leases, core, auth, beats rest.Interface }

// NewClient makes one; nothing is asked yet.
func NewClient(base *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, authenticationv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	cfg := rest.CopyConfig(base)
	cfg.QPS = -1 // an ADD must not wait behind others'
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
	}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	out := &Client{}
	for _, one := range []struct {
		to   *rest.Interface
		gv   schema.GroupVersion
		root string
	}{{&out.leases, v1alpha1.GroupVersion, "/apis"}, {&out.core, corev1.SchemeGroupVersion, "/api"}, {&out.auth, authenticationv1.SchemeGroupVersion, "/apis"}, {&out.beats, coordinationv1.SchemeGroupVersion, "/apis"}} {
		cfg.GroupVersion, cfg.APIPath = &one.gv, one.root
		if *one.to, err = rest.RESTClientForConfigAndClient(cfg, shared); err != nil {
			return nil, fmt.Errorf("client of %s: %w", cfg.Host, err)
		}
	}
	return out, nil
}

// client is that of the login in force.
func (s *Store) client() (*Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && !s.by.Changed() {
		return s.now, nil
	}
	l, err := s.Login()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	c, err := NewClient(l.REST)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	s.now, s.by = c, l
	return c, nil
}

// ask gives a request its time, and its error a sentinel: what the server has not
// answered, or cannot now, is core.ErrUnavailable.
func ask(ctx context.Context, what string, do func(context.Context) error) error {
	limited, stop := context.WithTimeout(ctx, asking)
	defer stop()
	err := do(limited)
	status := apierrors.APIStatus(nil)
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		return err
	case errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsTooManyRequests(err) && !apierrors.IsUnauthorized(err):
		return core.Errorf(core.CodeTryAgain, "%s: the API server refuses it: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, core.ErrUnavailable, err)
}

// get is a lease as etcd has it; nil for none. A cluster that does not know the kind is
// told apart.
func (c *Client) get(ctx context.Context, name string) (*v1alpha1.AddressLease, error) {
	out := &v1alpha1.AddressLease{}
	err := ask(ctx, "AddressLease "+name, func(ctx context.Context) error {
		return c.leases.Get().Resource(resource).Name(name).Do(ctx).Into(out)
	})
	if apierrors.IsNotFound(err) {
		if !about(err, name) {
			return nil, core.Errorf(core.CodeTryAgain, "this cluster has no AddressLeases of %s: install the CRDs of the chart", v1alpha1.APIVersion)
		}
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// put makes a lease, or makes it have another content where it is as it was read.
func (c *Client) put(ctx context.Context, o *v1alpha1.AddressLease) error {
	o.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "AddressLease"}
	return ask(ctx, "AddressLease "+o.Name, func(ctx context.Context) error {
		if o.ResourceVersion == "" {
			return c.leases.Post().Resource(resource).Body(o).Do(ctx).Error()
		}
		return c.leases.Put().Resource(resource).Name(o.Name).Body(o).Do(ctx).Error()
	})
}

// overtaken tells that somebody else has written in between.
func overtaken(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// NodeNow is what the API server says of a node at this moment. It is a list, which agents
// may have.
func (s *Store) NodeNow(ctx context.Context, name string) (lease.Node, error) {
	c, err := s.client()
	if err != nil {
		return lease.Node{}, err
	}
	n, err := c.node(ctx, name)
	if err != nil || n == nil {
		return lease.Node{}, err
	}
	out := lease.Node{Known: true, BootID: n.Status.NodeInfo.BootID}
	for _, t := range n.Spec.Taints {
		out.OutOfService = out.OutOfService || t.Key == outOf
	}
	return out, nil
}

// node is the Node of a name; nil for none.
func (c *Client) node(ctx context.Context, name string) (*corev1.Node, error) {
	var all corev1.NodeList
	err := ask(ctx, "Node "+name, func(ctx context.Context) error {
		return c.core.Get().Resource("nodes").Param("fieldSelector", "metadata.name="+name).Do(ctx).Into(&all)
	})
	if err != nil || len(all.Items) == 0 {
		return nil, err
	}
	return &all.Items[0], nil
}

// Bind makes a pod's interface the holder of what it claims, and gives the lease's epoch.
// ours tells holders of this node that are known to be gone. A holder of another kind is
// followed by a next one only when it is proved dead; otherwise the error is lease.Held. What
// another IPAMClaim keeps is AddressHeld (11) too.
// may says whether this node may bind at all: it is asked when the lease has been read, so
// that the answer can come beside that, and before anything follows from it.
// core.ErrUnavailable: nobody knows whether it is done.
func (s *Store) Bind(ctx context.Context, h lease.Holder, claim core.Claim, ours func(lease.Holder) bool, may func() error) (epoch int64, err error) {
	c, err := s.client()
	if err != nil {
		return 0, err
	}
	for range attempts {
		have, err := c.get(ctx, lease.Name(claim))
		if err == nil {
			err = may()
		}
		if err == nil && have != nil {
			err = s.mayFollow(ctx, h, claim, have, ours)
		}
		if err == nil && have != nil {
			err = s.unkept(ctx, h, claim, have)
		}
		if err != nil {
			return 0, err
		}
		next := bound(have, h, claim)
		err = c.put(ctx, next)
		fail.Here("lease.claimed")
		if !overtaken(err) {
			return next.Spec.Holder.Epoch, err
		}
	}
	return 0, fmt.Errorf("AddressLease %s: others write it all the time: %w", lease.Name(claim), core.ErrUnavailable)
}

// Create is Bind of what there is no lease of. AddressHeld (11): there is one, whoever has it.
func (s *Store) Create(ctx context.Context, h lease.Holder, claim core.Claim) (epoch int64, err error) {
	c, err := s.client()
	if err != nil {
		return 0, err
	}
	next := bound(nil, h, claim)
	err = c.put(ctx, next)
	fail.Here("lease.claimed")
	if apierrors.IsAlreadyExists(err) {
		return 0, core.Reasoned(core.CodeTryAgain, core.ReasonAddressHeld, "%s in %s: there is AddressLease %s", claim, claim.Domain, next.Name)
	}
	return next.Spec.Holder.Epoch, err
}

// mayFollow is nil where h may have a lease after who has it.
func (s *Store) mayFollow(ctx context.Context, h lease.Holder, claim core.Claim, have *v1alpha1.AddressLease, ours func(lease.Holder) bool) error {
	was := HolderOf(have)
	if was.IsZero() || was.Same(h) || h.Reincarnates(was) || ours(was) {
		return nil
	}
	n, err := s.NodeOf(ctx, was)
	if err != nil {
		return err
	}
	if lease.Dead(was, n) != "" {
		return nil
	}
	more := "AddressLease " + have.Name
	if was.SelfFence {
		more += ", free when the heartbeat of its node was seen unchanged for " + Proof.String()
	}
	return lease.Held(claim, was, have.Status.Since.Time, more)
}

// bound is what have becomes when h has it; have is nil where there is none.
func bound(have *v1alpha1.AddressLease, h lease.Holder, c core.Claim) *v1alpha1.AddressLease {
	out := &v1alpha1.AddressLease{ObjectMeta: metav1.ObjectMeta{Name: lease.Name(c)}}
	if have != nil {
		out = have.DeepCopy()
	}
	epoch := max(out.Spec.Holder.Epoch, c.Epoch) + 1
	out.Spec = v1alpha1.AddressLeaseSpec{
		Domain: c.Domain, DeclaredBy: c.Declared,
		Owner:  v1alpha1.LeaseOwner{Namespace: h.Pod.Namespace, Pod: h.Pod.Name, Interface: h.Key.IfName},
		Holder: v1alpha1.LeaseHolder{PodUID: h.Pod.UID, Sandbox: h.Key.Container, Node: h.Node, BootID: h.BootID, Device: h.Device, SelfFence: h.SelfFence, Epoch: epoch},
	}
	if c.Forever {
		out.Spec.Retain = v1alpha1.RetainForever
	}
	if c.Addr.IsValid() {
		out.Spec.Address = c.Addr.String()
	} else {
		out.Spec.MAC = c.MAC.String()
	}
	out.Status = v1alpha1.AddressLeaseStatus{Phase: v1alpha1.LeaseBound, Since: metav1.NewTime(time.Now())}
	return out
}

// Release gives back what a holder that ours tells has of a claim; what another has is left
// alone, and what nobody has is success. What was declared is reserved again; what was
// chosen stays Releasing, until Remove. conflict is why the holder could not have it, ""
// where it could: then the lease is in Conflict until it is bound the next time, or Settle.
func (s *Store) Release(ctx context.Context, name string, ours func(lease.Holder) bool, conflict string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	for range attempts {
		have, err := c.get(ctx, name)
		if err != nil || have == nil || !ours(HolderOf(have)) {
			return err
		}
		err = c.put(ctx, freed(have, conflict))
		fail.Here("lease.released")
		if !overtaken(err) {
			return err
		}
	}
	return fmt.Errorf("AddressLease %s: others write it all the time: %w", name, core.ErrUnavailable)
}

// Remove deletes a lease that nobody has.
func (s *Store) Remove(ctx context.Context, name string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	have, err := c.get(ctx, name)
	if err != nil || have == nil || !HolderOf(have).IsZero() {
		return err
	}
	err = ask(ctx, "delete AddressLease "+name, func(ctx context.Context) error {
		only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}}
		return c.leases.Delete().Resource(resource).Name(name).Body(only).Do(ctx).Error()
	})
	if overtaken(err) {
		return nil
	}
	return err
}

// Record is a lease as the API server has it.
type Record struct {
	Name   string
	Claim  core.Claim
	Owner  core.Pod // that has it, or had it last; without UID
	Holder lease.Holder
	Since  time.Time
	Stolen string // the sandbox from which it was taken by hand last, "" for none
}

// Get is one lease; false for none.
func (s *Store) Get(ctx context.Context, name string) (Record, bool, error) {
	c, err := s.client()
	if err != nil {
		return Record{}, false, err
	}
	o, err := c.get(ctx, name)
	if err != nil || o == nil {
		return Record{}, false, err
	}
	return recordOf(o), true, nil
}

// Mine are the leases whose holder is on this node.
func (s *Store) Mine(ctx context.Context) (out []Record, err error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	all, err := c.list(ctx, "spec.holder.node="+s.Node)
	for i := range all {
		out = append(out, recordOf(&all[i]))
	}
	return out, err
}

const page = 500

func (c *Client) list(ctx context.Context, fields string) (out []v1alpha1.AddressLease, err error) {
	for next := ""; ; {
		var some v1alpha1.AddressLeaseList
		err := ask(ctx, "AddressLeases", func(ctx context.Context) error {
			r := c.leases.Get().Resource(resource).Param("limit", fmt.Sprint(page)).Param("continue", next)
			if fields != "" {
				r = r.Param("fieldSelector", fields)
			}
			return r.Do(ctx).Into(&some)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, some.Items...)
		if next = some.Continue; next == "" {
			return out, nil
		}
	}
}

func recordOf(o *v1alpha1.AddressLease) Record {
	r := Record{Name: o.Name, Owner: core.Pod{Namespace: o.Spec.Owner.Namespace, Name: o.Spec.Owner.Pod}, Holder: HolderOf(o), Since: o.Status.Since.Time, Stolen: o.Annotations[v1alpha1.AnnStolenFrom]}
	r.Claim = core.Claim{Domain: o.Spec.Domain, Declared: o.Spec.DeclaredBy, Forever: o.Spec.Retain != "", Epoch: o.Spec.Holder.Epoch}
	r.Claim.Addr, _ = netip.ParseAddr(o.Spec.Address) // the API server refuses what is none
	_ = r.Claim.MAC.UnmarshalText([]byte(o.Spec.MAC))
	return r
}

// HolderOf is who has a lease, the zero value for nobody.
func HolderOf(o *v1alpha1.AddressLease) lease.Holder {
	h := o.Spec.Holder
	if h.Sandbox == "" {
		return lease.Holder{}
	}
	return lease.Holder{
		Pod:  core.Pod{Namespace: o.Spec.Owner.Namespace, Name: o.Spec.Owner.Pod, UID: h.PodUID},
		Key:  core.Key{Container: h.Sandbox, IfName: o.Spec.Owner.Interface},
		Node: h.Node, BootID: h.BootID, Device: h.Device, SelfFence: h.SelfFence,
	}
}
