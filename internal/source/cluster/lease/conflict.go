package lease

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/lease"
)

// ReasonHeldTwice is the reason of a lease that one pod has by the API server and another
// by its node's journal.
const ReasonHeldTwice = "AddressConflict"

// most is how many bytes a message may have.
const most = 1024

// freed is what have becomes when nobody has it any more. conflict is as in Release.
func freed(have *v1alpha1.AddressLease, conflict string) *v1alpha1.AddressLease {
	out := have.DeepCopy()
	out.Spec.Holder = v1alpha1.LeaseHolder{Epoch: have.Spec.Holder.Epoch}
	out.Status = v1alpha1.AddressLeaseStatus{Phase: plain(out), Since: metav1.NewTime(time.Now())}
	if conflict != "" {
		out.Status.Phase, out.Status.Reason, out.Status.Message = v1alpha1.LeaseConflict, core.ReasonAddressConflict, core.Clip(conflict, most)
	}
	return out
}

// plain is the phase of a lease that is in no conflict.
func plain(o *v1alpha1.AddressLease) string {
	switch {
	case o.Spec.Holder.Sandbox != "":
		return v1alpha1.LeaseBound
	case o.Spec.DeclaredBy == "":
		return v1alpha1.LeaseReleasing
	}
	return v1alpha1.LeaseReserved
}

// Contest says of a lease which a holder of another kind than ours tells has, that somebody
// of this node has it too, as text tells. Whose it is stays as it is. What others write at
// the same time comes first: call it again.
func (s *Store) Contest(ctx context.Context, name string, ours func(lease.Holder) bool, text string) error {
	text = core.Clip(text, most)
	return s.restate(ctx, name, func(o *v1alpha1.AddressLease) bool {
		if h := HolderOf(o); h.IsZero() || ours(h) || o.Status.Phase == v1alpha1.LeaseConflict && o.Status.Message == text {
			return false
		}
		o.Status = v1alpha1.AddressLeaseStatus{Phase: v1alpha1.LeaseConflict, Since: metav1.NewTime(time.Now()), Reason: ReasonHeldTwice, Message: text}
		return true
	})
}

// Settle says that a lease is in no conflict any more for a reason, which it says.
func (s *Store) Settle(ctx context.Context, name, reason string) error {
	return s.restate(ctx, name, func(o *v1alpha1.AddressLease) bool {
		if o.Status.Phase != v1alpha1.LeaseConflict || o.Status.Reason != reason {
			return false
		}
		o.Status = v1alpha1.AddressLeaseStatus{Phase: plain(o), Since: metav1.NewTime(time.Now())}
		return true
	})
}

// restate writes a lease's status where change says that it is another.
func (s *Store) restate(ctx context.Context, name string, change func(*v1alpha1.AddressLease) bool) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	have, err := c.get(ctx, name)
	if err != nil || have == nil || !change(have) {
		return err
	}
	return c.put(ctx, have)
}
