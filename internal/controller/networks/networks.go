// Package networks says which Subnets are in force: those that objects declare and that
// contradict nothing, each as it was when it was good last. It must not know rows of a
// database, nor who is told what.
package networks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/ippool"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/underlay"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Networks are the Subnets in force. What was good stays in force until
// something good replaces it.
type Networks struct {
	from   object.Readers
	join   core.Subnet // serves where no Subnet object has its name
	leases *book.Book

	mu     sync.Mutex
	anew   bool                   // a look is due although there was no news
	held   map[string]bool        // Subnets that do not change because of addresses in use
	rows   map[string]core.Subnet // networks, gateways and providers of Subnets as an earlier leader left them
	left   map[string]core.Subnet // that were in force, are not any more, and of which somebody may have an address
	before []core.Subnet          // of those, and of what is in force, what no object declares, as the last look found it
	whole  bool                   // the leases are known
	nodes  []nodeIP               // as the last look read them
	told   map[object.Key]bool    // objects of which there was news since the last look
	read   map[object.Key]any     // what of an object matters, as it was when there was news of it
	looks  uint64                 // that brought something
	homes  uint64                 // of them, that brought other IPPools or Vpcs without a Subnet
	parsed map[string]parsed      // Subnet objects, as the last look read them
	book   declare.Book
	made   map[string]made            // what serves of Subnet objects, as the last look found it
	force  map[string]*logical.Subnet // shared by looks: who changes one takes a copy
	forPod []core.Subnet              // those of them that pods may be in, by name
	faults map[string]string          // why an object's Subnet is not in force as written
	pools  ippool.Pools
	// homeless are the namespaces of Vpcs that have no Subnet for their pods, by name.
	homeless map[string]string
}

// parsed is what a Subnet object says, and what is wrong with it.
type parsed struct {
	from   *v1.Subnet
	shown  bool // it declares nothing
	says   *declare.Subnet
	faults []declare.Fault
}

// made is a Subnet that serves as it is declared.
type made struct {
	from *declare.Subnet
	is   *logical.Subnet
}

// New makes them; join serves where no object has its name, and leases say whose addresses
// are in use.
func New(from object.Readers, join core.Subnet, leases *book.Book) *Networks {
	join.Builtin = true
	return &Networks{from: from, join: join, leases: leases, held: map[string]bool{}, told: map[object.Key]bool{}, read: map[object.Key]any{}, rows: map[string]core.Subnet{}, left: map[string]core.Subnet{}}
}

// Changed says that a Subnet, an IPPool, a Vpc, a Vlan, a provider network, a node or a
// namespace is not what it was.
func (n *Networks) Changed(k object.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told[k] = true
}

// matters is what of an object decides which Subnets are in force, nil for none. A
// status does not: with every pod that comes some Subnet's counts change, and to
// look at all Subnets for that would make a pod cost what they cost together.
func (n *Networks) matters(k object.Key) any {
	switch k.Kind {
	case object.KindSubnet:
		if o, ok := n.from.Subnets.Get("", k.Name); ok {
			return []any{o.UID, o.CreationTimestamp, o.Annotations, o.Spec}
		}
	case object.KindPool:
		if o, ok := n.from.Pools.Get("", k.Name); ok {
			return []any{o.UID, o.CreationTimestamp, o.Annotations, o.Spec}
		}
	case object.KindVlan, object.KindProvider:
		return n.mattersBelow(k)
	case object.KindNode:
		if o, ok := n.from.Nodes.Get("", k.Name); ok {
			return []any{o.IPs}
		}
	case object.KindVpc:
		if o, ok := n.from.Vpcs.Get("", k.Name); ok {
			return []any{o.UID, o.Spec.DefaultSubnet, o.Spec.Namespaces}
		}
	default:
		if o, ok := n.from.Namespaces.Get("", k.Name); ok {
			return []any{o.Labels}
		}
	}
	return nil
}

// mattersBelow is matters of what underlay Subnets stand on.
func (n *Networks) mattersBelow(k object.Key) any {
	if o, ok := n.from.Vlans.Get("", k.Name); ok && k.Kind == object.KindVlan {
		return []any{o.UID, o.CreationTimestamp, o.Spec}
	}
	if o, ok := n.from.Providers.Get("", k.Name); ok && k.Kind == object.KindProvider {
		return []any{o.UID}
	}
	return nil
}

