package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/ippool"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/networks"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/controller/underlay"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Reasons of events about pods and nodes, as the reference has them.
const (
	ReasonValidate = "ValidatePodNetworkFailed"
	ReasonAcquire  = "AcquireAddressFailed"
	ReasonPort     = "CreateOVNPortFailed"
)

// given is an interface of a pod with its addresses.
type given struct {
	nic
	net   logical.Subnet
	lease core.Lease
	fresh bool // it has no row yet
	// groups are the port groups of NetworkPolicies that govern it.
	groups []string
	// guards are the SecurityGroups of which it is one, in any of which it has a
	// port group; unguarded is why it is in none of them, "" for none.
	guards    []string
	unguarded string
	// shares are the Vips that it may send from, vips their addresses; unshared is why
	// it may not from another that the pod names, "" for none.
	shares   []string
	vips     []netip.Addr
	unshared string
}

// pod makes a pod's addresses, rows and annotations what they should be.
func (t *term) pod(ctx context.Context, k object.Key) error {
	p, ok := t.Pods.Get(k.Namespace, k.Name)
	name := core.Pod{Namespace: k.Namespace, Name: k.Name}
	if err := t.met(ctx, name, p, ok); err != nil {
		return err
	}
	if err := t.adopt(ctx, p); err != nil {
		return err
	}
	held := t.book.Of(name)
	own, left := split(held, p.UID)
	if !ok || p.Done || p.Host || p.Ending && len(own) == 0 {
		return t.leave(ctx, name, held)
	}
	o := object.Object{Key: k, UID: p.UID}
	nics, err := t.nics(ctx, p, own)
	if t.outdated(name, nics, left, err) {
		var kept error
		if held, kept = t.outgrow(ctx, p, nics, held, err); kept != nil {
			return kept
		}
		if len(held) == 0 {
			nics, err = t.nics(ctx, p, nil)
		}
	}
	if err != nil {
		return t.failed(ctx, o, needsOf(err), ReasonValidate, err)
	}
	return t.serve(ctx, o, p, nics, held)
}

// met notes that a pod is there. Of one that is not, and was not in this term, it wants
// the proof: the watch may have yet to tell of what a former leader served. A virtual
// machine of which nothing is known yet is not to be served.
func (t *term) met(ctx context.Context, pod core.Pod, is object.Pod, there bool) error {
	if there {
		t.pods.Store(pod.String(), nil)
		if is.Unsure {
			return fmt.Errorf("whether VirtualMachine %s is there is not known: %w", pod, core.ErrUnavailable)
		}
		return nil
	}
	if _, was := t.pods.Load(pod.String()); was {
		return nil
	}
	gone, err := t.Claims.Gone(ctx, pod)
	if err == nil && !gone {
		err = fmt.Errorf("pod %s is there and has yet to be told of: %w", pod, core.ErrUnavailable)
	}
	return err
}

// missed is nil with the proof that a Service, a node, a NetworkPolicy, a SecurityGroup or a
// Vip is gone of which there may be rows: one that was there in this term, or that the API
// server has no more.
func (t *term) missed(ctx context.Context, k object.Key) error {
	if _, was := t.seen.Load(k); was {
		return nil
	}
	gone, err := t.Gone(ctx, k)
	switch {
	case err != nil:
		return err
	case !gone:
		return fmt.Errorf("%s is there and has yet to be told of: %w", k, core.ErrUnavailable)
	}
	t.seen.Store(k, nil)
	return nil
}

// proven is an object of these kinds as it is known: there, or gone. An error says that it is not
// known which.
func proven[T any](ctx context.Context, t *term, from object.Lister[T], k object.Key) (o T, there bool, err error) {
	if o, there = from.Get(k.Namespace, k.Name); !there {
		return o, false, t.missed(ctx, k)
	}
	t.seen.Store(k, nil)
	return o, true, nil
}

// unmake removes the rows of such an object that is gone.
func (t *term) unmake(ctx context.Context, k object.Key, owner string) error {
	if err := t.missed(ctx, k); err != nil {
		return err
	}
	t.calm(k)
	if err := t.DB.Apply(ctx, &ovn.Set{Owner: owner}); err != nil {
		return err
	}
	t.seen.Delete(k)
	return nil
}

