// Package claim keeps two controllers from giving one address of a Subnet twice of
// which OVN has no rows. Such a Subnet, of a provider that is not OVN's, gives
// addresses and no more: its pods' interfaces are of plugins such as macvlan, and the
// fence of the northbound database says nothing of them. Each of its addresses is an
// object, an AddressLease, that the API server makes once: it is made before a pod is
// told, and goes before the address is free. Rows that stand for nothing would do as
// well, and northd would work on each; and these addresses are given while the
// database is away.
//
// Two controllers may still choose two addresses for one pod. Only one can tell it:
// such a pod is told on the condition that it is as it was known. The other finds it
// told, and its own claim is dropped.
//
// The package must not know where objects are stored, nor what else a pod has.
package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Annotations of an AddressLease: the logical port, and what keeps the address for
// it, as the IP object has that.
const (
	notePort   = "fairlead.io/port"
	noteKeeper = "fairlead.io/keeper"
)

// kindPod is the kind of owners that are pods.
const kindPod = "Pod"

// Needed tells that a Subnet's addresses are claimed by objects: OVN has no rows of it.
func Needed(net core.Subnet) bool { return !v1.Routed(net.Provider) }

// Reader tells which objects there are.
type Reader struct {
	// Get gives one as it is known, List all, Of those of all pods that had a name.
	Get  func(name string) (*fairlead.AddressLease, bool)
	List func() []*fairlead.AddressLease
	Of   func(core.Pod) []*fairlead.AddressLease
	// Now asks for one as it is at this moment; core.ErrNotFound is proof.
	Now func(ctx context.Context, name string) (*fairlead.AddressLease, error)
	// Gone asks whether the pod of that UID is gone, or has ended for good: true is
	// proof. "" is any pod of the name.
	Gone func(context.Context, core.Pod) (bool, error)

	none bool // Nobody
}

// Nobody has no objects: on a machine without a cluster plugins' interfaces get their
// addresses from the agent, which is the only one.
func Nobody() Reader {
	return Reader{
		Get:  func(string) (*fairlead.AddressLease, bool) { return nil, false },
		List: func() []*fairlead.AddressLease { return nil },
		Of:   func(core.Pod) []*fairlead.AddressLease { return nil },
		Now: func(context.Context, string) (*fairlead.AddressLease, error) {
			return nil, core.ErrNotFound
		},
		Gone: func(context.Context, core.Pod) (bool, error) { return true, nil },
		none: true,
	}
}

// Claims tells that addresses of such Subnets are given.
func (r Reader) Claims() bool { return !r.none }

// Writer makes and deletes objects.
type Writer interface {
	// PutClaim makes the object of an address, or makes have what want is: of two
	// who do so at once one has it, the other core.ErrExists.
	PutClaim(ctx context.Context, have, want *fairlead.AddressLease) error
	// DropClaim deletes an object as it is known; one that is gone is success.
	DropClaim(ctx context.Context, have *fairlead.AddressLease) error
}

// Keeper makes objects and book agree.
type Keeper struct {
	Reader
	Writer
	Book *book.Book
	// Net is a Subnet in force.
	Net func(name string) (core.Subnet, bool)
	// Live is the UID of the pod of a name, if it is known and has not ended.
	Live func(core.Pod) (uid string, ok bool)
	// Told are the leases that the pod of a name was told.
	Told func(core.Pod) []core.Lease
	// Attached tells that the node of the pod of a name says of it that it has one of
	// some addresses, and that the pod has a node.
	Attached func(pod core.Pod, ips []netip.Addr) (is, placed bool)
	// Counted hears of a Subnet of which more or less is in use, Freed of one of
	// which an address may be free, Look of a pod that is to be looked at.
	Counted, Freed func(subnet string)
	Look           func(core.Pod)

	mu    sync.Mutex
	seen  map[core.Key]bool            // interfaces that were attached when they were looked at last
	holds map[string]map[string]string // Subnets by what keeps an address, by node
	// late are, by node, what it holds of Subnets that were not in force, or OVN's.
	late map[string]map[string][]netip.Addr

	restored sync.Map // core.Key -> struct{}: leases that objects showed and no look at their pods has seen
	dropped  sync.Map // UIDs of objects that this keeper deleted, by name: the watch may have yet to tell
}

