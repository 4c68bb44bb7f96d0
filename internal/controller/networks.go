package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/ippool"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// networks are the Subnets in force. What was good stays in force until
// something good replaces it.
type networks struct {
	from   object.Readers
	join   core.Subnet // serves where no Subnet object has its name
	leases *book.Book

	mu     sync.Mutex
	anew   bool                // a look is due although there was no news
	held   map[string]bool     // Subnets that do not change because of addresses in use
	told   map[object.Key]bool // objects of which there was news since the last look
	read   map[object.Key]any  // what of an object matters, as it was when there was news of it
	looks  uint64              // that brought something
	parsed map[string]parsed   // Subnet objects, as the last look read them
	book   declare.Book
	force  map[string]logical.Subnet
	forPod []core.Subnet     // those of them that pods may be in, by name
	faults map[string]string // why an object's Subnet is not in force as written
	pools  ippool.Pools
	// homeless are the namespaces of Vpcs that have no Subnet for their pods, by name.
	homeless map[string]string
}

// parsed is what a Subnet object says, and what is wrong with it.
type parsed struct {
	from   *v1.Subnet
	says   declare.Subnet
	faults []declare.Fault
}

func newNetworks(from object.Readers, join core.Subnet, leases *book.Book) *networks {
	return &networks{from: from, join: join, leases: leases, held: map[string]bool{}, told: map[object.Key]bool{}, read: map[object.Key]any{}}
}

// Changed says that a Subnet, an IPPool, a Vpc or a namespace is not what it was.
func (n *networks) Changed(k object.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told[k] = true
}

// matters is what of an object decides which Subnets are in force, nil for none. A
// status does not: with every pod that comes some Subnet's counts change, and to
// look at all Subnets for that would make a pod cost what they cost together.
func (n *networks) matters(k object.Key) any {
	switch k.Kind {
	case object.KindSubnet:
		if o, ok := n.from.Subnets.Get("", k.Name); ok {
			return []any{o.UID, o.CreationTimestamp, o.Annotations, o.Spec}
		}
	case object.KindPool:
		if o, ok := n.from.Pools.Get("", k.Name); ok {
			return []any{o.UID, o.CreationTimestamp, o.Annotations, o.Spec}
		}
	case object.KindVpc:
		if o, ok := n.from.Vpcs.Get("", k.Name); ok {
			return []any{o.UID, o.Spec.DefaultSubnet, o.Spec.Namespaces}
		}
	default:
		if o, ok := n.from.Namespaces.Get("", k.Name); ok {
			return o
		}
	}
	return nil
}

