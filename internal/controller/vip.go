package controller

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/groups"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/ovn"
)

// ReasonVip is the reason of events about pods that name Vips which they do not share.
const ReasonVip = "VipNotShared"

// vipOwner has the address of a Vip.
func vipOwner(name, uid string) core.Owner { return owner(core.Pod{}, uid, logical.VipPort(name)) }

// vipOfPort is the lease that a Vip's row shows.
func vipOfPort(p ovn.Port) core.Lease {
	mac, ips, _ := strings.Cut(p.ExternalIDs[logical.KeyAddresses], " ")
	l := core.Lease{Subnet: p.Switch, IPs: logical.Addrs(ips, " "), Owner: owner(core.Pod{}, p.ExternalIDs[logical.KeyVipUID], p.Name)}
	if l.MAC.UnmarshalText([]byte(mac)) != nil {
		return core.Lease{}
	}
	return l
}

// vipOfStatus is the lease that a Vip's object was told.
func vipOfStatus(o *v1.Vip) core.Lease {
	l := core.Lease{Subnet: subnetOf(o), IPs: logical.Addrs(o.Status.V4ip+","+o.Status.V6ip, ","), Owner: vipOwner(o.Name, string(o.UID))}
	if l.MAC.UnmarshalText([]byte(o.Status.Mac)) != nil {
		l.IPs = nil
	}
	return l
}

func subnetOf(o *v1.Vip) string { return cmp.Or(o.Spec.Subnet, v1.DefaultSubnet) }

// vip makes a Vip's address, row and status what they should be. What it had goes
// first, if that is not what it asks for, and once no pod may send from it.
func (t *term) vip(ctx context.Context, k object.Key) error {
	t.rouse(logical.VipPort(k.Name))
	obj, there, err := proven(ctx, t, t.Vips, k)
	if err != nil {
		return err
	}
	held, has := t.book.At(logical.VipPort(k.Name))
	if has && (!there || !t.keeps(obj, held)) {
		if left := t.unshare(k.Name); left > 0 {
			return nil // the last that goes comes back here
		}
		if err := t.DB.Apply(ctx, &ovn.Set{Owner: logical.VipPort(k.Name)}); err != nil {
			return err
		}
		t.release([]core.Lease{held}, false)
	}
	if !there {
		t.calm(k)
		t.seen.Delete(k)
		if has {
			return nil
		}
		return t.DB.Apply(ctx, &ovn.Set{Owner: logical.VipPort(k.Name)})
	}
	o := object.Object{Key: k, UID: string(obj.UID)}
	l, err := t.shared(ctx, obj)
	switch {
	case err == nil:
		t.calm(k)
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, ovn.ErrFenced), ctx.Err() != nil:
		return err
	default:
		err = t.failed(ctx, o, subnetOf(obj), ReasonAcquire, err)
	}
	return errors.Join(t.tellVip(ctx, o, obj, l, err), err)
}

// keeps tells that a lease is what a Vip asks for.
func (t *term) keeps(o *v1.Vip, l core.Lease) bool {
	mac := core.MAC{}
	_ = mac.UnmarshalText([]byte(o.Spec.MacAddress)) // the API server refuses what is none
	return l.Owner.Key.Container == string(o.UID) && l.Subnet == subnetOf(o) &&
		includes(l.IPs, logical.Addrs(o.Spec.V4ip+","+o.Spec.V6ip, ",")) && (len(mac) == 0 || slices.Equal(mac, l.MAC))
}

