package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// candidates checks a request's list: every element must be one that the subnet
// could give, so that a bad one shows on the first pod and not on the last.
func (w *wish) candidates(list [][]netip.Addr) error {
	if len(list) == 0 {
		return nil
	}
	for f := range families {
		if w.fixed[f].IsValid() {
			return core.Errorf(core.CodeConflict, "both an address, %s, and a list of candidates are requested", w.fixed[f])
		}
	}
	for _, element := range list {
		one := wish{subnet: w.subnet, cidrs: w.cidrs, only: w.only}
		for _, ip := range element {
			if err := one.fix(ip); err != nil {
				return err
			}
		}
		if w.mayGive(element) {
			w.pool = append(w.pool, one.fixed)
		}
	}
	if len(w.pool) == 0 {
		return core.Errorf(core.CodeAddress, "none of the addresses that may be chosen is in this node's block %v of the subnet", w.within)
	}
	return nil
}

// mayGive tells that no address belongs to another node's part of the subnet.
func (w *wish) mayGive(ips []netip.Addr) bool {
	return !slices.ContainsFunc(ips, func(ip netip.Addr) bool {
		part := w.within[familyOf(ip.Unmap())]
		return part.IsValid() && !part.Contains(ip.Unmap())
	})
}

// pooled tells whether every candidate has an address of family f.
func (w *wish) pooled(f family) bool {
	for _, c := range w.pool {
		if !c[f].IsValid() {
			return false
		}
	}
	return len(w.pool) > 0
}

// pick settles a list of candidates on the first whose addresses are all free.
func (p *pool) pick(w *wish) error {
	if len(w.pool) == 0 {
		return nil
	}
	for _, c := range w.pool {
		taken := false
		for _, ip := range c {
			taken = taken || p.holders[ip] != nil
		}
		if !taken {
			w.fixed = c
			return nil
		}
	}
	return fmt.Errorf("all %d of the addresses that may be chosen are held: %w", len(w.pool), core.ErrExhausted)
}