// news tells that something that matters changed since it was asked last. The
// caller holds mu.
func (n *networks) news() (some bool) {
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
func (n *networks) look() {
	if !n.news() && !n.anew && n.looks > 0 {
		return
	}
	n.anew = false
	n.looks++
	next, refused := n.book.Next(n.declared(), nil)
	for name, f := range refused {
		n.faults[name] = f.String()
	}
	serving, blamed := next.Serving(n.withheld())
	if blamed != "" {
		n.faults[blamed] = declare.BlamedReason
	}
	force := map[string]logical.Subnet{}
	for _, s := range serving {
		d := next.Declared(s.Name)
		force[s.Name] = logical.Subnet{Subnet: s, Access: d.Access, NoServices: d.NoServices}
	}
	nodes := force[logical.JoinSubnet].CIDRs
	for name, s := range force {
		if s.Access.Private {
			s.Nodes = nodes
			force[name] = s
		}
	}
	n.pools = n.pools.Next(n.from.Pools.List(), force)
	for name, s := range force {
		s.Exclude = slices.Concat(s.Exclude, n.pools.Ranges(name))
		force[name] = s
	}
	n.book, n.force = next, force
	n.homeless = logical.House(n.from.Vpcs.List(), force, n.isDefault)
	n.forPod = nil
	for _, name := range slices.Sorted(maps.Keys(force)) {
		if name != logical.JoinSubnet { // the nodes'
			n.forPod = append(n.forPod, force[name].Subnet)
		}
	}
}

// isDefault tells a Subnet that is declared as the default of its Vpc.
func (n *networks) isDefault(name string) bool {
	return n.force[name].Default || n.book.Declared(name).Default
}

// home is the Subnet of a Vpc to which pods of its namespaces come, and what is wrong
// with it; subnets are all of the Vpc in force.
func (n *networks) home(vpc string, spec v1.VpcSpec) (subnet string, subnets []string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	subnet = logical.DefaultSubnet(vpc, spec, n.force, n.isDefault)
	return subnet, logical.SubnetsOf(vpc, n.force), logical.Unhoused(vpc, spec, subnet, n.homeless)
}

// homelessIn is the Vpc of a namespace that has no Subnet for its pods, "" for none.
func (n *networks) homelessIn(namespace string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return n.homeless[namespace]
}

// Pools are the IPPools in force.
func (n *networks) Pools() ippool.Pools {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return n.pools
}

// withheld tells that a Subnet object of the default one's name is there, which
// keeps the built-in one away although the object is wrong.
func (n *networks) withheld() bool {
	_, there := n.from.Subnets.Get("", v1.DefaultSubnet)
	return there
}

// declared are the good Subnet objects, the oldest first. A bad one of which a
// good version is in force counts as that version.
func (n *networks) declared() (out []declare.Subnet) {
	n.faults = map[string]string{}
	clear(n.held)
	all := slices.SortedFunc(slices.Values(n.from.Subnets.List()), func(a, b *v1.Subnet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	spaces := n.from.Namespaces.List()
	before := n.parsed
	n.parsed = make(map[string]parsed, len(all))
	joined := false
	for _, o := range all {
		joined = joined || o.Name == logical.JoinSubnet
		p := before[o.Name]
		if p.from != o { // objects that change are others
			p = parsed{from: o}
			p.says, p.faults = logical.ReadSubnet(o)
		}
		n.parsed[o.Name] = p
		d, faults := p.says, p.faults
		if len(faults) == 0 {
			faults = n.inUse(d)
		}
		if len(faults) > 0 {
			n.faults[o.Name] = faults[0].String()
			if !n.book.Has(o.Name) {
				continue
			}
			d = n.book.Declared(o.Name)
		}
		d.Namespaces = selected(d.Namespaces, o.Spec.NamespaceSelectors, spaces)
		out = append(out, d)
	}
	if !joined && n.join.Name != "" {
		out = slices.Insert(out, 0, declare.Subnet{Subnet: n.join})
	}
	return out
}

// inUse tells whose address a changed Subnet would no longer have. Objects keep such
// changes out by their status, which is written a moment after the pod; a restored
// etcd may have other ones.
func (n *networks) inUse(d declare.Subnet) []declare.Fault {
	if now := n.book.Declared(d.Name); slices.Equal(now.CIDRs, d.CIDRs) && slices.Equal(now.Gateways, d.Gateways) {
		return nil
	}
	ip, port := n.leases.Misfit(d.Subnet)
	if !ip.IsValid() {
		return nil
	}
	n.held[d.Name] = true
	return []declare.Fault{{Path: "spec", Reason: fmt.Sprintf("%s has %s, which lies outside of %s or would be the gateway's; what is in force stays until it is given back",
		port, ip, logical.Join(d.CIDRs))}}
}

// restored says that the leases are known from now on: what was in force before is
// looked at with them.
func (n *networks) restored() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.anew, n.book = true, declare.Book{}
}

// freed says that an address of a Subnet was given back, and tells whether it may
// change now.
func (n *networks) freed(subnet string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.anew = n.anew || n.held[subnet]
	return n.held[subnet]
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
func (n *networks) Get(name string) (s logical.Subnet, fault string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	s, ok = n.force[name]
	return s, n.faults[name], ok
}

// All are the Subnets in force by name.
func (n *networks) All() map[string]logical.Subnet {
	all, _ := n.Since(0)
	return all
}

// Since are the Subnets in force by name unless they are those of a look, nil then;
// now is the number of theirs, 0 that of none.
func (n *networks) Since(look uint64) (all map[string]logical.Subnet, now uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	if n.looks == look {
		return nil, look
	}
	return maps.Clone(n.force), n.looks
}

// desired is the Source of one pod, with the annotations that count.
type desired struct {
	*networks
	pod resolve.Pod
}

// Pod implements resolve.Source.
func (d desired) Pod(context.Context, core.Pod) (*resolve.Pod, error) { return &d.pod, nil }

// NAD implements resolve.Source.
func (d desired) NAD(_ context.Context, namespace, name string) (*resolve.NAD, error) {
	nad, ok := d.from.NADs.Get(namespace, name)
	if !ok {
		return nil, fmt.Errorf("NetworkAttachmentDefinition %s/%s: %w", namespace, name, core.ErrNotFound)
	}
	return &nad, nil
}

// Subnets implements resolve.Source. The nodes' Subnet is not for pods; pods of a Vpc
// without a Subnet for them do not come to the default one unasked.
func (d desired) Subnets(context.Context) ([]core.Subnet, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
	if d.homeless[d.pod.Namespace] == "" || d.pod.Annotations[v1.DefaultProvider+v1.ProviderSuffix+v1.FieldSubnet] != "" {
		return d.forPod, nil
	}
	return slices.DeleteFunc(slices.Clone(d.forPod), func(s core.Subnet) bool { return s.Default || s.Name == v1.DefaultSubnet }), nil
}

// maxDevices is how many devices of a resource Allocated names: more than a pod
// may have networks.
const maxDevices = 32

// Allocated implements resolve.Devices: which devices a pod has its node knows,
// and no address depends on it.
func (d desired) Allocated(context.Context, core.Pod) (map[string][]string, error) {
	out := map[string][]string{}
	for _, nad := range d.from.NADs.List() {
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