// shared gives a Vip its address, and writes its row: a former leader cannot. On an error it
// gives what the Vip or a pod has of it on.
func (t *term) shared(ctx context.Context, o *v1.Vip) (core.Lease, error) {
	has := t.vipHas(o.Name)
	net, fault, ok := t.nets.Get(subnetOf(o))
	switch {
	case !ok:
		return has, fmt.Errorf("spec.subnet: Subnet %s: %s", subnetOf(o), cmp.Or(fault, "it is not in force"))
	case net.Name == logical.JoinSubnet:
		return has, fmt.Errorf("spec.subnet: Subnet %s is for nodes alone", net.Name)
	}
	r := ipam.Request{Subnet: net.Subnet, Owner: vipOwner(o.Name, string(o.UID)), IPs: logical.Addrs(o.Spec.V4ip+","+o.Spec.V6ip, ",")}
	if o.Spec.MacAddress != "" {
		if err := r.MAC.UnmarshalText([]byte(o.Spec.MacAddress)); err != nil {
			return has, fmt.Errorf("spec.macAddress: %w", err)
		}
		if bytes.Equal(r.MAC, net.GatewayMAC()) {
			return has, fmt.Errorf("spec.macAddress: %s is that of the gateway of Subnet %s", r.MAC, net.Name)
		}
	}
	if len(has.IPs) == 0 {
		s, err := t.kept(ctx, r.Subnet, r.IPs)
		if r.Subnet = s; err != nil {
			return has, fmt.Errorf("address in Subnet %s: %w", net.Name, err)
		}
	}
	l, fresh, err := t.take(o.Name, r)
	if err != nil {
		return l, fmt.Errorf("address in Subnet %s: %w", net.Name, err)
	}
	err = t.DB.Apply(ctx, logical.Shared(logical.Vip{Name: o.Name, UID: string(o.UID), Subnet: l.Subnet, MAC: l.MAC, IPs: l.IPs}))
	if err != nil {
		if fresh && errors.As(err, new(*ovn.MissingError)) {
			t.release([]core.Lease{l}, true)
			l = core.Lease{}
		}
		return l, err
	}
	t.counted(l.Subnet)
	return l, nil
}

// vipHas is a Vip's lease as the Vip or a pod has it; the zero value is nobody's.
func (t *term) vipHas(vip string) core.Lease {
	if l, has := t.book.At(logical.VipPort(vip)); has {
		return l
	}
	l, _ := t.lent(vip)
	return l
}

// tellVip tells a Vip's object what came of it, and has the pods looked at that
// name it, if that is news. Of one that is refused the lease tells what it has on.
func (t *term) tellVip(ctx context.Context, o object.Object, obj *v1.Vip, l core.Lease, refused error) error {
	want := v1.VipStatus{Ready: refused == nil, Type: obj.Spec.Type, Selector: obj.Spec.Selector}
	if len(l.IPs) > 0 {
		want.Mac = l.MAC.String()
		want.V4ip, want.V6ip = logical.Families(l.IPs)
	}
	want.Conditions, _ = status.Merge(obj.Status.Conditions, status.Conditions(obj.Generation, refused, status.UndoneVip(obj.Spec)))
	if reflect.DeepEqual(obj.Status, want) {
		return nil
	}
	t.sharing(o.Name)
	return gone(t.Status(ctx, o, want))
}

// sharing has pods looked at that name a Vip.
func (t *term) sharing(vip string) {
	for _, p := range t.Pods.List() {
		if slices.Contains(named(p.Annotations, v1.FieldAAPs), vip) {
			t.queue.Add(object.KindPod.Named(p.Namespace, p.Name))
		}
	}
}

// unshare has the pods give a Vip up that share it, and tells how many there are.
func (t *term) unshare(vip string) int {
	left := t.sharers.Of(vip)
	t.queue.Add(left...)
	return len(left)
}

// share fills in which of the Vips that a pod names for an interface it may send from. Of
// one of which it is not known whether it is there the pod waits to be told.
func (t *term) share(ctx context.Context, p object.Pod, g *given) error {
	for _, name := range g.names.AAPs {
		o, ok, err := proven(ctx, t, t.Vips, object.KindVip.Named("", name))
		if err != nil {
			t.awaits(object.KindPod.Named(p.Namespace, p.Name), logical.VipPort(name), "")
			return err
		}
		l, has := t.book.At(logical.VipPort(name))
		why := ""
		if ok {
			why = groups.Forbids(o, p)
		}
		switch {
		case !ok || !has || !t.keeps(o, l):
			why = "it does not exist, or has no address of its own now"
		case l.Subnet != g.net.Name:
			why = "it is of Subnet " + l.Subnet + ", and the interface of " + g.net.Name
		case why == "":
			g.shares, g.vips = append(g.shares, name), append(g.vips, l.IPs...)
			continue
		}
		g.unshared = fmt.Sprintf("interface %s may not send from the addresses of Vip %s: %s", g.nic.IfaceID, name, why)
	}
	return nil
}

// vipFor is the address of a Vip that is to be that of a pod's interface, as its object
// says, whoever has it now; why is why not.
func (t *term) vipFor(p object.Pod, name string) (l core.Lease, why string) {
	o, ok := t.Vips.Get("", name)
	if !ok {
		return l, "it does not exist"
	}
	if l = vipOfStatus(o); !o.Status.Ready || !t.possible(l) {
		return l, "it has no address yet"
	}
	return l, groups.Forbids(o, p)
}

