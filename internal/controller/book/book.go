// Package book says who has which address: leases by logical port and UID. It is
// made of the database and the objects when a controller begins to lead, and must
// not know either.
package book

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
)

// Book is the leases of a cluster. Its methods may be called at once from many
// goroutines.
type Book struct {
	*ipam.Allocator // which knows what is free; it is asked, and changed by Book alone

	mu     sync.Mutex
	pods   map[string]map[core.Key]core.Lease // by namespace/name of the pod
	ports  map[string]core.Lease              // by logical port
	counts map[string]int                     // leases by Subnet, a node's too
	closed map[string]bool                    // Subnets whose rows are being removed
	barred map[string]core.Lease              // by the name of what bars them
}

// New makes an empty one.
func New() *Book {
	return &Book{Allocator: ipam.New(), pods: map[string]map[core.Key]core.Lease{}, ports: map[string]core.Lease{}, counts: map[string]int{}, closed: map[string]bool{}, barred: map[string]core.Lease{}}
}

// Restore fills an empty book. Of two leases that claim one address the first
// counts, and the error names the other.
func (b *Book) Restore(leases []core.Lease) error {
	err := b.Allocator.Restore(leases, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.Allocator.Leases() {
		b.enter(l)
	}
	return err
}

// enter notes a lease. The caller holds mu. The first pod that has a port keeps it: names
// of pods and of networks have dots, so that ports of two pods may have one name.
func (b *Book) enter(l core.Lease) {
	name := l.Owner.Pod.String()
	if b.pods[name] == nil {
		b.pods[name] = map[core.Key]core.Lease{}
	}
	if _, has := b.pods[name][l.Owner.Key]; !has {
		b.counts[l.Subnet]++
	}
	b.pods[name][l.Owner.Key] = l
	if by := b.ports[l.Owner.Key.IfName]; !others(by, l.Owner) {
		b.ports[l.Owner.Key.IfName] = l
	}
}

// others tells that a lease, if it is one, is of another pod than an owner's.
func others(l core.Lease, o core.Owner) bool {
	return !l.Owner.Pod.IsZero() && l.Owner.Pod.String() != o.Pod.String()
}

// At is the lease of a logical port.
func (b *Book) At(port string) (core.Lease, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.ports[port]
	return l, ok
}

// All are the leases, in no order.
func (b *Book) All() []core.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []core.Lease
	for _, of := range b.pods {
		out = slices.AppendSeq(out, maps.Values(of))
	}
	return out
}

// Misfit is the lowest address that is in use in a Subnet and that, declared so, it would
// not give: it lies outside, or is the gateway's. port is who has it; the zero address is
// none. A lease of port beside does not count.
func (b *Book) Misfit(s core.Subnet, beside string) (misfit netip.Addr, port string) {
	if b.Empty(s.Name) { // as that of one more Subnet is, however many pods there are
		return misfit, port
	}
	for _, l := range b.All() {
		if l.Subnet != s.Name || l.Owner.Key.IfName == beside {
			continue
		}
		for _, ip := range l.IPs {
			if !Gives(s, ip) && (!misfit.IsValid() || ip.Less(misfit)) {
				misfit, port = ip, l.Owner.Key.IfName
			}
		}
	}
	return misfit, port
}

// Gives tells that an address is one that a Subnet may give.
func Gives(s core.Subnet, ip netip.Addr) bool {
	return annotation.Within(ip, s.CIDRs) && !slices.Contains(s.Gateways, ip)
}

// Given reads a list of addresses, divided by commas, of which each is one that a
// Subnet gives; nil for any that is not.
func Given(net core.Subnet, value string) (out []netip.Addr) {
	for text := range strings.SplitSeq(value, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil || !Gives(net, ip) {
			return nil
		}
		out = append(out, ip)
	}
	if annotation.OnePerFamily(out) != nil {
		return nil
	}
	return out
}

// Of are the leases of all pods that had a name, by port.
func (b *Book) Of(pod core.Pod) []core.Lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.SortedFunc(maps.Values(b.pods[pod.String()]), func(x, y core.Lease) int {
		return cmp.Or(cmp.Compare(x.Owner.Key.IfName, y.Owner.Key.IfName), cmp.Compare(x.Owner.Key.Container, y.Owner.Key.Container))
	})
}

// Acquire gives the lease that an owner has, or the one among left that is of its
// port, which goes over to it without being free for a moment, or a fresh one. So goes
// over, between a pod and an object that has addresses of itself, the one among left that
// has the addresses asked for.
func (b *Book) Acquire(r ipam.Request, left ...core.Lease) (l core.Lease, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, has := b.pods[r.Owner.Pod.String()][r.Owner.Key]; has && l.Subnet == r.Subnet.Name {
		return l, false, nil
	}
	if b.closed[r.Subnet.Name] {
		return core.Lease{}, false, fmt.Errorf("its rows are being removed: %w", core.ErrUnavailable)
	}
	if by := b.ports[r.Owner.Key.IfName]; others(by, r.Owner) {
		return core.Lease{}, false, fmt.Errorf("logical port %s is %w by pod %s, whose name and network come to the same", r.Owner.Key.IfName, core.ErrHeld, by.Owner.Pod)
	}
	i := slices.IndexFunc(left, func(l core.Lease) bool { return l.Owner.Key.IfName == r.Owner.Key.IfName || changes(l, r) })
	if i >= 0 && b.has(left[i]) {
		b.drop(left[i])
		b.Allocator.Release(left[i])
		r.IPs, r.MAC, r.Pool = left[i].IPs, left[i].MAC, nil
		r.Ranges = nil
	}
	if l, err = b.Allocator.Acquire(r); err != nil {
		return l, false, err
	}
	b.enter(l)
	return l, i < 0 || Reservation(left[i]) || changes(left[i], r), nil
}