// known gives an object that is not known to be gone.
func (k *Keeper) known(name string) (*fairlead.AddressLease, bool) {
	c, there := k.Get(name)
	return c, there && !k.deleted(c)
}

// deleted tells that this keeper removed an object, of which the watch may have yet to tell.
func (k *Keeper) deleted(c *fairlead.AddressLease) bool {
	uid, was := k.dropped.Load(c.Name)
	return was && uid == c.UID
}

// delete removes an object as it is known.
func (k *Keeper) delete(ctx context.Context, c *fairlead.AddressLease) error {
	if err := k.DropClaim(ctx, c); err != nil {
		return err
	}
	k.dropped.Store(c.Name, c.UID)
	k.unbar(c.Name, c.Spec.Subnet)
	return nil
}

// Objects are those that a lease of a pod should have; nic is the interface's name in
// the pod, keeper what keeps the address, "" for nothing. The last is that of its MAC, if
// it has one.
func Objects(l core.Lease, nic, keeper string) (out []*fairlead.AddressLease) {
	pod := l.Owner.Pod
	for _, ip := range claimed(l) {
		c := &fairlead.AddressLease{
			ObjectMeta: metav1.ObjectMeta{
				Name: fairlead.LeaseName(l.Subnet, ip), Annotations: map[string]string{notePort: l.Owner.Key.IfName},
			},
			Spec: fairlead.AddressLeaseSpec{
				Subnet: l.Subnet, Address: ip.String(),
				Owner: fairlead.Owner{Kind: kindPod, Namespace: pod.Namespace, Name: pod.Name, UID: l.Owner.Key.Container, NIC: nic},
			},
		}
		if len(l.MAC) > 0 {
			c.Spec.MAC = l.MAC.String()
		}
		if keeper != "" {
			c.Annotations[noteKeeper] = keeper
		}
		out = append(out, c)
	}
	return out
}

// ownerOf is who has a claim's address, the zero value where that is no pod.
func ownerOf(c *fairlead.AddressLease) core.Owner {
	o := c.Spec.Owner
	if o.Kind != kindPod {
		return core.Owner{}
	}
	return core.Owner{
		Key: core.Key{Container: o.UID, IfName: c.Annotations[notePort]}, Pod: core.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID},
	}
}

// HeldError says that an address or a MAC is another's. It wraps core.ErrHeld.
type HeldError struct {
	By  *fairlead.AddressLease // whose it is
	MAC string                 // that is asked for, "" where it is about an address
}

// Error implements error.
func (e *HeldError) Error() string {
	what, by := e.By.Spec.Address, e.By.Spec.Owner
	if e.MAC != "" {
		what = "MAC " + e.MAC
	}
	return fmt.Sprintf("%s is held by %s %s/%s (AddressLease %s): %v", what, strings.ToLower(by.Kind), by.Namespace, by.Name, e.By.Name, core.ErrHeld)
}

// Unwrap implements error.
func (e *HeldError) Unwrap() error { return core.ErrHeld }

// Make makes one object, or makes one of an earlier pod of the name this pod's. Of
// what another has it gives a *HeldError.
func (k *Keeper) Make(ctx context.Context, want *fairlead.AddressLease) error {
	have, there := k.known(want.Name)
	if !there {
		err := k.PutClaim(ctx, nil, want)
		if !errors.Is(err, core.ErrExists) {
			return err
		}
		if have, err = k.Now(ctx, want.Name); err != nil {
			return err
		}
	}
	was, is := ownerOf(have), ownerOf(want)
	switch {
	case !samePort(was, is):
		held := &HeldError{By: have}
		if OfMAC(want) {
			held.MAC = want.Spec.MAC
		}
		return held
	case was.Key != is.Key:
		if err := k.proveGone(ctx, was.Pod); err != nil {
			return err
		}
	case have.Annotations[noteKeeper] == want.Annotations[noteKeeper] && have.Spec == want.Spec:
		return nil
	}
	return k.PutClaim(ctx, have, want)
}