// news tells that something that matters changed since it was asked last. The
// caller holds mu.
func (n *Networks) news() (some bool) {
	for k := range n.told {
		now := n.matters(k)
		if was, known := n.read[k]; known && reflect.DeepEqual(was, now) {
			continue
		}
		some = true
		if n.read[k] = now; now == nil {
			delete(n.read, k)
		}
	}
	clear(n.told)
	return some
}

// look brings what is in force up to date. The caller holds mu.
func (n *Networks) look() {
	if !n.news() && !n.anew && n.looks > 0 {
		return
	}
	n.anew = false
	n.looks++
	next, refused := n.book.Next(n.declared(), n.Vlans())
	for name, f := range refused {
		n.faults[name] = f.String()
	}
	serving, blamed := next.Serving(n.withheld())
	if blamed != "" {
		n.faults[blamed] = declare.BlamedReason
	}
	force := n.serve(next, serving)
	guard(force)
	pools, homeless := n.pools, n.homeless
	n.pools = n.pools.Next(n.from.Pools.List(), force)
	for name, s := range force {
		if ranges := n.pools.Ranges(name); len(ranges) > 0 {
			without := *s
			without.Exclude = slices.Concat(s.Exclude, ranges)
			force[name] = &without
		}
	}
	n.leave(force)
	if n.book, n.force = next, force; n.whole {
		clear(n.rows) // what counts of them is in force now
	}
	n.homeless = house(n.from.Vpcs.List(), force, n.isDefault)
	n.forPod = podSubnets(force)
	if !maps.Equal(homeless, n.homeless) || !reflect.DeepEqual(pools, n.pools) {
		n.homes++
	}
}

// serve are the Subnets of a book that serve, by name, as they are declared: those that did
// not change are the same ones. The caller holds mu.
func (n *Networks) serve(from declare.Book, serving []core.Subnet) map[string]*logical.Subnet {
	before, force := n.made, make(map[string]*logical.Subnet, len(serving))
	n.made = make(map[string]made, len(serving))
	for i := range serving {
		s := &serving[i]
		d := from.Declared(s.Name)
		m := before[s.Name]
		if m.from != d || !reflect.DeepEqual(&m.is.Subnet, s) {
			m = made{d, &logical.Subnet{Subnet: *s, Access: d.Access, Offers: d.Offers, Gateway: d.Gateway, Asked: d.Interconnection, NoServices: d.NoServices}}
		}
		n.made[s.Name], force[s.Name] = m, m.is
	}
	return force
}

// Vlans are the Vlans that are declared now, by name, each with what keeps Subnets from it.
func (n *Networks) Vlans() map[string]declare.Vlan {
	return underlay.Vlans(n.from.Vlans.List(), func(network string) bool {
		_, ok := n.from.Providers.Get("", network)
		return ok
	})
}