// Widen has a lease, which it gives, have an address also of each other family of its
// Subnet. On an error, of a family that is full, the lease is as it was.
func (b *Book) Widen(l core.Lease, net core.Subnet) (core.Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has(l) || len(l.IPs) == 0 || slices.ContainsFunc(l.IPs, func(ip netip.Addr) bool { return !Gives(net, ip) }) {
		return l, nil
	}
	b.Allocator.Release(l)
	r := ipam.Request{Subnet: net, Owner: l.Owner, IPs: l.IPs, MAC: l.MAC}
	wide, err := b.Allocator.Acquire(r)
	if err != nil {
		r.Family = core.FamilyOf(l.IPs[0])
		wide, _ = b.Allocator.Acquire(r) // nobody else asks meanwhile
	}
	b.enter(wide)
	return wide, err
}

// Exchange has an owner have what r asks for in the place of its lease, which it keeps on an
// error, if the Subnet still gives that.
func (b *Book) Exchange(l core.Lease, r ipam.Request) (core.Lease, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(l)
	b.Allocator.Release(l)
	now, err := b.Allocator.Acquire(r)
	if err != nil {
		r.IPs, r.MAC = l.IPs, l.MAC
		if len(l.IPs) == 1 {
			r.Family = core.FamilyOf(l.IPs[0])
		}
		var lost error
		if now, lost = b.Allocator.Acquire(r); lost != nil { // nobody else asked meanwhile
			return core.Lease{}, err
		}
	}
	b.enter(now)
	return now, err
}

// changes tells that what is asked for goes over between a pod and what is none.
func changes(l core.Lease, r ipam.Request) bool {
	return (l.Owner.Pod.Name == "") != (r.Owner.Pod.Name == "") && l.Subnet == r.Subnet.Name && len(r.IPs) > 0 && slices.Equal(l.IPs, r.IPs)
}

// has tells that a lease is in the book. The caller holds mu.
func (b *Book) has(l core.Lease) bool {
	have, has := b.pods[l.Owner.Pod.String()][l.Owner.Key]
	return has && have.Subnet == l.Subnet
}

// drop takes a lease out of the book. The caller holds mu.
func (b *Book) drop(l core.Lease) {
	name := l.Owner.Pod.String()
	delete(b.pods[name], l.Owner.Key)
	if len(b.pods[name]) == 0 {
		delete(b.pods, name)
	}
	if b.ports[l.Owner.Key.IfName].Owner == l.Owner {
		delete(b.ports, l.Owner.Key.IfName)
	}
	b.less(l.Subnet)
}

// Forget frees a lease whose row is gone; cancelled tells that it never had one.
func (b *Book) Forget(l core.Lease, cancelled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.has(l) {
		return
	}
	b.drop(l)
	if cancelled {
		b.Allocator.Cancel(l)
	} else {
		b.Allocator.Release(l)
	}
}

// Bar keeps an address from being given, by a name; somebody has it who has no lease
// here. It may be repeated.
func (b *Book) Bar(name string, r ipam.Request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, has := b.barred[name]; has {
		return nil
	}
	r.Owner.Key = core.Key{Container: "barred", IfName: name}
	l, err := b.Allocator.Acquire(r)
	if err != nil {
		return fmt.Errorf("bar %s: %w", name, err)
	}
	b.barred[name] = l
	b.counts[l.Subnet]++
	return nil
}

// Unbar undoes Bar; false where there was none.
func (b *Book) Unbar(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, has := b.barred[name]
	if !has {
		return false
	}
	delete(b.barred, name)
	b.Allocator.Release(l)
	b.less(l.Subnet)
	return true
}

// less counts a lease of a Subnet that is no more. The caller holds mu.
func (b *Book) less(subnet string) {
	if b.counts[subnet]--; b.counts[subnet] == 0 {
		delete(b.counts, subnet)
	}
}

// Shut keeps a Subnet from giving addresses, unless somebody has one of it.
func (b *Book) Shut(subnet string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counts[subnet] > 0 {
		return false
	}
	b.closed[subnet] = true
	return true
}

// Empty tells that nobody has an address of a Subnet.
func (b *Book) Empty(subnet string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[subnet] == 0
}

// Open undoes Shut.
func (b *Book) Open(subnet string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.closed, subnet)
}

// Drop forgets a Subnet that is no more and whose rows are gone, with what Shut did, unless
// somebody has an address of it.
func (b *Book) Drop(subnet string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.counts[subnet] == 0 {
		delete(b.closed, subnet)
		b.Allocator.Drop(subnet)
	}
}

// reserving is how the Container of an owner begins that is an object and no pod.
const reserving = "ip:"

// Reserving is the Container of a lease that an object has of itself.
func Reserving(uid string) string { return reserving + uid }

// Reservation tells that a lease is an object's, made by a user before any pod: it
// has no row in the database.
func Reservation(l core.Lease) bool { return strings.HasPrefix(l.Owner.Key.Container, reserving) }
