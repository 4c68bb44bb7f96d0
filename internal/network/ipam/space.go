package ipam

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	// window is how many addresses of a network can be chosen: the first 2^32
	// of a larger one. Fixed requests may name any.
	window uint64 = 1 << 32
	// chunk is how many never-used addresses are listed at a time, one
	// container of a roaring bitmap. A fresh /64 costs as little as a /24.
	chunk uint64 = 1 << 16
)

// space is one CIDR: which of its addresses were never used.
//
// roaring's NextAbsentValue would do this with a bitmap of used offsets alone,
// but in v2.30.0 it answers wrongly as soon as the value lies beyond the first
// 65,536 (a container's key is shifted twice). Hence the bitmap of unused
// offsets, whose lowest is Minimum.
type space struct {
	cidr     netip.Prefix
	reserved []core.AddrRange // sorted, disjoint: never chosen
	used     *roaring.Bitmap  // offsets held, or released and remembered
	fresh    *roaring.Bitmap  // offsets below mark that are neither used nor reserved
	mark     uint64           // offsets from here on are not in fresh yet
	size     uint64           // offsets that can be chosen
}

// newSpace lists nothing yet, whatever the network's size.
func newSpace(cidr netip.Prefix, s core.Subnet) *space {
	sp := &space{cidr: cidr, reserved: reservedOf(cidr, s), used: roaring.New(), fresh: roaring.New(), size: window}
	if n := cidr.Addr().BitLen() - cidr.Bits(); n < 32 {
		sp.size = 1 << n
	}
	return sp
}

// reservedOf are the addresses of cidr that are never chosen, as sorted
// disjoint ranges.
func reservedOf(cidr netip.Prefix, s core.Subnet) []core.AddrRange {
	first, last := ends(cidr)
	var all []core.AddrRange
	one := func(a netip.Addr) { all = append(all, core.AddrRange{From: a, To: a}) }
	if hasEnds(cidr) {
		one(first)
		if first.Is4() {
			one(last)
		}
	}
	for _, g := range s.Gateways {
		if g = g.Unmap(); cidr.Contains(g) {
			one(g)
		}
	}
	for _, r := range s.Exclude {
		r = core.AddrRange{From: r.From.Unmap(), To: r.To.Unmap()}
		if r.From.BitLen() != first.BitLen() || r.To.BitLen() != first.BitLen() || r.To.Less(first) || last.Less(r.From) {
			continue
		}
		all = append(all, core.AddrRange{From: later(r.From, first), To: earlier(r.To, last)})
	}
	return merge(all)
}

// later and earlier are max and min; netip.Addr is not cmp.Ordered.
func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlier(a, b netip.Addr) netip.Addr {
	if b.Less(a) {
		return b
	}
	return a
}

// merge sorts ranges and joins those that overlap or touch.
func merge(all []core.AddrRange) []core.AddrRange {
	all = slices.DeleteFunc(all, func(r core.AddrRange) bool { return r.To.Less(r.From) })
	slices.SortFunc(all, func(a, b core.AddrRange) int { return a.From.Compare(b.From) })
	var out []core.AddrRange
	for _, r := range all {
		if n := len(out); n > 0 && (r.From.Compare(out[n-1].To) <= 0 || r.From == out[n-1].To.Next()) {
			out[n-1].To = later(out[n-1].To, r.To)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// within is the reserved range that contains a.
func (s *space) within(a netip.Addr) (core.AddrRange, bool) {
	i, found := slices.BinarySearchFunc(s.reserved, a, func(r core.AddrRange, a netip.Addr) int {
		switch {
		case r.To.Less(a):
			return -1
		case a.Less(r.From):
			return 1
		}
		return 0
	})
	if !found {
		return core.AddrRange{}, false
	}
	return s.reserved[i], true
}

// choosable tells whether a may be chosen when nobody holds it.
func (s *space) choosable(a netip.Addr) bool {
	if s == nil || !s.cidr.Contains(a) {
		return false
	}
	_, ok := s.offset(a)
	_, reserved := s.within(a)
	return ok && !reserved
}

// take marks an address as used; others than those of the window are not
// counted here.
func (s *space) take(a netip.Addr) {
	if s == nil {
		return
	}
	if off, ok := s.offset(a); ok {
		s.used.Add(off)
		s.fresh.Remove(off)
	}
}

// forget makes an address as if it had never been used.
func (s *space) forget(a netip.Addr) {
	if s == nil {
		return
	}
	off, ok := s.offset(a)
	if !ok {
		return
	}
	s.used.Remove(off)
	if _, reserved := s.within(a); !reserved && uint64(off) < s.mark {
		s.fresh.Add(off)
	}
}

// lowest is the lowest address never used.
func (s *space) lowest() (netip.Addr, bool) {
	for s.fresh.IsEmpty() {
		if s.mark >= s.size {
			return netip.Addr{}, false
		}
		s.list()
	}
	return s.at(uint64(s.fresh.Minimum())), true
}

// list moves mark on by a chunk, or over a reserved range as a whole.
func (s *space) list() {
	from := s.mark
	if r, ok := s.within(s.at(from)); ok {
		s.mark = s.size
		if off, ok := s.offset(r.To); ok {
			s.mark = min(s.size, uint64(off)+1)
		}
		return
	}
	s.mark = min(s.size, (from/chunk+1)*chunk)
	s.fresh.AddRange(from, s.mark)
	for _, r := range s.reserved {
		lo, hi := s.clip(r.From), s.clip(r.To)
		if lo < s.mark && hi >= from {
			s.fresh.RemoveRange(lo, min(hi+1, s.mark))
		}
	}
	s.fresh.AndNot(s.used)
}

// offset is a's distance from the network address, false outside of the window.
func (s *space) offset(a netip.Addr) (uint32, bool) {
	if !s.cidr.Contains(a) {
		return 0, false
	}
	hi, lo := distance(s.cidr.Addr(), a)
	return uint32(lo), hi == 0 && lo < window
}

// clip is a's offset, or the window's size when a lies beyond.
func (s *space) clip(a netip.Addr) uint64 {
	hi, lo := distance(s.cidr.Addr(), a)
	if hi != 0 || lo > s.size {
		return s.size
	}
	return lo
}

// at is the address at an offset of the window.
func (s *space) at(off uint64) netip.Addr {
	b := s.cidr.Addr().As16()
	lo, carry := bits.Add64(binary.BigEndian.Uint64(b[8:]), off, 0)
	hi := binary.BigEndian.Uint64(b[:8]) + carry
	binary.BigEndian.PutUint64(b[:8], hi)
	binary.BigEndian.PutUint64(b[8:], lo)
	a := netip.AddrFrom16(b)
	if s.cidr.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

// distance is b - a as 128 bits.
func distance(a, b netip.Addr) (hi, lo uint64) {
	x, y := a.As16(), b.As16()
	lo, borrow := bits.Sub64(binary.BigEndian.Uint64(y[8:]), binary.BigEndian.Uint64(x[8:]), 0)
	hi, _ = bits.Sub64(binary.BigEndian.Uint64(y[:8]), binary.BigEndian.Uint64(x[:8]), borrow)
	return hi, lo
}

// ends are the first and the last address of a masked prefix.
func ends(p netip.Prefix) (first, last netip.Addr) {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ = netip.AddrFromSlice(b)
	return p.Addr(), last
}