// Tables are the tables of routes by which pods of a Vpc's Subnets leave, but for the main
// one; sorted.
func (n *Networks) Tables(vpc string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	var all []string
	for _, s := range n.force {
		if s.Vpc == vpc && s.ByNodes() && s.Offers.Table != "" {
			all = append(all, s.Offers.Table)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// guard has private Subnets let the nodes in.
func guard(force map[string]*logical.Subnet) {
	join, ok := force[logical.JoinSubnet]
	if !ok {
		return
	}
	for name, s := range force {
		if s.Access.Private {
			guarded := *s
			guarded.Nodes = join.CIDRs
			force[name] = &guarded
		}
	}
}

// podSubnets are those Subnets that pods may be in, by name: all but the nodes' own.
func podSubnets(all map[string]*logical.Subnet) []core.Subnet {
	out := make([]core.Subnet, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != logical.JoinSubnet {
			out = append(out, all[name].Subnet)
		}
	}
	return out
}

// isDefault tells a Subnet that is declared as the default of its Vpc.
func (n *Networks) isDefault(name string) bool {
	return n.force[name].Default || n.book.Declared(name).Default
}

// Home is the Subnet of a Vpc to which pods of its namespaces come, and what is wrong
// with it; subnets are all of the Vpc in force.
func (n *Networks) Home(vpc string, spec v1.VpcSpec) (subnet string, subnets []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	subnet = defaultSubnet(vpc, spec, n.force, n.isDefault)
	return subnet, subnetsOf(vpc, n.force), unhoused(vpc, spec, subnet, n.homeless)
}

// Space is what the annotations of a namespace say of its pods' Subnets.
func (n *Networks) Space(namespace string) map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	pool, _ := n.pools.For("", namespace)
	to := come(namespace, n.forPod, pool.Subnet, n.homeless[namespace] != "")
	return spaceNotes(to, pool.Name, func(subnet string) []core.AddrRange { return n.book.Declared(subnet).Exclude })
}

// HomelessIn is the Vpc of a namespace that has no Subnet for its pods, "" for none.
func (n *Networks) HomelessIn(namespace string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return n.homeless[namespace]
}

// Pools are the IPPools in force.
func (n *Networks) Pools() ippool.Pools {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return n.pools
}

// withheld tells that a Subnet object of the default one's name is there, which
// keeps the built-in one away although the object is wrong.
func (n *Networks) withheld() bool {
	o, there := n.from.Subnets.Get("", v1.DefaultSubnet)
	return there && !v1.Shown(o.Annotations, o.Spec)
}

// declared are the good Subnet objects, the oldest first. A bad one of which a
// good version is in force counts as that version.
func (n *Networks) declared() (out []*declare.Subnet) {
	n.faults = map[string]string{}
	clear(n.held)
	n.nodes, n.before = ofNodes(n.from.Nodes.List()), n.undeclared()
	all := slices.SortedFunc(slices.Values(n.from.Subnets.List()), func(a, b *v1.Subnet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	spaces := n.from.Namespaces.List()
	before := n.parsed
	n.parsed = make(map[string]parsed, len(all))
	joined := false
	for _, o := range all {
		p := before[o.Name]
		if p.from != o { // objects that change are others
			says, faults := logical.ReadSubnet(o)
			says.Namespaces = selected(says.Namespaces, nil, nil)
			p = parsed{o, v1.Shown(o.Annotations, o.Spec), &says, faults}
		}
		if n.parsed[o.Name] = p; p.shown {
			continue
		}
		joined = joined || o.Name == logical.JoinSubnet
		d, ok := n.admissible(p.says, p.faults)
		if !ok {
			continue
		}
		if len(o.Spec.NamespaceSelectors) > 0 {
			c := *d
			c.Namespaces = selected(d.Namespaces, o.Spec.NamespaceSelectors, spaces)
			d = &c
		}
		out = append(out, d)
	}
	if !joined && n.join.Name != "" {
		if d, ok := n.admissible(&declare.Subnet{Subnet: n.join}, nil); ok {
			out = slices.Insert(out, 0, d)
		}
	}
	return out
}

// admissible is the version of a Subnet that may be in force: the one that is declared,
// with these faults, or else the last good one.
func (n *Networks) admissible(d *declare.Subnet, faults []declare.Fault) (version *declare.Subnet, ok bool) {
	good := len(faults) == 0
	if good {
		if faults = n.inUse(d); len(faults) == 0 {
			faults = n.abandoned(d)
		}
	}
	if len(faults) == 0 {
		fault, goesOn := n.covers(d)
		if fault != nil {
			n.faults[d.Name] = fault.String()
		}
		if fault == nil || goesOn {
			return d, true
		}
		faults = []declare.Fault{*fault}
	}
	n.faults[d.Name] = faults[0].String()
	if n.book.Has(d.Name) {
		return n.book.Declared(d.Name), true
	}
	return n.former(*d, good)
}

// nodeIP is an address of a node.
type nodeIP struct {
	ip   netip.Addr
	node string
}

// ofNodes are the addresses of all nodes, in order.
func ofNodes(all []object.Node) (out []nodeIP) {
	for _, o := range all {
		for _, ip := range o.IPs {
			out = append(out, nodeIP{ip, o.Name})
		}
	}
	slices.SortFunc(out, func(a, b nodeIP) int { return cmp.Or(a.ip.Compare(b.ip), cmp.Compare(a.node, b.node)) })
	return out
}

// covers tells that a Subnet to whose pods nodes have a route holds the address of a
// node, which would lose its way to the others by it (sdn.md, 6). goesOn: it was in force
// before the node came, and is so on.
func (n *Networks) covers(d *declare.Subnet) (fault *declare.Fault, goesOn bool) {
	if !n.whole || !routed(d.Subnet) || d.Vlan != "" && !d.LogicalGateway {
		return nil, true
	}
	for _, c := range d.CIDRs {
		i, _ := slices.BinarySearchFunc(n.nodes, c.Masked().Addr(), func(o nodeIP, first netip.Addr) int { return o.ip.Compare(first) })
		if i == len(n.nodes) || !c.Contains(n.nodes[i].ip) {
			continue
		}
		text := fmt.Sprintf("%s holds %s, the address of node %s", c, n.nodes[i].ip, n.nodes[i].node)
		if !n.runs(d.Name, c) {
			return &declare.Fault{Path: "spec.cidrBlock", Reason: text + ", which would lose its way to the other nodes"}, false
		}
		fault = &declare.Fault{Path: "spec.cidrBlock", Reason: text + ": that node does not reach its pods, nor do they reach the node"}
	}
	return fault, true
}

// routed tells that nodes have a route to a Subnet's pods.
func routed(s core.Subnet) bool {
	return s.Vpc == v1.DefaultVpc && v1.Routed(s.Provider) && s.ByNodes()
}

// ForPods tells that an address is of a Subnet in force to whose pods nodes have a route.
func (n *Networks) ForPods(ip netip.Addr) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return slices.ContainsFunc(n.forPod, func(s core.Subnet) bool { return routed(s) && annotation.Within(ip, s.CIDRs) })
}

// selected adds to a list of namespaces those that one of the selectors fits.
func selected(list []string, by []metav1.LabelSelector, spaces []object.Namespace) []string {
	out := slices.Clone(list)
	for _, s := range by {
		fits, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil || fits.Empty() {
			continue
		}
		for _, ns := range spaces {
			if fits.Matches(labels.Set(ns.Labels)) {
				out = append(out, ns.Name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Get is a Subnet in force, and otherwise why it is not.
func (n *Networks) Get(name string) (s logical.Subnet, fault string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	if is, ok := n.force[name]; ok {
		return *is, n.faults[name], true
	}
	return s, n.faults[name], false
}

// Beside are the Subnets, divided by spaces, to any of which a pod of a namespace may come
// instead of one of them, itself among them.
func (n *Networks) Beside(subnet, namespace string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	var all []string
	for _, s := range n.forPod {
		if slices.Contains(s.Namespaces, namespace) {
			all = append(all, s.Name)
		}
	}
	if !slices.Contains(all, subnet) {
		return subnet
	}
	return strings.Join(all, " ")
}

// Faults are why Subnets are not in force as they are declared, by name.
func (n *Networks) Faults() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return maps.Clone(n.faults)
}

// All are the Subnets in force by name. They must not be changed.
func (n *Networks) All() map[string]*logical.Subnet {
	all, _ := n.Since(0)
	return all
}

// Since are the Subnets in force by name unless they are those of a look, nil then;
// now is the number of theirs, 0 that of none. They must not be changed.
func (n *Networks) Since(look uint64) (all map[string]*logical.Subnet, now uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	if n.looks == look {
		return nil, look
	}
	return n.force, n.looks
}

// Homes changes when IPPools or Vpcs may have pods of any namespace come to another Subnet;
// what Subnets themselves do is not in it.
func (n *Networks) Homes() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return n.homes
}

// Source is the resolve.Source of one pod, with the annotations that count.
type Source struct {
	*Networks
	Of resolve.Pod
}

// Pod implements resolve.Source.
func (s Source) Pod(context.Context, core.Pod) (*resolve.Pod, error) { return &s.Of, nil }

// NAD implements resolve.Source.
func (s Source) NAD(_ context.Context, namespace, name string) (*resolve.NAD, error) {
	nad, ok := s.from.NADs.Get(namespace, name)
	if !ok {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s/%s: %w", namespace, name, core.ErrNotFound)
	}
	return &nad, nil
}

// Subnets implements resolve.Source. The nodes' Subnet is not for pods; pods of a Vpc
// without a Subnet for them do not come to the default one unasked.
func (s Source) Subnets(context.Context) ([]core.Subnet, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	if s.homeless[s.Of.Namespace] == "" || s.Of.Annotations[v1.DefaultProvider+v1.ProviderSuffix+v1.FieldSubnet] != "" {
		return s.forPod, nil
	}
	return slices.DeleteFunc(slices.Clone(s.forPod), func(n core.Subnet) bool { return n.Default || n.Name == v1.DefaultSubnet }), nil
}

// maxDevices is how many devices of a resource Allocated names: more than a pod
// may have networks.
const maxDevices = 32

// Allocated implements resolve.Devices: which devices a pod has its node knows,
// and no address depends on it.
func (s Source) Allocated(context.Context, core.Pod) (map[string][]string, error) {
	out := map[string][]string{}
	for _, nad := range s.from.NADs.List() {
		name := nad.Annotations[v1.AnnResourceName]
		if name == "" || out[name] != nil {
			continue
		}
		for i := range maxDevices {
			out[name] = append(out[name], fmt.Sprint(i))
		}
	}
	return out, core.ErrNotFound // a device that the pod names is its node's to judge
}
