// Package ippool says which parts of Subnets are kept for those who ask for them:
// the IPPools in force. It must not know who has which address.
package ippool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// Pool is an IPPool in force.
type Pool struct {
	Name       string
	Subnet     string
	Namespaces []string         // whose pods come here
	Ranges     []core.AddrRange // sorted and disjoint
	// Spare are those of Ranges that may be given to who asks for none by name.
	Spare []core.AddrRange
	// Default tells that the Subnet is one for pods' default network.
	Default bool
}

// Pools are the IPPools in force, the oldest first. The zero value has none.
type Pools struct {
	all    []Pool
	faults map[string]string
}

// Next are the IPPools in force of these objects and Subnets. Of one whose object is
// bad the version before stays, if it still can.
func (p Pools) Next(objects []*v1.IPPool, subnets map[string]*logical.Subnet) Pools {
	out := Pools{faults: map[string]string{}}
	objects = slices.SortedFunc(slices.Values(objects), func(a, b *v1.IPPool) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, o := range objects {
		next, err := Read(o.Name, o.Spec)
		if err == nil {
			next, err = out.place(next, subnets)
		}
		if err != nil {
			out.faults[o.Name] = err.Error()
			before, _, had := p.Get(o.Name)
			if next, err = out.place(before, subnets); err != nil || !had {
				continue
			}
		}
		out.all = append(out.all, next)
	}
	return out
}

// place fits a pool into its Subnet, beside the others.
func (p Pools) place(pool Pool, subnets map[string]*logical.Subnet) (Pool, error) {
	net, ok := subnets[pool.Subnet]
	if !ok || pool.Subnet == logical.JoinSubnet {
		return pool, fmt.Errorf("spec.subnet: Subnet %s is not in force, or not for pods", pool.Subnet)
	}
	for _, r := range pool.Ranges {
		if !slices.ContainsFunc(net.CIDRs, func(c netip.Prefix) bool { return c.Contains(r.From) && c.Contains(r.To) }) {
			return pool, fmt.Errorf("spec.ips: %s lies outside of Subnet %s %v", Range(r), pool.Subnet, net.CIDRs)
		}
		if other := p.overlap(pool.Subnet, r); other != "" {
			return pool, fmt.Errorf("spec.ips: %s overlaps IPPool %s", Range(r), other)
		}
	}
	pool.Spare = ipam.Choosable(net.Subnet, pool.Ranges)
	for _, f := range []core.Family{core.IPv4, core.IPv6} {
		if of(pool.Ranges, f) && !of(pool.Spare, f) {
			return pool, fmt.Errorf("spec.ips: none of its %s addresses may be given: they are excluded by Subnet %s, or are the network's or a gateway's", f, pool.Subnet)
		}
	}
	pool.Default = net.Provider == "" || net.Provider == v1.DefaultProvider
	return pool, nil
}

// overlap is a pool of a Subnet that has addresses of a range, "" for none.
func (p Pools) overlap(subnet string, r core.AddrRange) string {
	for _, o := range p.all {
		if o.Subnet == subnet && slices.ContainsFunc(o.Ranges, func(o core.AddrRange) bool { return o.Contains(r.From) || r.Contains(o.From) }) {
			return o.Name
		}
	}
	return ""
}

// of tells that some ranges have addresses of a family.
func of(ranges []core.AddrRange, f core.Family) bool {
	return slices.ContainsFunc(ranges, func(r core.AddrRange) bool { return core.FamilyOf(r.From) == f })
}

// Get is the IPPool in force of a name, and why it is not as its object says.
func (p Pools) Get(name string) (pool Pool, fault string, ok bool) {
	i := slices.IndexFunc(p.all, func(o Pool) bool { return o.Name == name })
	if i >= 0 {
		pool = p.all[i]
	}
	return pool, p.faults[name], i >= 0
}

// In are the names of a Subnet's IPPools.
func (p Pools) In(subnet string) (out []string) {
	for _, o := range p.all {
		if o.Subnet == subnet {
			out = append(out, o.Name)
		}
	}
	return out
}

// Ranges are all addresses of a Subnet that IPPools keep.
func (p Pools) Ranges(subnet string) (out []core.AddrRange) {
	for _, o := range p.all {
		if o.Subnet == subnet {
			out = append(out, o.Ranges...)
		}
	}
	return out
}

// For is the oldest IPPool of a Subnet to which the pods of a namespace come; ""
// stands for all Subnets of the default network.
func (p Pools) For(subnet, namespace string) (Pool, bool) {
	i := slices.IndexFunc(p.all, func(o Pool) bool {
		return (o.Subnet == subnet || subnet == "" && o.Default) && slices.Contains(o.Namespaces, namespace)
	})
	if i < 0 {
		return Pool{}, false
	}
	return p.all[i], true
}

// Gives tells that the pool has addresses of one of some families.
func (p Pool) Gives(families []core.Family) bool {
	return slices.ContainsFunc(families, func(f core.Family) bool { return of(p.Ranges, f) })
}

// Keeps tells that addresses are the pool's, but for those of a family that it has
// none of.
func (p Pool) Keeps(ips []netip.Addr) bool {
	return !slices.ContainsFunc(ips, func(ip netip.Addr) bool {
		return of(p.Ranges, core.FamilyOf(ip)) && !slices.ContainsFunc(p.Ranges, func(r core.AddrRange) bool { return r.Contains(ip) })
	})
}

// Read reads what an IPPool says by itself.
func Read(name string, spec v1.IPPoolSpec) (Pool, error) {
	var all netipx.IPSetBuilder
	for i, item := range spec.IPs {
		r, err := parse(string(item))
		if err != nil {
			return Pool{}, fmt.Errorf("spec.ips[%d]: %q %w", i, item, err)
		}
		all.AddRange(r)
	}
	set, err := all.IPSet()
	switch {
	case err != nil:
		return Pool{}, fmt.Errorf("spec.ips: %w", err)
	case len(set.Ranges()) == 0:
		return Pool{}, fmt.Errorf("spec.ips: it has no address")
	}
	out := Pool{Name: name, Subnet: spec.Subnet, Namespaces: spec.Namespaces}
	for _, r := range set.Ranges() {
		out.Ranges = append(out.Ranges, core.AddrRange{From: r.From(), To: r.To()})
	}
	return out, nil
}

// parse reads "address", "from..to" or a network in CIDR form.
func parse(item string) (netipx.IPRange, error) {
	if p, err := netip.ParsePrefix(item); err == nil {
		return netipx.RangeOfPrefix(p), nil
	}
	from, to, isRange := strings.Cut(item, "..")
	if !isRange {
		to = from
	}
	a, errA := netip.ParseAddr(strings.TrimSpace(from))
	b, errB := netip.ParseAddr(strings.TrimSpace(to))
	if errA != nil || errB != nil || a.Zone() != "" || b.Zone() != "" {
		return netipx.IPRange{}, fmt.Errorf("is neither an address, nor a range from..to, nor a network in CIDR form")
	}
	r := netipx.IPRangeFrom(a.Unmap(), b.Unmap())
	if !r.IsValid() {
		return r, fmt.Errorf("does not go upwards")
	}
	return r, nil
}

// Range is a range as users write it.
func Range(r core.AddrRange) string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + ".." + r.To.String()
}
