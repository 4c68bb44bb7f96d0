package controller

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Labels of IP objects, the reference's (sdn.md, 12); the Subnet's name is one more.
const (
	labelSubnet   = "ovn.kubernetes.io/subnet"
	labelNode     = "ovn.kubernetes.io/node-name"
	labelReserved = "ovn.kubernetes.io/ip_reserved"
)

// Annotations of IP objects that this controller made: whose address it is.
const (
	noteOwner  = "fairlead.io/owner-uid"
	noteKeeper = "fairlead.io/keeper"
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

// ours tells that a controller made an object, and not a user who reserves.
func ours(o *v1.IP) bool {
	return o.Annotations[noteOwner] != "" || slices.Contains(o.Finalizers, v1.Finalizer)
}

// readIP is what an IP object says: for which port of which pod, and which
// addresses, none where a controller is to choose.
func readIP(o *v1.IP) (core.Lease, error) {
	l := core.Lease{Subnet: o.Spec.Subnet, Owner: owner(core.Pod{Namespace: o.Spec.Namespace, Name: o.Spec.PodName}, book.Reserving(string(o.UID)), o.Name)}
	if ours(o) {
		l.Owner.Key.Container = o.Annotations[noteOwner]
	}
	if l.Owner.Pod.Namespace == "" || l.Owner.Pod.Name == "" {
		l.Owner.Pod = core.Pod{} // nobody's but the object's
	}
	text := o.Spec.IPAddress
	if text == "" {
		text = strings.Trim(o.Spec.V4IPAddress+","+o.Spec.V6IPAddress, ",")
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return l, fmt.Errorf("spec.ipAddress: %w", err)
		}
		l.IPs = append(l.IPs, ip)
	}
	if o.Spec.MacAddress == "" {
		return l, nil
	}
	if err := l.MAC.UnmarshalText([]byte(o.Spec.MacAddress)); err != nil {
		return l, fmt.Errorf("spec.macAddress: %w", err)
	}
	return l, nil
}

// possible tells that a lease could be one of a Subnet in force.
func (t *term) possible(l core.Lease) bool {
	net, _, ok := t.nets.Get(l.Subnet)
	return ok && len(l.IPs) > 0 && gives(net.Subnet, l.IPs) && annotation.OnePerFamily(l.IPs) == nil
}

// fromIP is the lease that an IP object shows when a controller begins to lead, if
// somebody is to have it.
func (t *term) fromIP(o *v1.IP) (core.Lease, bool) {
	l, err := readIP(o)
	if err != nil || !t.possible(l) {
		return l, false
	}
	pod := l.Owner.Pod
	if node := o.Spec.NodeName; o.Name == core.NodePort(node) && ours(o) && pod.IsZero() {
		l.Owner = nodeOwner(node)
		_, there := t.Nodes.Get("", node)
		return l, there
	}
	if p, live := t.Pods.Get(pod.Namespace, pod.Name); live && p.UID == l.Owner.Key.Container {
		return l, true
	}
	if by := object.ReadOwner(o.Annotations[noteKeeper]); ours(o) && by != (object.Owner{}) {
		t.keptBy(pod, by)
	}
	return l, t.stays(pod, []core.Lease{l})
}

// reserved tells that an IP object of a user keeps a lease.
func (t *term) reserved(l core.Lease) bool {
	o, ok := t.IPs.Get("", l.Owner.Key.IfName)
	if !ok || ours(o) && o.Labels[labelReserved] != "true" || book.Reservation(l) && l.Owner.Key.Container != book.Reserving(string(o.UID)) {
		return false
	}
	says, err := readIP(o)
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
		want := &v1.IP{ObjectMeta: metav1.ObjectMeta{Name: k.Name, Labels: map[string]string{labelReserved: "true"}}, Spec: have.Spec}
		logical.Spell(&want.Spec, l)
		return t.PutIP(ctx, have, want)
	case has:
		return t.record(ctx, l, have)
	case there && ours(have):
		return t.DropIP(ctx, have)
	case there:
		return t.reserve(ctx, have)
	}
	return nil
}

// record makes the object of a lease. One of a pod waits for the pod's node, so
// that it is written once.
func (t *term) record(ctx context.Context, l core.Lease, have *v1.IP) error {
	pod := l.Owner.Pod
	want := &v1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Name: l.Owner.Key.IfName, Annotations: map[string]string{noteOwner: cmp.Or(l.Owner.Key.Container, l.Owner.Key.IfName)},
			Labels: map[string]string{labelReserved: "false"},
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
	if keeper := t.keeperOf(pod); keeper != "" {
		want.Annotations[noteKeeper], want.Spec.PodType = keeper, string(object.KindSet)
	}
	label(want, have)
	return t.PutIP(ctx, have, want)
}

// label adds the labels of Subnet and node, but for names that are too long for one,
// and that of a user's reservation, which stays.
func label(o, have *v1.IP) {
	if have != nil && (!ours(have) || have.Labels[labelReserved] == "true") {
		o.Labels[labelReserved] = "true"
	}
	for key, value := range map[string]string{labelSubnet: o.Spec.Subnet, labelNode: o.Spec.NodeName, o.Spec.Subnet: ""} {
		if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 && (value != "" || key == o.Spec.Subnet) {
			o.Labels[key] = value
		}
	}
}

// reserve takes the addresses of a user's object out of what others may get.
func (t *term) reserve(ctx context.Context, o *v1.IP) error {
	k := object.Object{Key: object.Key{Kind: object.KindIP, Name: o.Name}, UID: string(o.UID)}
	l, err := readIP(o)
	net, fault, ok := t.nets.Get(l.Subnet)
	switch {
	case err != nil:
	case !ok:
		err = fmt.Errorf("address in Subnet %s: %s: %w", l.Subnet, cmp.Or(fault, "it is not in force"), core.ErrNotFound)
	default:
		_, _, err = t.book.Acquire(ipam.Request{Subnet: net.Subnet, Owner: l.Owner, IPs: l.IPs, MAC: l.MAC})
	}
	if err != nil {
		return t.failed(ctx, k, l.Subnet, ReasonReserve, err)
	}
	t.calm(k.Key)
	t.counted(l.Subnet)
	t.queue.Add(k.Key)
	return nil
}
