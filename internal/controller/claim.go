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
		Counted: t.counted, Freed: t.rouse,
		Look: func(pod core.Pod) { t.queue.Add(object.KindPod.Named(pod.Namespace, pod.Name)) },
	}
}

// claim makes the objects of a pod's addresses that need some. An address that
// another has claimed is that one's: nothing is given then.
func (t *term) claim(ctx context.Context, o object.Object, all []given) error {
	for _, g := range all {
		if !g.claimed() {
			continue
		}
		for _, want := range claim.Objects(g.lease, g.ifName, t.keeperOf(g.lease.Owner.Pod)) {
			by, err := t.claims.Make(ctx, want)
			if err == nil {
				continue
			}
			if !errors.Is(err, core.ErrHeld) {
				return err // the objects may be there: what was acquired is kept
			}
			lost := fresh(all)
			if !g.fresh {
				lost = append(lost, g.lease)
			}
			if err := t.free(ctx, lost); err != nil {
				return err
			}
			t.claims.Bar(by)
			if g.fresh && len(g.nic.IPs) > 0 {
				return t.failed(ctx, o, g.net.Name, ReasonAcquire, fmt.Errorf("address in Subnet %s: %w", g.net.Name, err))
			}
			return err // another address is chosen
		}
		fail.Here("controller.claimed")
	}
	return nil
}

// free removes the claims of leases, and then gives their addresses back.
func (t *term) free(ctx context.Context, leases []core.Lease) error {
	for _, l := range leases {
		if book.Reservation(l) {
			continue
		}
		if err := t.claims.Free(ctx, l); err != nil {
			return err
		}
	}
	t.release(leases, false)
	return nil
}

// adopt makes the book say what a pod was told of Subnets whose addresses are claimed,
// where a claim proves it: another controller told it. What no claim proves a tenant
// wrote.
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
		if has {
			t.release([]core.Lease{have}, false) // its claims go when the pod is looked at the next time
		}
		for _, ip := range l.IPs {
			t.book.Unbar(fairlead.LeaseName(l.Subnet, ip))
		}
		if _, _, err := t.book.Acquire(ipam.Request{Subnet: net.Subnet, Owner: l.Owner, IPs: l.IPs, MAC: l.MAC, NoMAC: l.MAC == nil, Family: familyOf(l.IPs)}); err != nil {
			t.Log.Error("a pod was told an address that another has", "pod", p.Pod, "ips", logical.Join(l.IPs), "err", err)
		}
	}
	return nil
}

// familyOf is the only family of some addresses, AnyFamily for both.
func familyOf(ips []netip.Addr) core.Family {
	if len(ips) == 1 {
		return core.FamilyOf(ips[0])
	}
	return core.AnyFamily
}

// restoreClaims adds what pods have claimed.
func (t *term) restoreClaims(r *restoring) {
	leases, keepers := t.claims.Restored()
	for pod, by := range keepers {
		t.keptBy(pod, object.ReadOwner(by))
	}
	for _, l := range leases {
		if by, ok := r.add(l); !ok {
			t.Log.Error("an AddressLease is of an address that another has", "subnet", l.Subnet, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
		}
	}
}
