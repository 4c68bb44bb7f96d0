package ipam

import (
	"context"
	"net/netip"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Shares tells which addresses of a Subnet are this node's to give, where several
// nodes serve it.
type Shares interface {
	// Share waits until that is known; none is all addresses. done ends the
	// giving of one. The error says why none may be given.
	Share(ctx context.Context, s core.Subnet) (within []netip.Prefix, done func(), err error)
	// Barred is why no address of a Subnet may be given of which this node holds
	// none; it waits for nobody.
	Barred(s core.Subnet) error
}

// ShareWith has s asked before an address is given; it is called before the first
// Lease, and not at all where all addresses are this node's.
func (a *Allocator) ShareWith(s Shares) { a.shares = s }

// Lease is Acquire of what this node may give of a Subnet, with an error that
// names interface and Subnet. Addresses that somebody else has given, who serves
// all nodes, are not this node's to refuse.
func (a *Allocator) Lease(ctx context.Context, r Request) (core.Lease, error) {
	if a.shares != nil && !r.Given && !r.Subnet.Implied {
		within, done, err := a.shares.Share(ctx, r.Subnet)
		if err != nil {
			return core.Lease{}, err
		}
		defer done()
		r.Within = within
	}
	l, err := a.Acquire(r)
	return l, core.WithCode(core.CodeAddress, "address for "+r.Owner.Key.IfName+" in subnet "+r.Subnet.Name, err)
}

// Barred is why pods get no address of the default one of subnets here, where no
// pod has one; nil otherwise.
func (a *Allocator) Barred(subnets []core.Subnet) error {
	i := slices.IndexFunc(subnets, func(s core.Subnet) bool { return s.Default })
	if i < 0 {
		i = slices.IndexFunc(subnets, func(s core.Subnet) bool { return s.Name == v1.DefaultSubnet })
	}
	if a.shares == nil || i < 0 {
		return nil
	}
	return a.shares.Barred(subnets[i])
}
