package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// keepClaims makes the keeper of the objects of addresses that have no rows.
func (t *term) keepClaims() {
	live := func(pod core.Pod) (object.Pod, bool) {
		p, ok := t.Pods.Get(pod.Namespace, pod.Name)
		return p, ok && !p.Done
	}
	t.claims = &claim.Keeper{
		Reader: t.Claims, Writer: t.Outcomes, Book: t.book,
		Net:  func(name string) (core.Subnet, bool) { net, _, ok := t.nets.Get(name); return net.Subnet, ok },
		Live: func(pod core.Pod) (string, bool) { p, ok := live(pod); return p.UID, ok },
		Told: func(pod core.Pod) []core.Lease {
			if p, ok := live(pod); ok {
				return t.fromNotes(p)
			}
			return nil
		},
		Attached: func(pod core.Pod, ips []netip.Addr) (is, placed bool) {
			p, _ := live(pod)
			return p.Has(ips), p.Node != ""
		},
		Counted: t.counted, Freed: t.rouse,
		Look: func(pod core.Pod) { t.queue.Add(object.KindPod.Named(pod.Namespace, pod.Name)) },
	}
}

// claim makes the objects of a pod's addresses that need some, and of a MAC that it
// asks for.
func (t *term) claim(ctx context.Context, o object.Object, all []given) error {
	for _, g := range all {
		if !g.claimed() {
			continue
		}
		t.claims.Observe(g.lease)
		for _, want := range claim.Objects(g.lease, g.ifName, t.keeperOf(g.lease.Owner.Pod)) {
			err := t.claims.Make(ctx, want)
			if err == nil {
				fail.Here("controller.claiming")
				continue
			}
			if held := (*claim.HeldError)(nil); errors.As(err, &held) {
				err = t.lost(ctx, o, all, g, held)
			}
			if err != nil {
				return err // the objects may be there: what was acquired is kept
			}
		}
		fail.Here("controller.claimed")
	}
	return nil
}

// lost gives back what a pod acquired of which another has claimed a part.
func (t *term) lost(ctx context.Context, o object.Object, all []given, g given, held *claim.HeldError) error {
	if held.MAC != "" && t.claims.Kept(g.lease) { // both have it since MACs were not claimed
		t.Log.Error("two pods have one MAC", "subnet", g.net.Name, "pod", o.Key, "err", held)
		return nil
	}
	if err := t.free(ctx, t.fresh(all), true); err != nil {
		return err
	}
	if !g.fresh {
		if err := t.free(ctx, []core.Lease{g.lease}, false); err != nil {
			return err
		}
	}
	if is, err := t.claims.Bar(ctx, held.By); err != nil || !is {
		return errors.Join(err, held) // it is gone: what it held may be had
	}
	if g.fresh && len(g.nic.IPs) > 0 || held.MAC != "" {
		return t.failed(ctx, o, g.net.Name, ReasonAcquire, fmt.Errorf("address in Subnet %s: %w", g.net.Name, held))
	}
	return held // another address is chosen
}

// free removes the claims of leases, and then gives their addresses back, as release does.
func (t *term) free(ctx context.Context, leases []core.Lease, cancelled bool) error {
	for _, l := range leases {
		if book.Reservation(l) {
			continue
		}
		if err := t.claims.Free(ctx, l); err != nil {
			return err
		}
	}
	t.release(leases, cancelled)
	return nil
}

// adopt makes the book say what a pod was told of Subnets whose addresses are claimed,
// where a claim proves it: another controller told it. What no claim proves a tenant
// wrote. What was claimed by half goes.
func (t *term) adopt(ctx context.Context, p object.Pod) error {
	for _, l := range t.fromNotes(p) {
		net, _, _ := t.nets.Get(l.Subnet)
		have, has := t.book.At(l.Owner.Key.IfName)
		if !claim.Needed(net.Subnet) || has && have.Owner.Key == l.Owner.Key && have.Subnet == l.Subnet && slices.Equal(have.IPs, l.IPs) {
			continue
		}
		proven, err := t.claims.Proven(ctx, l)
		if err != nil {
			return err
		}
		if !proven {
			continue
		}
		if has && have.Owner.Pod.String() == p.Pod.String() {
			t.release([]core.Lease{have}, false) // its claims go when the pod is looked at the next time
		}
		t.enter(net.Subnet, l)
	}
	halves, err := t.claims.FreeHalves(ctx, p.Pod)
	t.release(halves, false)
	return err
}

// enter puts a lease that a claim proves into the book.
func (t *term) enter(net core.Subnet, l core.Lease) {
	for _, ip := range l.IPs {
		t.book.Unbar(fairlead.LeaseName(l.Subnet, ip))
	}
	if _, _, err := t.book.Acquire(ipam.Request{Subnet: net, Owner: l.Owner, IPs: l.IPs, MAC: l.MAC, NoMAC: l.MAC == nil, Family: core.OnlyFamily(l.IPs)}); err != nil {
		t.Log.Error("a pod was told an address that another has", "pod", l.Owner.Pod, "ips", logical.Join(l.IPs), "err", err)
	}
}

// restoreClaims adds what pods have claimed.
func (t *term) restoreClaims(r *book.Gathering) {
	leases, keepers := t.claims.Restored()
	for pod, by := range keepers {
		t.keptBy(pod, object.ReadOwner(by))
	}
	for _, l := range leases {
		t.claims.Observe(l)
		t.nets.Came(l.Subnet, logical.Prefix(l.Owner.Pod, l.Owner.Key.IfName))
		if by, ok := r.Add(l); !ok {
			t.Log.Error("an AddressLease is of an address that another has", "subnet", l.Subnet, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
}