// serve gives a pod's interfaces addresses and rows, and tells it.
func (t *term) serve(ctx context.Context, o object.Object, p object.Pod, nics []nic, held []core.Lease) error {
	_, left := split(held, p.UID)
	all, err := t.acquire(ctx, o, p, nics, left)
	if err != nil {
		return err
	}
	if err := t.commit(ctx, o, p, all, held); err != nil {
		return err
	}
	return t.report(ctx, o, p, all)
}

// report tells a pod what it has. One that has an address of a claim is told only if
// it is as it was known.
func (t *term) report(ctx context.Context, o object.Object, p object.Pod, all []given) error {
	said := t.settled(ctx, o, p, all)
	told, drop := lacking(p.Annotations, podNotes(p, all)), t.stale(p, all)
	if len(drop) > 0 || slices.ContainsFunc(all, given.claimed) {
		o.Version = p.Version
	}
	if p.Annotations[v1.AnnNoAddress] != "" {
		drop = append(drop, v1.AnnNoAddress) // it has one now
	}
	if len(told)+len(drop) > 0 {
		return errors.Join(said, t.tell(ctx, o, told, drop...))
	}
	return errors.Join(said, t.claims.Strays(ctx, p.Pod))
}

// stale are the annotations that tell a pod of interfaces which it is to have no more.
// With them an address is still the pod's, so that those of an interface that OVN does
// not carry stay until it is detached.
func (t *term) stale(p object.Pod, all []given) (keys []string) {
	own, _ := split(t.book.Of(p.Pod), p.UID)
	for _, prefix := range logical.Told(p.Annotations) {
		is := func(l core.Lease) bool { return logical.Prefix(p.Pod, l.Owner.Key.IfName) == prefix }
		if slices.ContainsFunc(all, func(g given) bool { return is(g.lease) }) {
			continue
		}
		var l core.Lease
		if i := slices.IndexFunc(own, is); i >= 0 {
			l = own[i]
		}
		if net, _, _ := t.nets.Get(l.Subnet); l.Subnet == "" || !claim.Needed(net.Subnet) || t.claims.Detached(l) {
			keys = append(keys, logical.Stale(p.Annotations, prefix, l)...)
		}
	}
	return keys
}

// outdated tells that what is left of an earlier pod of a name goes before the
// next one gets something; err is why it is not known what that asks for.
func (t *term) outdated(name core.Pod, nics []nic, left []core.Lease, err error) bool {
	if err != nil {
		return len(left) > 0 && !t.stays(name, left)
	}
	return !t.inherits(name, nics, left)
}

// outgrow ends what is left of earlier pods of a pod's name that is outdated, and gives what the
// pod has then. One that runs keeps what it has where no more is left than an object reserved for
// the name and the pod does not take over.
func (t *term) outgrow(ctx context.Context, p object.Pod, nics []nic, held []core.Lease, why error) ([]core.Lease, error) {
	name := core.Pod{Namespace: p.Namespace, Name: p.Name}
	own, left := split(held, p.UID)
	drop := slices.DeleteFunc(slices.Clone(left), func(l core.Lease) bool { return !t.outdated(name, nics, []core.Lease{l}, why) })
	if len(own) == 0 || slices.ContainsFunc(drop, func(l core.Lease) bool { return !book.Reservation(l) }) {
		return nil, t.clear(ctx, name, held)
	}
	t.release(drop, false)
	return t.book.Of(name), nil
}

// leave ends what a pod has that is no more, but for the addresses that stay its
// name's: those have their rows on, in no group.
func (t *term) leave(ctx context.Context, name core.Pod, held []core.Lease) error {
	var stay, free []core.Lease
	for _, l := range held {
		if t.stays(name, []core.Lease{l}) {
			stay = append(stay, l)
		} else {
			free = append(free, l)
		}
	}
	if len(stay) == 0 {
		return t.clear(ctx, name, held)
	}
	t.calm(object.KindPod.Named(name.Namespace, name.Name))
	rows := logical.Pod{Pod: name, Keeper: t.keeperOf(name)}
	for _, l := range stay {
		if net, _, ok := t.nets.Get(l.Subnet); !book.Reservation(l) && (!ok || !claim.Needed(net.Subnet)) {
			rows.UID = l.Owner.Key.Container
			rows.Ports = append(rows.Ports, logical.Port{Name: l.Owner.Key.IfName, Subnet: l.Subnet, MAC: l.MAC, IPs: l.IPs})
		}
	}
	if t.rowed(held) {
		if err := t.DB.Apply(ctx, logical.Ports(rows)); err != nil {
			return err
		}
	}
	t.unface(name)
	t.enlist(object.KindPod.Named(name.Namespace, name.Name), nil)
	return t.free(ctx, free, false)
}

