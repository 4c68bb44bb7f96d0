package vfpolicy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
)

// PF is a physical function as policies see it.
type PF struct {
	Name, PCI, LinkType string
	VFs, Most           int // that it has, and can have
	Mbps                int // speed, 0 where it is not known
	Up                  bool
	Functions           []Function
}

// Function is a virtual function as selectors see it.
type Function struct {
	PCI            string
	PF             string // name of its physical function
	Index          int
	Driver         string // "" for none
	Vendor, Device string
	NUMA           int // -1: not known
	RDMA           bool
	RDMANodes      []string // device nodes
	Netdev         string   // on the machine; "": none, or elsewhere
	IOMMUGroup     string
}

// Resource is what kubelet is told of under one name.
type Resource struct {
	Name      string
	Slot      bool
	Functions []Function // by the names of their PFs and their numbers
	// Of is whose a function is, by its address.
	Of map[string]*Policy
}

// Plan is what policies make of the cards.
type Plan struct {
	Resources []Resource // by name
	// Policies are those that are in force here, the one that counts most first.
	Policies []Policy
	// Lost are the functions, by policy, that another one has, and which; and what else
	// of a policy is not in force, by its name.
	Lost  map[string][]string
	Amiss map[string][]string
	// VFs and MTUs are what PFs are to have, by their names.
	VFs, MTUs map[string]Wanted
}

// Wanted is a number for a PF, and who says it.
type Wanted struct {
	Is int
	By *Policy
}

// Assign gives each function to the policy that counts most of those that mean it.
func Assign(policies []Policy, cards []PF) Plan {
	out := Plan{
		Policies: slices.SortedFunc(slices.Values(policies), order),
		Lost:     map[string][]string{}, Amiss: map[string][]string{}, VFs: map[string]Wanted{}, MTUs: map[string]Wanted{},
	}
	resources, takes := map[string]*Resource{}, map[string]bool{}
	for i := range out.Policies {
		p := &out.Policies[i]
		out.numbers(p, cards)
		r := resources[p.Spec.Resource]
		if r == nil {
			r = &Resource{Name: p.Spec.Resource, Slot: p.Slot(), Of: map[string]*Policy{}}
			resources[r.Name] = r
		}
		if r.Slot != p.Slot() {
			out.Amiss[p.Name] = append(out.Amiss[p.Name], fmt.Sprintf("resource %s has the other idMode, by a policy that counts more", r.Name))
			continue
		}
		takes[p.Name] = true
	}
	out.share(resources, takes, cards)
	for _, r := range resources {
		out.Resources = append(out.Resources, *r)
	}
	slices.SortFunc(out.Resources, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// share deals the functions out among the policies that take any.
func (out *Plan) share(resources map[string]*Resource, takes map[string]bool, cards []PF) {
	for _, card := range cards {
		for _, f := range card.Functions {
			var owner *Policy
			for i := range out.Policies {
				p := &out.Policies[i]
				if !p.fits(card, f) {
					continue
				}
				r := resources[p.Spec.Resource]
				switch {
				case owner != nil && owner.Spec.Resource != p.Spec.Resource:
					out.Lost[p.Name] = append(out.Lost[p.Name], fmt.Sprintf("virtual function %d of %s is %s's", f.Index, f.PF, owner.Name))
				case owner == nil && takes[p.Name]:
					owner = p
					r.Functions, r.Of[f.PCI] = append(r.Functions, f), p
				}
			}
		}
	}
}

// numbers takes what a policy says of physical functions.
func (out *Plan) numbers(p *Policy, cards []PF) {
	for _, name := range p.PFs() {
		if !slices.ContainsFunc(cards, func(c PF) bool { return c.Name == name }) {
			out.Amiss[p.Name] = append(out.Amiss[p.Name], fmt.Sprintf("there is no physical function %s here", name))
			continue
		}
		for _, n := range []struct {
			of   map[string]Wanted
			is   int
			said bool
			what string
		}{{out.VFs, deref(p.Spec.NumVFs), p.Spec.NumVFs != nil, "numVFs"}, {out.MTUs, p.Spec.MTU, p.Spec.MTU != 0, "mtu"}} {
			switch first, is := n.of[name]; {
			case !n.said:
			case !is:
				n.of[name] = Wanted{n.is, p}
			case first.Is != n.is:
				out.Amiss[p.Name] = append(out.Amiss[p.Name], fmt.Sprintf("%s of %s is %d, by %s, which counts more", n.what, name, first.Is, first.By.Name))
			}
		}
	}
}

// fits tells whether the policy means a function.
func (p Policy) fits(card PF, f Function) bool {
	if len(p.Spec.PF) > 0 && !anyRanged(p.Spec.PF, f.PF, f.Index) {
		return false
	}
	return len(p.Spec.Selectors) == 0 || slices.ContainsFunc(p.Spec.Selectors, func(s v1alpha1.VFSelector) bool { return fits(s, card, f) })
}

func anyRanged(list []string, name string, index int) bool {
	return slices.ContainsFunc(list, func(text string) bool { return parseRanged(text).means(name, index) })
}

func fits(s v1alpha1.VFSelector, card PF, f Function) bool {
	for _, one := range []struct {
		list []string
		is   string
	}{{s.Vendors, f.Vendor}, {s.Devices, f.Device}, {s.Drivers, f.Driver}, {s.PCIAddresses, f.PCI}, {s.LinkTypes, card.LinkType}} {
		if len(one.list) > 0 && !slices.ContainsFunc(one.list, func(w string) bool { return strings.EqualFold(w, one.is) }) {
			return false
		}
	}
	if len(s.PFNames) > 0 && !anyRanged(s.PFNames, f.PF, f.Index) || len(s.RootDevices) > 0 && !anyRanged(s.RootDevices, card.PCI, f.Index) {
		return false
	}
	return !s.IsRDMA || f.RDMA
}

// RDMA tells that pods get the RDMA devices of the policy's functions.
func (p Policy) RDMA() bool {
	return slices.ContainsFunc(p.Spec.Selectors, func(s v1alpha1.VFSelector) bool { return s.IsRDMA })
}

// Owner is the policy that has a function, nil for none.
func (out *Plan) Owner(pci string) *Policy {
	for _, r := range out.Resources {
		if p := r.Of[pci]; p != nil {
			return p
		}
	}
	return nil
}

// Report is what became of a policy on a node.
type Report struct {
	Policy           string
	Generation       int64
	Devices, Healthy int
	// Conflicts are the functions that others have, Amiss what else is not in force.
	Conflicts, Amiss []string
}
