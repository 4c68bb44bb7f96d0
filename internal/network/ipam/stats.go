package ipam

import (
	"math"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
)

// SubnetStats counts the addresses of one family of a subnet. Counts beyond
// 2^64-1 are that.
type SubnetStats struct {
	Subnet   string
	Family   string // IPv4 or IPv6
	Total    uint64 // all of the CIDR
	Used     uint64 // held, also outside of the CIDR after it shrank
	Excluded uint64 // network, broadcast, gateway and excludes, unless held
	Free     uint64 // the rest; of an IPv6 network more than can be chosen
}

// Stats counts for each of the subnets given, in their order, IPv4 first. A
// subnet without a valid CIDR is left out.
func (a *Allocator) Stats(subnets []core.Subnet) []SubnetStats {
	var out []SubnetStats
	for _, s := range subnets {
		cidrs, err := cidrsOf(s.CIDRs)
		if err != nil {
			continue
		}
		p := a.pool(s.Name)
		for f, c := range cidrs {
			if c.IsValid() {
				out = append(out, p.stats(family(f), newSpace(c, s)))
			}
		}
	}
	return out
}

// Full is 1 where a subnet has no address of a family any more of which a request wants
// one, and else 0: resolve.Input.Rank.
func (a *Allocator) Full(s core.Subnet, only core.Family) int {
	for _, st := range a.Stats([]core.Subnet{s}) {
		if st.Free == 0 && (only == core.AnyFamily || st.Family == only.String()) {
			return 1
		}
	}
	return 0
}

// stats counts against the Subnet given, not the pool's: nobody may have asked
// for an address since it changed. Held and reserved (a fixed request may name
// an excluded address) counts as held.
func (p *pool) stats(f family, sp *space) SubnetStats {
	st := SubnetStats{Subnet: p.name, Family: f.String(), Total: size(sp.cidr)}
	for _, r := range sp.reserved {
		st.Excluded = add(st.Excluded, Count(r))
	}
	var inside uint64
	p.mu.Lock()
	for ip := range p.holders {
		if familyOf(ip) != f {
			continue
		}
		st.Used++
		if _, reserved := sp.within(ip); reserved {
			st.Excluded--
		}
		if sp.cidr.Contains(ip) {
			inside++
		}
	}
	p.mu.Unlock()
	st.Free = st.Total - min(st.Total, add(inside, st.Excluded))
	return st
}

// size is the number of addresses of a prefix.
func size(p netip.Prefix) uint64 {
	n := p.Addr().BitLen() - p.Bits()
	if n >= 64 {
		return math.MaxUint64
	}
	return 1 << n
}

// Count is the number of addresses of a range; one beyond 2^64-1 is that.
func Count(r core.AddrRange) uint64 {
	hi, lo := distance(r.From, r.To)
	if hi != 0 {
		return math.MaxUint64
	}
	return add(lo, 1)
}

// add adds without wrapping around.
func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
