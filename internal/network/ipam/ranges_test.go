package ipam

import (
	"fmt"
	mathrand "math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func span(from, to string) core.AddrRange {
	return core.AddrRange{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)}
}

// TestRanges: who asks for ranges gets addresses of them alone, also those that the
// Subnet excludes: the lowest never used first, then the one released longest ago.
// A family without ranges has the rest of the Subnet.
func TestRanges(t *testing.T) {
	a, s := New(), subnet("s", "10.1.0.0/24", "fd01::/64")
	some := []core.AddrRange{span("10.1.0.5", "10.1.0.6"), span("10.1.0.9", "10.1.0.9")}
	s.Exclude = some
	get := func(n int) (core.Lease, error) {
		return a.Acquire(Request{Subnet: s, Owner: owner(n), Ranges: some})
	}
	var leases []core.Lease
	for n, want := range []string{"10.1.0.5", "10.1.0.6", "10.1.0.9"} {
		l, err := get(n)
		require.NoError(t, err)
		require.Equal(t, ips(want, fmt.Sprintf("fd01::%d", n+2)), l.IPs)
		leases = append(leases, l)
	}
	_, err := get(3)
	require.ErrorIs(t, err, core.ErrExhausted)
	require.ErrorContains(t, err, "10.1.0.5")
	others, err := a.Acquire(Request{Subnet: s, Owner: owner(4)})
	require.NoError(t, err)
	require.Equal(t, ips("10.1.0.2", "fd01::5"), others.IPs)

	a.Release(leases[2])
	a.Release(leases[0])
	l, err := get(5)
	require.NoError(t, err)
	require.Equal(t, "10.1.0.9", l.IPs[0].String(), "released longest ago")
	l, err = get(0)
	require.NoError(t, err)
	require.Equal(t, leases[0].IPs, l.IPs, "what it had")
}

func TestChoosable(t *testing.T) {
	s := subnet("s", "10.1.0.0/24", "fd01::/64")
	s.Exclude = []core.AddrRange{span("10.1.0.4", "10.1.0.5"), span("10.1.0.9", "10.1.0.20")}
	for _, c := range []struct{ ranges, want []core.AddrRange }{
		{[]core.AddrRange{span("10.1.0.0", "10.1.0.255")}, []core.AddrRange{span("10.1.0.2", "10.1.0.3"), span("10.1.0.6", "10.1.0.8"), span("10.1.0.21", "10.1.0.254")}},
		{[]core.AddrRange{span("10.1.0.5", "10.1.0.10")}, []core.AddrRange{span("10.1.0.6", "10.1.0.8")}},
		{[]core.AddrRange{span("10.1.0.12", "10.1.0.14")}, nil},
		{[]core.AddrRange{span("10.2.0.1", "10.2.0.9")}, nil},
		{[]core.AddrRange{span("fd01::", "fd01::5"), span("10.1.0.30", "10.1.0.30")}, []core.AddrRange{span("10.1.0.30", "10.1.0.30"), span("fd01::2", "fd01::5")}},
	} {
		require.Equal(t, c.want, Choosable(s, c.ranges), c.ranges)
	}
}

// TestSpread: each address of a network is held, free, or neither because the Subnet
// keeps it back.
func TestSpread(t *testing.T) {
	t.Parallel()
	for range 300 {
		bits := 24 + mathrand.IntN(9)
		cidr := netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), bits)
		six := netip.PrefixFrom(netip.MustParseAddr("fd00::"), 96+bits)
		s := core.Subnet{Name: "s", CIDRs: []netip.Prefix{cidr, six}, Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
		at := func(p netip.Prefix, i int) netip.Addr {
			a := p.Addr()
			for range i {
				a = a.Next()
			}
			return a
		}
		size := 1 << (32 - bits)
		from := mathrand.IntN(size)
		s.Exclude = []core.AddrRange{{From: at(cidr, from), To: at(cidr, from+mathrand.IntN(size-from))}}
		var held []netip.Addr
		for i := range size {
			for _, p := range s.CIDRs {
				if mathrand.IntN(3) == 0 {
					held = append(held, at(p, i))
				}
			}
		}
		mathrand.Shuffle(len(held), func(i, k int) { held[i], held[k] = held[k], held[i] })
		before := slices.Clone(held)
		for _, p := range s.CIDRs {
			used, free := Spread(s, p, held)
			sp := newSpace(p, s)
			for i := range size {
				a := at(p, i)
				in := func(r core.AddrRange) bool { return r.Contains(a) }
				has := slices.Contains(held, a)
				require.Equal(t, has, slices.ContainsFunc(used, in), "%s of %s", a, p)
				require.Equal(t, !has && sp.choosable(a), slices.ContainsFunc(free, in), "%s of %s", a, p)
			}
			for _, all := range [][]core.AddrRange{used, free} {
				require.Equal(t, all, merge(slices.Clone(all)), "sorted and disjoint")
			}
			inside, left := SpreadOf(s.Exclude, s.Exclude, held)
			for i := range size {
				a, has := at(p, i), slices.Contains(held, at(p, i))
				in := func(r core.AddrRange) bool { return r.Contains(a) }
				require.Equal(t, has && s.Exclude[0].Contains(a), slices.ContainsFunc(inside, in))
				require.Equal(t, !has && s.Exclude[0].Contains(a), slices.ContainsFunc(left, in))
			}
		}
		require.Equal(t, before, held)
	}
}
