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
	"github.com/fairlead/fairlead/internal/controller/ippool"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// networks are the Subnets in force. What was good stays in force until
// something good replaces it.
type networks struct {
	from Readers
	join core.Subnet // serves where no Subnet object has its name

	mu     sync.Mutex
	stale  bool // objects changed since the last look
	book   declare.Book
	force  map[string]logical.Subnet
	faults map[string]string // why an object's Subnet is not in force as written
	pools  ippool.Pools
}

func newNetworks(from Readers, join core.Subnet) *networks {
	return &networks{from: from, join: join, stale: true}
}

// Changed says that Subnets or namespaces are not what they were.
func (n *networks) Changed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stale = true
}

// look brings what is in force up to date. The caller holds mu.
func (n *networks) look() {
	if !n.stale {
		return
	}
	n.stale = false
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
	all := slices.SortedFunc(slices.Values(n.from.Subnets.List()), func(a, b *v1.Subnet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	spaces := n.from.Namespaces.List()
	joined := false
	for _, o := range all {
		joined = joined || o.Name == logical.JoinSubnet
		d, faults := readSubnet(o)
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

// readSubnet reads an object, and refuses what would be a promise that nobody
// keeps.
func readSubnet(o *v1.Subnet) (declare.Subnet, []declare.Fault) {
	d, faults := declare.ReadSubnet(o.Name, o.Spec)
	faults = append(faults, declare.ReadNotes(&d.Subnet, o.Annotations)...)
	if o.Spec.Vlan != "" {
		faults = append(faults, declare.Fault{Path: "spec.vlan", Reason: "the controller does not carry it out yet: leave it out"})
	}
	return d, faults
}

// selected adds to a list of namespaces those that one of the selectors fits.
func selected(list []string, by []metav1.LabelSelector, spaces []Namespace) []string {
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
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look()
	return maps.Clone(n.force)
}

// differ are the names whose Subnets are not the same in both.
func differ(a, b map[string]logical.Subnet) (out []string) {
	for name := range a {
		if _, both := b[name]; !both || !reflect.DeepEqual(a[name], b[name]) {
			out = append(out, name)
		}
	}
	for name := range b {
		if _, both := a[name]; !both {
			out = append(out, name)
		}
	}
	return out
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

// Subnets implements resolve.Source. The nodes' Subnet is not for pods.
func (d desired) Subnets(context.Context) ([]core.Subnet, error) {
	all := d.All()
	delete(all, logical.JoinSubnet)
	out := make([]core.Subnet, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[name].Subnet)
	}
	return out, nil
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
