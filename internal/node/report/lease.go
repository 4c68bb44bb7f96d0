package report

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keepLease renews the node's lease: whoever watches it knows that the node
// lives without reading its status.
func (r *Reporter) keepLease(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.known: // the lease belongs to the node
	}
	var has *coordination.Lease
	for {
		now, err := r.renew(ctx, has)
		has = now // nil after a failure: it is read anew
		r.note.tell("lease", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(leasePeriod):
		}
	}
}

// renew writes the lease over the one that was written last.
func (r *Reporter) renew(ctx context.Context, has *coordination.Lease) (*coordination.Lease, error) {
	var err error
	if has == nil {
		if has, err = r.client.lease(ctx, r.conf.Node); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("lease of node %s: %w", r.conf.Node, err)
		}
	}
	r.mu.Lock()
	uid := r.node
	r.mu.Unlock()
	want := &coordination.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: r.conf.Node, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: r.conf.Node, UID: uid},
		}},
		Spec: coordination.LeaseSpec{
			HolderIdentity: &r.conf.Node, LeaseDurationSeconds: new(int32(leaseSpan / time.Second)), RenewTime: new(metav1.NowMicro()),
		},
	}
	write := r.client.createLease
	if err == nil {
		want.ResourceVersion, write = has.ResourceVersion, r.client.updateLease
	}
	now, err := write(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("lease of node %s: %w", r.conf.Node, err)
	}
	return now, nil
}
