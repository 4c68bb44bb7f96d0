package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
)

// ranged tells that an address is one of the ranges of its family.
func (w *wish) ranged(ip netip.Addr) bool {
	return slices.ContainsFunc(w.ranges[familyOf(ip)], func(r core.AddrRange) bool { return !ip.Less(r.From) && !r.To.Less(ip) })
}

// places are where an address of a family is chosen, for messages.
func (w *wish) places(f family) string {
	if len(w.ranges[f]) == 0 {
		return w.part(int(f)).String()
	}
	return fmt.Sprintf("%d ranges from %s to %s", len(w.ranges[f]), w.ranges[f][0].From, w.ranges[f][len(w.ranges[f])-1].To)
}

// chooseOf finds the lowest address of some ranges that was never used, else the one
// released longest ago. It passes those that are in use one by one: ranges are a few
// thousand addresses, or have many that are free.
func (p *pool) chooseOf(ranges []core.AddrRange) (oldest netip.Addr, ok bool) {
	var least uint64
	for _, r := range ranges {
		for ip := r.From; ip.IsValid() && !r.To.Less(ip); ip = ip.Next() {
			seq, given := p.freed[familyOf(ip)].seq[ip]
			switch {
			case p.holders[ip] != nil:
			case !given:
				return ip, true
			case !ok || seq < least:
				oldest, least, ok = ip, seq, true
			}
		}
	}
	return oldest, ok
}

// Choosable are the addresses of some ranges that a Subnet may give to those who ask
// for no address by name: without its network, broadcast and gateway addresses and
// what it excludes. Sorted and disjoint.
func Choosable(s core.Subnet, ranges []core.AddrRange) (out []core.AddrRange) {
	for _, cidr := range s.CIDRs {
		first, last := ends(cidr.Masked())
		var inside []core.AddrRange
		for _, r := range ranges {
			if r.From.BitLen() == first.BitLen() && !r.To.Less(first) && !last.Less(r.From) {
				inside = append(inside, core.AddrRange{From: later(r.From, first), To: earlier(r.To, last)})
			}
		}
		for _, r := range merge(inside) {
			out = append(out, without(r, reservedOf(cidr.Masked(), s))...)
		}
	}
	return out
}

// Spread are the addresses of a family of a Subnet that are held, and those of its
// network that it may give, while nobody has them, to who asks for none by name.
// Sorted and disjoint.
func Spread(s core.Subnet, cidr netip.Prefix, held []netip.Addr) (used, free []core.AddrRange) {
	cidr = cidr.Masked()
	first, last := ends(cidr)
	used = runs(held, func(ip netip.Addr) bool { return ip.BitLen() == first.BitLen() })
	return used, without(core.AddrRange{From: first, To: last}, merge(slices.Concat(reservedOf(cidr, s), used)))
}

// SpreadOf are the addresses of some ranges that are held, and those of others that are
// not. Sorted and disjoint.
func SpreadOf(all, spare []core.AddrRange, held []netip.Addr) (used, free []core.AddrRange) {
	used = runs(held, func(ip netip.Addr) bool {
		return slices.ContainsFunc(all, func(r core.AddrRange) bool { return r.Contains(ip) })
	})
	for _, r := range merge(slices.Clone(spare)) {
		free = append(free, without(r, used)...)
	}
	return used, free
}

// runs are the addresses that count, as ranges.
func runs(held []netip.Addr, counts func(netip.Addr) bool) (out []core.AddrRange) {
	some := make([]netip.Addr, 0, len(held))
	for _, ip := range held {
		if counts(ip) {
			some = append(some, ip)
		}
	}
	slices.SortFunc(some, netip.Addr.Compare)
	for _, ip := range some {
		if n := len(out); n > 0 && (ip == out[n-1].To || ip == out[n-1].To.Next()) {
			out[n-1].To = ip
		} else {
			out = append(out, core.AddrRange{From: ip, To: ip})
		}
	}
	return out
}

// without cuts sorted ranges out of one.
func without(r core.AddrRange, cut []core.AddrRange) (out []core.AddrRange) {
	for _, c := range cut {
		switch {
		case c.To.Less(r.From):
			continue
		case r.To.Less(c.From):
			return append(out, r)
		}
		if r.From.Less(c.From) {
			out = append(out, core.AddrRange{From: r.From, To: c.From.Prev()})
		}
		if !c.To.Less(r.To) {
			return out
		}
		r.From = c.To.Next()
	}
	return append(out, r)
}
