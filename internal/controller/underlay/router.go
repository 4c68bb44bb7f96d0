package underlay

import (
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// RouterPort names what has the router's addresses in an interconnected Subnet, as no
// pod's port is named.
func RouterPort(subnet string) string { return "u2o/" + subnet }

// owner has the router's addresses in a Subnet.
func owner(subnet string) core.Owner {
	return core.Owner{Key: core.Key{IfName: RouterPort(subnet)}}
}

// Router is OVN's router, which has addresses in interconnected Subnets as a book says.
type Router struct{ Book *book.Book }

// In are its addresses in a Subnet, one for each network, in their order; nil where it has
// not all of them, or has one that is the physical gateway's now.
func (r Router) In(n core.Subnet) (out []netip.Addr) {
	l, has := r.Book.At(RouterPort(n.Name))
	if !has || !n.Interconnected {
		return nil
	}
	for _, c := range n.CIDRs {
		i := slices.IndexFunc(l.IPs, func(ip netip.Addr) bool { return c.Contains(ip) && book.Gives(n, ip) })
		if i < 0 {
			return nil
		}
		out = append(out, l.IPs[i])
	}
	return out
}

// Settle gives it the addresses in a Subnet that this asks for, or any, one for each network,
// and takes back what the Subnet is not to give; changed tells that it has others than
// before. On an error it has what it had.
func (r Router) Settle(n core.Subnet, asked []netip.Addr) (changed bool, err error) {
	l, has := r.Book.At(RouterPort(n.Name))
	other := func(ip netip.Addr) bool { return !slices.Contains(l.IPs, ip) }
	want := ipam.Request{Subnet: n, Owner: owner(n.Name), IPs: asked, MAC: n.GatewayMAC()}
	switch {
	case !n.Interconnected:
		if has {
			r.Book.Forget(l, false)
		}
		return has, nil
	case !has:
		_, changed, err = r.Book.Acquire(want)
	case r.In(n) == nil || slices.ContainsFunc(asked, other):
		if len(asked) == 0 { // what it has of one network it keeps
			want.IPs = slices.DeleteFunc(slices.Clone(l.IPs), func(ip netip.Addr) bool { return !book.Gives(n, ip) })
		}
		_, err = r.Book.Exchange(l, want)
		changed = err == nil
	}
	return changed, err
}

// Leave takes back what it has in a Subnet.
func (r Router) Leave(subnet string) {
	if l, has := r.Book.At(RouterPort(subnet)); has {
		r.Book.Forget(l, false)
	}
}

// Told is the lease of its addresses in a Subnet that the Subnet's status tells; ips are
// these.
func Told(o *v1.Subnet, n core.Subnet, ips []netip.Addr) core.Lease {
	return core.Lease{Subnet: o.Name, IPs: ips, MAC: n.GatewayMAC(), Owner: owner(o.Name)}
}