// rowed tells that leases may have rows in the database. All that somebody has who
// has none is of Subnets that are in force without.
func (t *term) rowed(leases []core.Lease) bool {
	return len(leases) == 0 || slices.ContainsFunc(leases, func(l core.Lease) bool {
		net, _, ok := t.nets.Get(l.Subnet)
		return !ok || !claim.Needed(net.Subnet) || t.hasSwitch(l.Subnet)
	})
}

// clear removes a pod's rows, and then gives its addresses back.
func (t *term) clear(ctx context.Context, name core.Pod, held []core.Lease) error {
	t.calm(object.KindPod.Named(name.Namespace, name.Name))
	if t.rowed(held) {
		if err := t.DB.Apply(ctx, logical.Ports(logical.Pod{Pod: name})); err != nil {
			return err
		}
		fail.Here("controller.cleared")
	}
	t.unface(name)
	t.enlist(object.KindPod.Named(name.Namespace, name.Name), nil)
	if err := t.free(ctx, held, false); err != nil {
		return err
	}
	t.keptBy(name, object.Owner{})
	if err := t.claims.Strays(ctx, name); err != nil {
		return err
	}
	if _, there := t.Pods.Get(name.Namespace, name.Name); !there {
		t.pods.Delete(name.String())
	}
	return nil
}

// release gives addresses back, and wakes who waits for some. Those of a look that came to
// nothing, which are cancelled, wake nobody: whoever missed one meanwhile tries again by itself,
// and who woke others for them, and itself among them, would be looked at without end.
func (t *term) release(leases []core.Lease, cancelled bool) {
	for _, l := range leases {
		if !t.returned(l) {
			t.book.Forget(l, cancelled)
		}
		t.counted(l.Subnet)
		if !cancelled {
			t.rouse(l.Subnet)
		}
		t.queue.Add(ipKey(l))
	}
}

// nics are the interfaces of a pod whose addresses the controller gives: those
// of provider ovn, or of one that ends so. Leases that the pod has already
// stand in the place of what its annotations say.
func (t *term) nics(ctx context.Context, p object.Pod, held []core.Lease) ([]nic, error) {
	if underlay.Reserved(defaultPort(p.Pod)) {
		return nil, fmt.Errorf("pod name %s: with its namespace it comes to the name of a Subnet's port to its provider network", p.Name)
	}
	wants, err := t.resolved(ctx, p, held)
	if vpc := t.nets.HomelessIn(p.Namespace); err != nil && vpc != "" {
		return nil, fmt.Errorf("namespace %s is Vpc %s's, which has no Subnet for its pods: %w", p.Namespace, vpc, err)
	}
	if err != nil {
		return nil, err
	}
	return t.pooled(p, wants)
}

// rank orders the Subnets to which a pod may come: first the one of which an earlier pod
// of its name left it addresses, or of which it runs with some, last those that are full.
func (t *term) rank(p object.Pod) func(core.Subnet, core.Family) int {
	_, left := split(t.book.Of(p.Pod), p.UID)
	if !t.stays(p.Pod, left) {
		left = nil
	}
	return func(s core.Subnet, only core.Family) int {
		full := t.book.Full(s, only)
		if slices.ContainsFunc(left, func(l core.Lease) bool { return l.Subnet == s.Name }) || full == 0 && len(p.IPs) > 0 && gives(s, p.IPs) {
			return -1
		}
		return full
	}
}

