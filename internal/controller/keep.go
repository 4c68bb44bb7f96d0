package controller

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// keptBy notes what keeps the addresses of pods of a name: a StatefulSet or a virtual
// machine, whose next pod of the name has them again. Other owners keep none.
func (t *term) keptBy(pod core.Pod, o object.Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.Kind != string(object.KindSet) && (o.Kind != string(object.KindMachine) || t.Machines == nil) {
		delete(t.keepers, pod.String())
		return
	}
	t.keepers[pod.String()] = o
}

func (t *term) keeperOf(pod core.Pod) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keepers[pod.String()].String()
}

// keeper has pods looked at that are gone and whose addresses a StatefulSet or a virtual
// machine kept; where that has no name, those of all of its kind, and those that are there.
func (t *term) keeper(k object.Key) {
	var keys []object.Key
	t.mu.Lock()
	for name, by := range t.keepers {
		namespace, pod, _ := strings.Cut(name, "/")
		if by.Kind == string(k.Kind) && (k.Name == "" || namespace == k.Namespace && by.Name == k.Name) {
			keys = append(keys, object.KindPod.Named(namespace, pod))
		}
	}
	t.mu.Unlock()
	t.queue.Add(slices.DeleteFunc(keys, func(k object.Key) bool { _, live := t.Pods.Get(k.Namespace, k.Name); return live })...)
	if k.Kind != object.KindMachine {
		return
	}
	for _, p := range t.Pods.List() {
		if p.Machine && (k.Name == "" || p.Namespace == k.Namespace && p.Name == k.Name) {
			t.queue.Add(object.KindPod.Named(p.Namespace, p.Name))
		}
	}
}

// wanted tells that what made the pods of a name is there and will make another: the same
// StatefulSet, not ending, with a replica of that ordinal, or the same virtual machine. One
// of which nothing is known is taken to be there.
func (t *term) wanted(pod core.Pod) bool {
	t.mu.Lock()
	by, has := t.keepers[pod.String()]
	t.mu.Unlock()
	if !has {
		return false
	}
	if by.Kind == string(object.KindMachine) {
		m, there, known := t.Machines.Get(pod.Namespace, by.Name)
		return !known || there && m.UID == by.UID && !m.Ending
	}
	s, ok := t.Sets.Get(pod.Namespace, by.Name)
	at, numbered := resolve.Ordinal(pod.Name)
	return ok && numbered && s.UID == by.UID && !s.Ending && at >= s.First && at < s.First+s.Replicas
}

// stays tells that a name's leases outlive its pods: a StatefulSet or an IP object
// that a user made keeps them, and the Subnet still has them.
func (t *term) stays(pod core.Pod, leases []core.Lease) bool {
	wanted := t.wanted(pod)
	return !slices.ContainsFunc(leases, func(l core.Lease) bool {
		net, _, ok := t.nets.Get(l.Subnet)
		return !ok || !gives(net.Subnet, l.IPs) || !wanted && !t.reserved(l)
	})
}

// gives tells that a Subnet may give all of some addresses.
func gives(net core.Subnet, ips []netip.Addr) bool {
	return !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return !book.Gives(net, ip) })
}

// inherits tells that all that is left of an earlier pod of the name is what the
// interfaces of this one would get: it goes over to them. A reservation for an
// interface that the pod does not have stays what it is.
func (t *term) inherits(pod core.Pod, nics []nic, left []core.Lease) bool {
	if !t.stays(pod, left) {
		return len(left) == 0
	}
	return !slices.ContainsFunc(left, func(l core.Lease) bool {
		i := slices.IndexFunc(nics, func(n nic) bool { return n.IfaceID == l.Owner.Key.IfName })
		return i < 0 && !book.Reservation(l) || i >= 0 && !fits(l, nics[i])
	})
}

// fits tells that a lease is what an interface asks for.
func fits(l core.Lease, n nic) bool {
	families := 0
	for _, c := range n.Subnet.CIDRs {
		if n.Family.Has(c.Addr()) {
			families++
		}
	}
	return l.Subnet == n.Subnet.Name && n.pool.Keeps(l.IPs) && len(l.IPs) == families && includes(l.IPs, n.IPs) && (len(n.MAC) == 0 || slices.Equal(l.MAC, n.MAC)) &&
		!slices.ContainsFunc(l.IPs, func(ip netip.Addr) bool { return !n.Family.Has(ip) }) &&
		(len(n.Pool) == 0 || slices.ContainsFunc(n.Pool, func(some []netip.Addr) bool { return includes(l.IPs, some) }))
}

// includes tells that all of some addresses are among others.
func includes(all, some []netip.Addr) bool {
	return !slices.ContainsFunc(some, func(ip netip.Addr) bool { return !slices.Contains(all, ip) })
}

// split divides leases into those of one incarnation of a pod and the others.
func split(all []core.Lease, uid string) (own, others []core.Lease) {
	for _, l := range all {
		if l.Owner.Key.Container == uid {
			own = append(own, l)
		} else {
			others = append(others, l)
		}
	}
	return own, others
}
