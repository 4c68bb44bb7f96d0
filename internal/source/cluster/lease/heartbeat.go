package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/lease"
)

const (
	// Duration is that of a heartbeat: before it ends its node has fenced itself.
	Duration = 40 * time.Second
	// Proof is for how long others see a heartbeat unchanged, by their own clock, before it has
	// ended for them: the duration and a margin.
	Proof = Duration + 10*time.Second
)

// beheld is a heartbeat as it was read, and since when it is so by CLOCK_BOOTTIME.
type beheld struct {
	version string
	since   time.Duration
}

func (s *Store) boottime() time.Duration {
	if s.Clock != nil {
		return s.Clock()
	}
	return netns.Boottime()
}

// unchanged is for how long a heartbeat, which was asked for at a time, has been as it is.
func (s *Store) unchanged(o *coordinationv1.Lease, asked time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := string(o.UID) + "/" + o.ResourceVersion
	if was, ok := s.beheld[o.Name]; ok && was.version == version {
		return asked - was.since
	}
	if s.beheld == nil {
		s.beheld = map[string]beheld{}
	}
	s.beheld[o.Name] = beheld{version, s.boottime()} // after the answer, so that none is too early
	return 0
}

// heartbeat is that of a node as etcd has it; nil for none.
func (s *Store) heartbeat(ctx context.Context, c *Client, node string) (*coordinationv1.Lease, error) {
	out, name := &coordinationv1.Lease{}, lease.Heartbeat(node)
	err := ask(ctx, "Lease "+name, func(ctx context.Context) error {
		return c.beats.Get().Namespace(s.Namespace).Resource("leases").Name(name).Do(ctx).Into(out)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// NodeOf is NodeNow of a holder's node. Where that fences itself it tells whether its heartbeat
// has ended, too, which is known when this was asked twice, Proof apart. No heartbeat
// proves nothing.
func (s *Store) NodeOf(ctx context.Context, h lease.Holder) (lease.Node, error) {
	n, err := s.NodeNow(ctx, h.Node)
	if err != nil || !h.SelfFence || lease.Dead(h, n) != "" {
		return n, err
	}
	c, err := s.client()
	if err != nil {
		return n, err
	}
	asked := s.boottime()
	o, err := s.heartbeat(ctx, c, h.Node)
	if err != nil || o == nil {
		return n, err
	}
	if s.unchanged(o, asked) >= Proof {
		n.Silent = holderOf(o)
	}
	return n, nil
}

func holderOf(o *coordinationv1.Lease) string {
	if o.Spec.HolderIdentity == nil {
		return ""
	}
	return *o.Spec.HolderIdentity
}

// Renew writes this node's heartbeat, and makes it where there is none. arm is called when the
// API server has answered and before the first write: from then on others may see it. The
// heartbeat of another boot than this one and the former one ("" for none known) is taken
// over when it was seen unchanged for Proof; until then the error is a refusal (11). Call it
// from one goroutine.
func (s *Store) Renew(ctx context.Context, former string, arm func() error) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	next := s.beat
	s.beat = nil
	if next == nil {
		if next, err = s.takeOver(ctx, c, former); err != nil {
			return err
		}
		s.own(ctx, c, next)
		if err := arm(); err != nil {
			return err
		}
	}
	now, seconds := metav1.NowMicro(), int32(Duration/time.Second)
	if next.Spec.AcquireTime == nil || holderOf(next) != s.BootID {
		next.Spec.AcquireTime = &now
	}
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &s.BootID, &seconds, &now
	written := &coordinationv1.Lease{}
	err = ask(ctx, "Lease "+next.Name, func(ctx context.Context) error {
		if next.ResourceVersion == "" {
			return c.beats.Post().Namespace(s.Namespace).Resource("leases").Body(next).Do(ctx).Into(written)
		}
		return c.beats.Put().Namespace(s.Namespace).Resource("leases").Name(next.Name).Body(next).Do(ctx).Into(written)
	})
	fail.Here("heartbeat.renewed")
	if err != nil {
		return err
	}
	s.beat = written
	return nil
}

// takeOver is the heartbeat as it may be written by this boot.
func (s *Store) takeOver(ctx context.Context, c *Client, former string) (*coordinationv1.Lease, error) {
	asked := s.boottime()
	have, err := s.heartbeat(ctx, c, s.Node)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: lease.Heartbeat(s.Node)},
		}, nil
	}
	if by := holderOf(have); !s.ours(by, former) && s.unchanged(have, asked) < Proof {
		return nil, core.Errorf(core.CodeTryAgain, "Lease %s is boot %s's, and this machine is in boot %s: either it was booted again, or another machine acts as this node; it is taken over when it was not renewed for %s",
			have.Name, by, s.BootID, Proof)
	}
	return have, nil
}

// own has Kubernetes delete the heartbeat after its Node, which proves more by its absence. The
// next one is of the next Node of that name: what deletes this one fails its renewal. Where the
// Node cannot be looked at the owner stays as it is: no renewal may fail for that.
func (s *Store) own(ctx context.Context, c *Client, beat *coordinationv1.Lease) {
	n, err := c.node(ctx, s.Node)
	if err != nil {
		return
	}
	beat.OwnerReferences = nil
	if n != nil {
		beat.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	}
}

// ours tells that a heartbeat's holder is nobody, this boot or the one before.
func (s *Store) ours(by, former string) bool {
	return slices.Contains([]string{"", s.BootID, former}, by)
}

// Retire deletes this node's heartbeat, so that nobody takes the node for dead by it any more;
// former is as in Renew. One that is gone, or another's, is success.
func (s *Store) Retire(ctx context.Context, former string) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	have, err := s.heartbeat(ctx, c, s.Node)
	if err != nil || have == nil || !s.ours(holderOf(have), former) {
		return err
	}
	err = ask(ctx, "delete Lease "+have.Name, func(ctx context.Context) error {
		only := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID, ResourceVersion: &have.ResourceVersion}}
		return c.beats.Delete().Namespace(s.Namespace).Resource("leases").Name(have.Name).Body(only).Do(ctx).Error()
	})
	fail.Here("heartbeat.retired")
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("retire: %w", err)
	}
	return nil
}
