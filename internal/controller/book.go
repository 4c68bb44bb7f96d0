package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// book says who has which address: leases by logical port and UID. It is made
// of the database and the objects when a controller begins to lead.
type book struct {
	ipam *ipam.Allocator

	mu     sync.Mutex
	pods   map[string]map[core.Key]core.Lease // by namespace/name of the pod
	ports  map[string]core.Lease              // by logical port
	counts map[string]int                     // leases by Subnet, a node's too
	closed map[string]bool                    // Subnets whose rows are being removed
}

func newBook() *book {
	return &book{ipam: ipam.New(), pods: map[string]map[core.Key]core.Lease{}, ports: map[string]core.Lease{}, counts: map[string]int{}, closed: map[string]bool{}}
}

// owner is who has the address of a logical port. uid is that of a pod or node.
func owner(pod core.Pod, uid, port string) core.Owner {
	return core.Owner{Key: core.Key{Container: uid, IfName: port}, Pod: pod}
}

// restore fills an empty book. Of two leases that claim one address the first
// counts, and the error names the other.
func (b *book) restore(leases []core.Lease) error {
	err := b.ipam.Restore(leases, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.ipam.Leases() {
		b.enter(l)
	}
	return err
}

// enter notes a lease. The caller holds mu.
func (b *book) enter(l core.Lease) {
	name := l.Owner.Pod.String()
	if b.pods[name] == nil {
		b.pods[name] = map[core.Key]core.Lease{}
	}
	if _, has := b.pods[name][l.Owner.Key]; !has {
		b.counts[l.Subnet]++
	}
	b.pods[name][l.Owner.Key] = l
	b.ports[l.Owner.Key.IfName] = l
}

// at is the lease of a logical port.
func (b *book) at(port string) (core.Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.ports[port]
	return l, ok
}

// all are the leases by port, in no order.
func (b *book) all() []core.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.ports))
}

// of are the leases of all pods that had a name, by port.
func (b *book) of(pod core.Pod) []core.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.pods[pod.String()]), func(x, y core.Lease) int {
		return cmp.Or(cmp.Compare(x.Owner.Key.IfName, y.Owner.Key.IfName), cmp.Compare(x.Owner.Key.Container, y.Owner.Key.Container))
	})
}

// acquire gives the lease that an owner has, or the one among left that is of its
// port, which goes over to it without being free for a moment, or a fresh one.
func (b *book) acquire(r ipam.Request, left ...core.Lease) (l core.Lease, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, has := b.pods[r.Owner.Pod.String()][r.Owner.Key]; has && l.Subnet == r.Subnet.Name {
		return l, false, nil
	}
	if b.closed[r.Subnet.Name] {
		return core.Lease{}, false, fmt.Errorf("its rows are being removed: %w", core.ErrUnavailable)
	}
	i := slices.IndexFunc(left, func(l core.Lease) bool { return l.Owner.Key.IfName == r.Owner.Key.IfName })
	if i >= 0 && b.has(left[i]) {
		b.drop(left[i])
		b.ipam.Release(left[i])
		r.IPs, r.MAC, r.Pool = left[i].IPs, left[i].MAC, nil
	}
	if l, err = b.ipam.Acquire(r); err != nil {
		return l, false, err
	}
	b.enter(l)
	return l, i < 0 || reservation(left[i]), nil
}

// has tells that a lease is in the book. The caller holds mu.
func (b *book) has(l core.Lease) bool {
	have, has := b.pods[l.Owner.Pod.String()][l.Owner.Key]
	return has && have.Subnet == l.Subnet
}

// drop takes a lease out of the book. The caller holds mu.
func (b *book) drop(l core.Lease) {
	name := l.Owner.Pod.String()
	delete(b.pods[name], l.Owner.Key)
	if len(b.pods[name]) == 0 {
		delete(b.pods, name)
	}
	if b.ports[l.Owner.Key.IfName].Owner == l.Owner {
		delete(b.ports, l.Owner.Key.IfName)
	}
	if b.counts[l.Subnet]--; b.counts[l.Subnet] == 0 {
		delete(b.counts, l.Subnet)
	}
}

// forget frees a lease whose row is gone; cancelled tells that it never had one.
func (b *book) forget(l core.Lease, cancelled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has(l) {
		return
	}
	b.drop(l)
	if cancelled {
		b.ipam.Cancel(l)
	} else {
		b.ipam.Release(l)
	}
}

// shut keeps a Subnet from giving addresses, unless somebody has one of it.
func (b *book) shut(subnet string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counts[subnet] > 0 {
		return false
	}
	b.closed[subnet] = true
	return true
}

// empty tells that nobody has an address of a Subnet.
func (b *book) empty(subnet string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[subnet] == 0
}

// open undoes shut.
func (b *book) open(subnet string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.closed, subnet)
}

// portOf is the prefix of a logical port's annotations: what follows the pod in
// its name, "ovn" for nothing (sdn.md, 2).
func portOf(pod core.Pod, port string) string {
	rest, ok := strings.CutPrefix(port, pod.Name+"."+pod.Namespace)
	if rest = strings.TrimPrefix(rest, "."); !ok || rest == "" {
		return v1.DefaultProvider
	}
	return rest
}

// nodeOwner has the address of a node.
func nodeOwner(name string) core.Owner { return owner(core.Pod{}, "", logical.NodePort(name)) }