// pin makes annotations say what a lease does.
func pin(notes map[string]string, prefix string, l core.Lease) {
	at := prefix + v1.ProviderSuffix
	notes[at+v1.FieldIP], notes[at+v1.FieldMAC], notes[at+v1.FieldSubnet] = logical.Join(l.IPs), l.MAC.String(), l.Subnet
	delete(notes, at+v1.FieldFamily)
	delete(notes, at+v1.FieldCIDR)
	delete(notes, at+v1.FieldGateway)
}

// acquire gets addresses for all interfaces of a pod, or for none.
// What is left of an earlier pod of the name it takes over.
func (t *term) acquire(ctx context.Context, o object.Object, p object.Pod, nics []nic, left []core.Lease) (all []given, err error) {
	var groups []string
	if slices.ContainsFunc(nics, func(n nic) bool { return n.IfaceID == defaultPort(p.Pod) }) {
		if groups, err = t.groups(ctx, p); err != nil {
			return nil, err
		}
	}
	for _, nic := range nics {
		g := given{nic: nic}
		subnet := nic.Subnet.Name
		g.net, _, _ = t.nets.Get(subnet)
		g.net = t.joined(g.net)
		t.claims.Arrived(subnet)
		if err = networks.Serves(g.net, nic.MAC); err == nil {
			g.lease, g.fresh, err = t.borrow(nic.names.Vip, ipam.Request{
				Subnet: nic.Subnet, Owner: owner(p.Pod, p.UID, nic.IfaceID), IPs: nic.IPs, Pool: nic.Pool, Ranges: nic.pool.Spare, Family: nic.Family, MAC: nic.MAC,
				NoMAC: nic.lent && nic.MAC == nil && claim.Needed(nic.Subnet), // that is the plugin's matter
			}, left)
		}
		if err != nil {
			t.release(t.fresh(all), true)
			return nil, t.failed(ctx, o, t.nets.Beside(subnet, p.Namespace), ReasonAcquire, t.full(subnet, nic.pool, err))
		}
		if nic.IfaceID == defaultPort(p.Pod) {
			g.groups = groups
		}
		if err = t.share(ctx, p, &g); err == nil {
			g.guards, g.unguarded, err = t.guarded(ctx, nic, g.net.Vpc)
		}
		if err != nil {
			t.release(t.fresh(append(all, g)), true)
			return nil, err
		}
		all = append(all, g)
	}
	fail.Here("controller.acquired")
	return all, t.claim(ctx, o, all)
}

// claimed tells that the interface's addresses have objects and no row.
func (g given) claimed() bool { return claim.Needed(g.net.Subnet) }

// full adds to an error of a full Subnet or IPPool how many addresses are taken.
func (t *term) full(subnet string, pool ippool.Pool, err error) error {
	if !errors.Is(err, core.ErrExhausted) {
		return fmt.Errorf("address in Subnet %s: %w", subnet, err)
	}
	net, _, _ := t.nets.Get(subnet)
	if pool.Name != "" {
		s := status.Pool(t.book.Allocator, net.Subnet, pool.Ranges, pool.Spare)
		return fmt.Errorf("pod left without an address: IPPool %s of Subnet %s has none free (in use: %s): %w",
			pool.Name, subnet, strings.Trim(s.V4UsingIPRange+","+s.V6UsingIPRange, ","), err)
	}
	var parts []string
	for _, s := range t.book.Stats([]core.Subnet{net.Subnet}) {
		parts = append(parts, fmt.Sprintf("%s: %d in use of %d", s.Family, s.Used, s.Used+s.Free))
	}
	return fmt.Errorf("pod left without an address: Subnet %s is full (%s): %w", subnet, strings.Join(parts, ", "), err)
}

// fresh are the leases that have no row yet and that no object keeps for the pod.
func (t *term) fresh(all []given) (out []core.Lease) {
	for _, g := range all {
		if g.fresh && !t.reserved(g.lease) {
			out = append(out, g.lease)
		}
	}
	return out
}

