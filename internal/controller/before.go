package controller

import (
	"context"
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// ReasonAddress is the reason of events about addresses that are not what a pod has.
const ReasonAddress = "AddressDiffers"

// restoreBefore adds what pods have that ran before there was a controller: their
// agents chose it. It counts last, since a tenant may write what agents say; but the
// addresses of eth0 are those that kubelet tells of the pod.
func (t *term) restoreBefore(ctx context.Context, r *book.Gathering) {
	for _, p := range t.Pods.List() {
		for _, l := range t.fromBefore(ctx, p) {
			if by, ok := r.Add(l); !ok && by.Key != l.Owner.Key {
				t.Log.Error("a pod that runs has an address that another has", "pod", p.Pod, "ips", logical.Join(l.IPs), "holder", by.Pod, "port", by.Key.IfName)
			}
		}
	}
}

// fromBefore are the leases that a pod has that runs, and was told nothing.
func (t *term) fromBefore(ctx context.Context, p object.Pod) (out []core.Lease) {
	if len(p.IPs) == 0 || p.Done || p.Host {
		return nil
	}
	nics, err := t.nics(ctx, p, nil)
	if err != nil {
		return nil // when it is served, its event says why
	}
	has := p.Attached()
	for _, nic := range nics {
		if p.Annotations[logical.Prefix(p.Pod, nic.IfaceID)+v1.ProviderSuffix+v1.FieldAllocated] == "true" {
			continue
		}
		is := has[nic.ifName]
		l := core.Lease{Subnet: nic.Subnet.Name, IPs: book.Given(nic.Subnet, logical.Join(is.IPs)), MAC: is.MAC, Owner: owner(p.Pod, p.UID, nic.IfaceID)}
		if len(l.IPs) > 0 && (l.MAC != nil || claim.Needed(nic.Subnet)) {
			out = append(out, l)
		}
	}
	return out
}

// differs says of a pod that runs with other addresses than it is given, "" of any
// other: until it is made again, nothing reaches it.
func differs(p object.Pod, all []given) string {
	at := slices.IndexFunc(all, func(g given) bool { return g.lease.Owner.Key.IfName == defaultPort(p.Pod) })
	if at < 0 || len(p.IPs) == 0 || same(p.IPs, all[at].lease.IPs) {
		return ""
	}
	return "the pod runs with " + logical.Join(p.IPs) + ", and is to have " + logical.Join(all[at].lease.IPs) + ": delete it, so that it is made again"
}

// same tells that two lists are of the same addresses.
func same(a, b []netip.Addr) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(ip netip.Addr) bool { return !slices.Contains(b, ip) })
}