// vipped makes annotations ask for the address of the Vip that one of them names.
func (t *term) vipped(notes map[string]string, p object.Pod, key, name string) {
	at, field, _ := strings.Cut(key, v1.ProviderSuffix)
	suffix, ok := strings.CutPrefix(field, v1.FieldVip) // "." and an interface, if any
	if l, why := t.vipFor(p, strings.TrimSpace(name)); ok && why == "" {
		at += v1.ProviderSuffix
		notes[at+v1.FieldIP+suffix], notes[at+v1.FieldMAC+suffix] = logical.Join(l.IPs), l.MAC.String()
		if notes[at+v1.FieldSubnet] == "" {
			notes[at+v1.FieldSubnet] = l.Subnet
		}
	}
}

// owned is why an interface cannot have the address of a Vip that its pod names; one
// that has an address keeps it.
func (t *term) owned(p object.Pod, n *core.NIC, key, vip string) error {
	if l, has := t.book.At(n.IfaceID); vip == "" || has && l.Owner.Key.Container == p.UID {
		return nil
	}
	l, why := t.vipFor(p, vip)
	switch {
	case why != "":
		return &absentError{logical.VipPort(vip), annotation.Refused(core.CodeValue, key, vip, "is no Vip whose address the interface can have: %s", why)}
	case l.Subnet != n.Subnet.Name:
		return annotation.Refused(core.CodeConflict, key, vip, "is a Vip of Subnet %s, and the interface is asked to be in %s", l.Subnet, n.Subnet.Name)
	case !slices.Equal(l.IPs, n.IPs):
		return annotation.Refused(core.CodeConflict, key, vip, "is a Vip with %s, and the interface is asked to have %s", logical.Join(l.IPs), logical.Join(n.IPs))
	}
	return nil
}

// take gives a Vip its lease, unless its address is a pod's now: what that has then.
func (t *term) take(vip string, r ipam.Request) (l core.Lease, fresh bool, err error) {
	t.lending.Lock()
	defer t.lending.Unlock()
	if _, has := t.book.At(logical.VipPort(vip)); !has {
		if l, lent := t.lent(vip); lent {
			return l, false, nil
		}
	}
	return t.book.Acquire(r)
}

// borrow is book.Acquire for an interface whose address is to be a Vip's, "" for
// none's.
func (t *term) borrow(vip string, r ipam.Request, left []core.Lease) (core.Lease, bool, error) {
	if vip == "" {
		return t.book.Acquire(r, left...)
	}
	t.lending.Lock()
	defer t.lending.Unlock()
	own, has := t.book.At(logical.VipPort(vip))
	if has {
		left = append(slices.Clip(left), own)
	}
	l, fresh, err := t.book.Acquire(r, left...)
	if _, still := t.book.At(logical.VipPort(vip)); has && !still {
		t.sharing(vip)
	}
	return l, fresh, err
}

// lent tells that a Vip's address is that of a pod's interface now, or is kept for the
// next pod of a name. A pod took it by the object's status, which is read anew, and has it
// whatever became of the Vip since.
func (t *term) lent(vip string) (core.Lease, bool) {
	o, ok := t.Vips.Get("", vip)
	if !ok {
		return core.Lease{}, false
	}
	l := vipOfStatus(o)
	if len(l.IPs) == 0 || !slices.ContainsFunc(t.book.Who(l.IPs[0]), func(by core.Lease) bool { return borrowed(by, l) }) {
		return core.Lease{}, false
	}
	return l, true
}

// borrowed tells that a pod's lease is a Vip's, which went over with the MAC. What the
// pod's annotations say now, whoever wrote it, does not count.
func borrowed(by, vip core.Lease) bool {
	return by.Owner.Pod.Name != "" && by.Subnet == vip.Subnet && slices.Equal(by.IPs, vip.IPs) && slices.Equal(by.MAC, vip.MAC)
}

// returned gives an address that a pod had to the Vip whose it is. It is not free for
// a moment.
func (t *term) returned(l core.Lease) bool {
	net, _, _ := t.nets.Get(l.Subnet)
	for _, o := range t.Vips.List() {
		want := vipOfStatus(o)
		if !borrowed(l, want) {
			continue
		}
		if _, has := t.book.At(logical.VipPort(o.Name)); has {
			continue
		}
		_, _, err := t.book.Acquire(ipam.Request{Subnet: net.Subnet, Owner: want.Owner, IPs: l.IPs, MAC: l.MAC}, l)
		t.sharing(o.Name)
		return err == nil
	}
	return false
}
