package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// ReasonReserve is the reason of events about IP objects that reserve nothing.
const ReasonReserve = "ReserveAddressFailed"

// ipKey is the IP object of a lease: it is called as the logical port.
func ipKey(l core.Lease) object.Key { return object.Key{Kind: object.KindIP, Name: l.Owner.Key.IfName} }

// addresses are the keys of all that have an address, or an object for one.
func (t *term) addresses() (keys []object.Key) {
	for _, o := range t.IPs.List() {
		keys = append(keys, object.Key{Kind: object.KindIP, Name: o.Name})
	}
	for _, c := range t.Claims.List() {
		keys = append(keys, object.Key{Kind: object.KindClaim, Name: c.Name})
	}
	for _, l := range t.book.All() {
		keys = append(keys, ipKey(l))
		if pod := l.Owner.Pod; !pod.IsZero() {
			keys = append(keys, object.KindPod.Named(pod.Namespace, pod.Name))
		}
	}
	return keys
}

// possible tells that a lease could be one of a Subnet in force.
func (t *term) possible(l core.Lease) bool {
	net, _, ok := t.nets.Get(l.Subnet)
	return ok && len(l.IPs) > 0 && gives(net.Subnet, l.IPs) && annotation.OnePerFamily(l.IPs) == nil
}

// fromIP is the lease that an IP object shows when a controller begins to lead, if
// somebody is to have it.
func (t *term) fromIP(o *v1.IP) (core.Lease, bool) {
	l, err := logical.ReadIP(o)
	if err != nil || !t.possible(l) {
		return l, false
	}
	pod := l.Owner.Pod
	if node := o.Spec.NodeName; o.Name == core.NodePort(node) && logical.Ours(o) && pod.IsZero() {
		l.Owner = nodeOwner(node)
		_, there := t.Nodes.Get("", node)
		return l, there
	}
	if p, live := t.Pods.Get(pod.Namespace, pod.Name); live && p.UID == l.Owner.Key.Container {
		return l, true
	}
	if by := object.ReadOwner(o.Annotations[logical.NoteKeeper]); logical.Ours(o) && by != (object.Owner{}) {
		t.keptBy(pod, by)
	}
	return l, t.stays(pod, []core.Lease{l})
}

// reserved tells that an IP object of a user keeps a lease.
func (t *term) reserved(l core.Lease) bool {
	o, ok := t.IPs.Get("", l.Owner.Key.IfName)
	if !ok || logical.Ours(o) && o.Labels[logical.LabelReserved] != "true" || book.Reservation(l) && l.Owner.Key.Container != book.Reserving(string(o.UID)) {
		return false
	}
	says, err := logical.ReadIP(o)
	return err == nil && says.Subnet == l.Subnet && includes(l.IPs, says.IPs) && (len(says.MAC) == 0 || slices.Equal(says.MAC, l.MAC))
}

// ip makes the IP object of a logical port what the book says, or the book what a
// user's object reserves.
func (t *term) ip(ctx context.Context, k object.Key) error {
	have, there := t.IPs.Get("", k.Name)
	if !there {
		have = nil
	}
	l, has := t.book.At(k.Name)
	switch {
	case has && book.Reservation(l) && (!there || !t.reserved(l)):
		t.release([]core.Lease{l}, false) // which comes here again
		return nil
	case has && book.Reservation(l):
		want := &v1.IP{ObjectMeta: metav1.ObjectMeta{Name: k.Name, Labels: map[string]string{logical.LabelReserved: "true"}}, Spec: have.Spec}
		logical.Spell(&want.Spec, l)
		return errors.Join(t.PutIP(ctx, have, want), t.tellIP(ctx, have, nil))
	case has:
		return errors.Join(t.record(ctx, l, have), t.tellIP(ctx, have, nil))
	case there && logical.Ours(have):
		return t.DropIP(ctx, have)
	case there:
		return t.reserve(ctx, have)
	}
	t.calm(k)
	return nil
}

// record makes the object of a lease. One of a pod waits for the pod's node, so
// that it is written once.
func (t *term) record(ctx context.Context, l core.Lease, have *v1.IP) error {
	pod := l.Owner.Pod
	want := &v1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Name: l.Owner.Key.IfName, Annotations: map[string]string{logical.NoteOwner: cmp.Or(l.Owner.Key.Container, l.Owner.Key.IfName)},
			Labels: map[string]string{logical.LabelReserved: "false"},
		},
		Spec: v1.IPSpec{PodName: pod.Name, Namespace: pod.Namespace},
	}
	logical.Spell(&want.Spec, l)
	switch p, live := t.Pods.Get(pod.Namespace, pod.Name); {
	case pod.IsZero():
		want.Spec.PodName, want.Spec.NodeName = l.Owner.Key.IfName, t.nodeAt(l.Owner.Key.IfName)
	case live && p.UID == l.Owner.Key.Container:
		if want.Spec.NodeName = p.Node; p.Node == "" {
			return nil // the scheduler's news comes here again
		}
	case have == nil && !t.wanted(pod):
		t.queue.Add(object.KindPod.Named(pod.Namespace, pod.Name)) // whose address nobody keeps any more
		return nil
	}
	if have != nil {
		want.Spec.AttachSubnets, want.Spec.AttachIPs, want.Spec.AttachMacs = have.Spec.AttachSubnets, have.Spec.AttachIPs, have.Spec.AttachMacs
		want.Spec.Unknown = have.Spec.Unknown
	}
	if keeper := t.keeperOf(pod); keeper != "" {
		want.Annotations[logical.NoteKeeper], want.Spec.PodType = keeper, object.ReadOwner(keeper).Kind
	}
	logical.Label(want, have)
	return t.PutIP(ctx, have, want)
}

// tellIP tells an object that a user made what came of it. The others, one for each
// address, have no status: nobody asked for anything by them.
func (t *term) tellIP(ctx context.Context, o *v1.IP, refused error) error {
	if o == nil || logical.Ours(o) && o.Labels[logical.LabelReserved] != "true" {
		return nil
	}
	conditions, changed := status.Merge(o.Status.Conditions, status.Conditions(o.Generation, refused, status.UndoneIP(o.Spec)))
	if !changed {
		return nil
	}
	return gone(t.Status(ctx, object.Object{Key: object.Key{Kind: object.KindIP, Name: o.Name}, UID: string(o.UID)}, v1.IPStatus{Conditions: conditions}))
}

// reserve takes the addresses of a user's object out of what others may get.
func (t *term) reserve(ctx context.Context, o *v1.IP) error {
	k := object.Object{Key: object.Key{Kind: object.KindIP, Name: o.Name}, UID: string(o.UID)}
	l, err := logical.ReadIP(o)
	net, fault, ok := t.nets.Get(l.Subnet)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("address in Subnet %s: %s: %w", l.Subnet, cmp.Or(fault, "it is not in force"), core.ErrNotFound)
	default:
		t.claims.Arrived(l.Subnet)
		_, _, err = t.book.Acquire(ipam.Request{Subnet: net.Subnet, Owner: l.Owner, IPs: l.IPs, MAC: l.MAC})
	}
	if err != nil {
		return errors.Join(t.failed(ctx, k, l.Subnet, ReasonReserve, err), t.tellIP(ctx, o, err))
	}
	t.calm(k.Key)
	t.counted(l.Subnet)
	t.queue.Add(k.Key)
	return nil
}