// rowsOf are a pod's rows: an interface with an address of a claim has none.
func (t *term) rowsOf(p object.Pod, all []given) logical.Pod {
	rows := logical.Pod{Pod: p.Pod, Keeper: t.keeperOf(p.Pod), Nodes: p.Nodes}
	for _, g := range all {
		if g.claimed() {
			continue
		}
		port := g.lease.Owner.Key.IfName
		rows.Ports = append(rows.Ports, logical.Port{
			Name: port, Subnet: g.net.Name, MAC: g.lease.MAC, IPs: g.lease.IPs, Groups: slices.Concat(g.groups, guardsOf(g)),
			Open: g.nic.Open || g.nic.Subnet.Open, Probes: g.net.Underlay != "", Offers: g.net.Offers, VIPs: slices.Concat(g.nic.VIPs.Addrs(), g.vips),
		})
	}
	return rows
}

// commit writes a pod's rows, and gives back the addresses of interfaces that
// it has no more.
func (t *term) commit(ctx context.Context, o object.Object, p object.Pod, all []given, held []core.Lease) error {
	t.keptBy(p.Pod, p.Owner)
	rows := t.rowsOf(p, all)
	var err error
	t.expect(o.Key, all)
	if len(rows.Ports) > 0 || len(all) == 0 || t.rowed(held) {
		err = t.DB.Apply(ctx, logical.Ports(rows))
		fail.Here("controller.committed")
	}
	switch {
	case err == nil:
	case errors.Is(err, core.ErrUnavailable), errors.Is(err, ovn.ErrFenced), ctx.Err() != nil:
		return err // the rows may be there: what was acquired is kept
	case ungrouped(err):
		return err // a policy went at this moment: the next try knows
	default:
		return t.unmade(ctx, o, all, err)
	}
	if err := t.free(ctx, slices.DeleteFunc(beyond(held, all), t.claims.Kept), false); err != nil {
		return err
	}
	for _, g := range all {
		t.queue.Add(ipKey(g.lease))
	}
	for _, l := range t.fresh(all) {
		t.counted(l.Subnet)
	}
	t.face(p, all)
	t.enlist(o.Key, all)
	return nil
}

// unmade gives back what a pod got whose rows the database refused.
func (t *term) unmade(ctx context.Context, o object.Object, all []given, why error) error {
	if err := t.free(ctx, t.fresh(all), true); err != nil {
		return err
	}
	subnet := ""
	if missing := (*ovn.MissingError)(nil); errors.As(why, &missing) {
		subnet = missing.Key
	}
	return t.failed(ctx, o, subnet, ReasonPort, why)
}

// beyond are the leases that a pod had, but for those of the interfaces that it has.
func beyond(held []core.Lease, all []given) []core.Lease {
	return slices.DeleteFunc(slices.Clone(held), func(l core.Lease) bool {
		return book.Reservation(l) || slices.ContainsFunc(all, func(g given) bool { return g.lease.Owner.Key == l.Owner.Key })
	})
}

// lacking are those of the annotations that an object should have which it has not.
func lacking(have, want map[string]string) map[string]string {
	maps.DeleteFunc(want, func(k, v string) bool { now, has := have[k]; return has && now == v })
	return want
}

// tell writes annotations of an object and removes others, in one write.
func (t *term) tell(ctx context.Context, o object.Object, want map[string]string, drop ...string) error {
	if len(want)+len(drop) == 0 {
		return nil
	}
	err := t.Annotate(ctx, o, want, drop...)
	fail.Here("controller.told")
	if errors.Is(err, core.ErrNotFound) {
		return nil // whoever has the name now comes by itself
	}
	return err
}

// fieldPortName is an annotation that only a controller writes or reads.
const fieldPortName = "port_name"

// podNotes are the annotations of a pod with these interfaces.
func podNotes(p object.Pod, all []given) map[string]string {
	out := map[string]string{}
	for _, g := range all {
		at := logical.Prefix(p.Pod, g.lease.Owner.Key.IfName) + v1.ProviderSuffix
		if g.claimed() { // what carries it is not ours
			maps.Copy(out, logical.LeaseNotes(at, g.net, g.lease))
		} else {
			maps.Copy(out, logical.RoutedNotes(at, g.net, g.lease, g.nic.Type))
		}
		maps.Copy(out, declaredNotes(at, g.nic))
		if p.Machine {
			out[at+v1.FieldMachine] = p.Name
		}
	}
	return out
}