// samePort tells that two owners are incarnations of one pod's interface.
func samePort(a, b core.Owner) bool {
	return a.Key.IfName == b.Key.IfName && a.Pod.String() == b.Pod.String()
}

// proveGone is nil with the proof that a pod's incarnation is no more.
func (k *Keeper) proveGone(ctx context.Context, pod core.Pod) error {
	is, err := k.Gone(ctx, pod)
	if err == nil && !is {
		err = fmt.Errorf("pod %s with UID %s has its address still: %w", pod, pod.UID, core.ErrUnavailable)
	}
	return err
}

// Free removes the objects of a lease. Of a pod that is not known it wants the
// proof that it is gone: another controller may have served it meanwhile.
func (k *Keeper) Free(ctx context.Context, l core.Lease) error {
	net, ok := k.Net(l.Subnet)
	for _, ip := range claimed(l) {
		name := fairlead.LeaseName(l.Subnet, ip)
		c, there := k.known(name)
		if !there && ok && Needed(net) { // it may have been made a moment ago
			now, err := k.Now(ctx, name)
			if err != nil && !errors.Is(err, core.ErrNotFound) {
				return err
			}
			c, there = now, err == nil
		}
		if !there || !samePort(ownerOf(c), l.Owner) {
			continue
		}
		if err := k.drop(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a claim of a pod that was not told the address and does not have it, or
// is gone. Any other is looked at again with its pod.
func (k *Keeper) drop(ctx context.Context, c *fairlead.AddressLease) error {
	by := ownerOf(c)
	if uid, ok := k.Live(by.Pod); !ok || uid != by.Pod.UID {
		if err := k.proveGone(ctx, by.Pod); err != nil {
			return err
		}
		k.note(by.Key, false)
		return k.delete(ctx, c)
	}
	ip, _ := netip.ParseAddr(c.Spec.Address) // the API server refuses what is none
	has, _ := k.Attached(by.Pod, []netip.Addr{ip})
	if has || slices.ContainsFunc(k.Told(by.Pod), func(l core.Lease) bool { return l.Owner.Key == by.Key && of(l, c) }) {
		return nil
	}
	return k.delete(ctx, c)
}

// Bar keeps an address from being given that somebody has claimed of whom the book
// does not know that, until the watch tells that the object is gone. It gives false, and
// keeps nothing, where that may have been told already.
func (k *Keeper) Bar(ctx context.Context, c *fairlead.AddressLease) (bool, error) {
	k.barObject(c)
	_, err := k.Now(ctx, c.Name)
	if err == nil {
		return true, nil
	}
	k.unbar(c.Name, c.Spec.Subnet)
	if errors.Is(err, core.ErrNotFound) {
		err = nil
	}
	return false, err
}

func (k *Keeper) barObject(c *fairlead.AddressLease) {
	if ip, err := netip.ParseAddr(c.Spec.Address); err == nil && !OfMAC(c) { // who asks for a MAC asks for its object
		k.bar(c.Name, c.Spec.Subnet, ip, ownerOf(c))
	}
}

// unbar has the address of an object that is gone given again.
func (k *Keeper) unbar(name, subnet string) {
	if k.Book.Unbar(name) {
		k.Counted(subnet)
		k.Freed(subnet)
	}
}

func (k *Keeper) bar(name, subnet string, ip netip.Addr, by core.Owner) {
	net, ok := k.Net(subnet)
	if !ok {
		return
	}
	_ = k.Book.Bar(name, ipam.Request{Subnet: net, IPs: []netip.Addr{ip}, Family: core.FamilyOf(ip), NoMAC: true, Owner: by})
	k.Counted(subnet)
}

// Hold keeps addresses from being given, by Subnet, that are in use on a node by pods
// that are no more, and frees those that it kept for the node before and are not any more.
// Of a Subnet that OVN carries it keeps none: its pods' rows say who may use them.
func (k *Keeper) Hold(node string, held map[string][]netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, late := map[string]string{}, map[string][]netip.Addr{}
	for subnet, ips := range held {
		if net, ok := k.Net(subnet); !ok || !Needed(net) {
			late[subnet] = ips
			continue
		}
		k.hold(now, node, subnet, ips)
	}
	for name, subnet := range k.holds[node] {
		if _, still := now[name]; !still {
			k.unbar(name, subnet)
		}
	}
	if k.holds == nil {
		k.holds = map[string]map[string]string{}
	}
	if k.holds[node] = now; len(now) == 0 {
		delete(k.holds, node)
	}
	if k.late == nil {
		k.late = map[string]map[string][]netip.Addr{}
	}
	if k.late[node] = late; len(late) == 0 {
		delete(k.late, node)
	}
}

// hold bars a Subnet's addresses for a node, and notes by what. The caller holds mu.
func (k *Keeper) hold(noted map[string]string, node, subnet string, ips []netip.Addr) {
	for _, ip := range ips {
		name := "node " + node + " " + fairlead.LeaseName(subnet, ip)
		noted[name] = subnet
		k.bar(name, subnet, ip, core.Owner{})
	}
}

// Arrived keeps addresses of a Subnet whose addresses are claimed from being given that nodes
// said they hold before it was in force. It is to be called before any is given.
func (k *Keeper) Arrived(subnet string) {
	if net, ok := k.Net(subnet); !ok || !Needed(net) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for node, of := range k.late {
		ips, some := of[subnet]
		if !some {
			continue
		}
		if k.holds[node] == nil {
			k.holds[node] = map[string]string{}
		}
		k.hold(k.holds[node], node, subnet, ips)
		if delete(of, subnet); len(of) == 0 {
			delete(k.late, node)
		}
	}
}

// Heed looks at an object of which the book says otherwise: its pod takes or drops it,
// and one of a pod that is gone goes.
func (k *Keeper) Heed(ctx context.Context, name string) error {
	subnet, ip, err := fairlead.ParseLeaseName(name)
	if err != nil {
		return nil //nolint:nilerr // the API server refuses such a name
	}
	c, there := k.Get(name)
	if !there {
		k.ended(name, subnet, ip)
		return nil
	}
	if k.deleted(c) {
		return nil
	}
	by := ownerOf(c)
	if slices.ContainsFunc(k.having(subnet, ip), func(l core.Lease) bool { return l.Owner.Key == by.Key }) {
		return nil
	}
	if slices.ContainsFunc(k.Book.Of(by.Pod), func(l core.Lease) bool { return of(l, c) }) {
		return nil // it stays the name's
	}
	k.barObject(c)
	if k.deleted(c) { // by a look at its pod, meanwhile
		k.unbar(name, subnet)
		return nil
	}
	if by.Pod.IsZero() {
		return nil
	}
	if uid, live := k.Live(by.Pod); live && uid == by.Pod.UID {
		k.Look(by.Pod)
		return nil
	}
	return k.bury(ctx, c, by.Pod)
}

// bury removes the object of a pod that is gone. Of one that is not, the watch of pods has yet to
// tell.
func (k *Keeper) bury(ctx context.Context, c *fairlead.AddressLease, pod core.Pod) error {
	if is, err := k.Gone(ctx, pod); err != nil || !is {
		return err
	}
	if err := k.delete(ctx, c); err != nil {
		return err
	}
	k.Freed(c.Spec.Subnet)
	return nil
}

// ended takes news of an object that is gone. One that somebody deleted is made again. Of one
// that this keeper deleted those heard who wait for an address.
func (k *Keeper) ended(name, subnet string, ip netip.Addr) {
	k.unbar(name, subnet)
	if _, own := k.dropped.LoadAndDelete(name); !own {
		k.Freed(subnet)
	}
	for _, l := range k.having(subnet, ip) {
		if pod := l.Owner.Pod; !pod.IsZero() {
			k.Look(pod)
		}
	}
}

// Proven tells that each address of a lease is claimed by its port.
func (k *Keeper) Proven(ctx context.Context, l core.Lease) (bool, error) {
	for _, ip := range l.IPs {
		name := fairlead.LeaseName(l.Subnet, ip)
		c, there := k.known(name)
		if !there { // who told it may know more than the watch has told
			var err error
			if c, err = k.Now(ctx, name); errors.Is(err, core.ErrNotFound) {
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		if ownerOf(c).Key != l.Owner.Key {
			return false, nil
		}
	}
	return true, nil
}

// Strays drops the claims of a pod's name of which the book knows nothing. The pod is
// gone, or was told what the book knows; one that was told otherwise meanwhile, by
// another controller, is looked at again for that.
func (k *Keeper) Strays(ctx context.Context, pod core.Pod) error {
	for _, c := range k.Of(pod) {
		if slices.ContainsFunc(k.Book.Of(pod), func(l core.Lease) bool {
			net, ok := k.Net(l.Subnet)
			return of(l, c) && (!ok || Needed(net))
		}) {
			continue
		}
		if err := k.drop(ctx, c); err != nil {
			return err
		}
		if k.deleted(c) {
			k.Freed(c.Spec.Subnet)
		}
	}
	return nil
}

// of tells that a claim is of an address of a lease.
func of(l core.Lease, c *fairlead.AddressLease) bool {
	return l.Subnet == c.Spec.Subnet && slices.ContainsFunc(claimed(l), func(ip netip.Addr) bool { return fairlead.LeaseName(l.Subnet, ip) == c.Name })
}

// Restored are the leases that objects show, by port, and what keeps addresses for
// pods. Where a port has several, what its pod was told counts; the others are kept
// from being given when they are heeded.
func (k *Keeper) Restored() (out []core.Lease, keepers map[core.Pod]string) {
	ports := map[string]*core.Lease{}
	keepers = map[core.Pod]string{}
	all := slices.SortedFunc(slices.Values(k.List()), func(a, b *fairlead.AddressLease) int { return cmp.Compare(a.Name, b.Name) })
	for _, told := range []bool{true, false} {
		for _, c := range all {
			by := ownerOf(c)
			if is := slices.ContainsFunc(k.Told(by.Pod), func(l core.Lease) bool { return l.Owner.Key == by.Key && of(l, c) }); is == told && gather(ports, by, c) {
				keepers[by.Pod] = c.Annotations[noteKeeper]
			}
		}
	}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		l := *ports[port]
		k.restored.Store(l.Owner.Key, struct{}{})
		out = append(out, l)
	}
	return out, keepers
}

// FreeHalves removes the objects of a pod's leases, as Restored found them, that a
// controller had claimed in part when it was killed, and gives the leases: they are free
// then, and what the pod asks for is chosen anew. Such a lease lacks an address of a family
// of its Subnet, and its pod was told nothing of it. Each lease is looked at once.
func (k *Keeper) FreeHalves(ctx context.Context, pod core.Pod) (freed []core.Lease, err error) {
	for _, l := range k.Book.Of(pod) {
		net, ok := k.Net(l.Subnet)
		uid, live := k.Live(pod)
		if _, is := k.restored.Load(l.Owner.Key); !is || !ok || !live || uid != l.Owner.Key.Container {
			continue // one that is not in force or not known yet is looked at when it is
		}
		told := slices.ContainsFunc(k.Told(pod), func(told core.Lease) bool { return told.Owner.Key == l.Owner.Key })
		if len(l.IPs) < len(net.CIDRs) && !told {
			if err := k.Free(ctx, l); err != nil {
				return freed, err
			}
			freed = append(freed, l)
		}
		k.restored.Delete(l.Owner.Key)
	}
	return freed, nil
}

// gather puts an object to the lease of its port, unless that has an address of the
// family already, or is another's.
func gather(ports map[string]*core.Lease, by core.Owner, c *fairlead.AddressLease) bool {
	ip, err := netip.ParseAddr(c.Spec.Address)
	if by.Key.IfName == "" || err != nil || OfMAC(c) {
		return false
	}
	l := ports[by.Key.IfName]
	if l == nil {
		l = &core.Lease{Subnet: c.Spec.Subnet, Owner: by}
		_ = l.MAC.UnmarshalText([]byte(c.Spec.MAC)) // none for an interface whose plugin has its own
		ports[by.Key.IfName] = l
	}
	if l.Owner.Key != by.Key || l.Subnet != c.Spec.Subnet || slices.ContainsFunc(l.IPs, func(have netip.Addr) bool { return have.Is4() == ip.Is4() }) {
		return false
	}
	l.IPs = append(l.IPs, ip)
	return true
}
