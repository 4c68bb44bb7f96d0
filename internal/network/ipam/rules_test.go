package ipam

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func exclude(s core.Subnet, from, to string) core.Subnet {
	s.Exclude = append(s.Exclude, core.AddrRange{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)})
	return s
}

func take(t *testing.T, a *Allocator, s core.Subnet, n int, fixed ...string) core.Lease {
	t.Helper()
	l, err := a.Acquire(Request{Subnet: s, Owner: owner(n), IPs: ips(fixed...)})
	require.NoError(t, err)
	return l
}

// TestRefusals: each has its code and names what is wrong, and reserves nothing.
func TestRefusals(t *testing.T) {
	four := exclude(subnet("s", "10.0.0.0/24"), "10.0.0.10", "10.0.0.20")
	dual := subnet("d", "10.0.0.0/24", "fd00::/64")
	implied := subnet("i", "10.0.0.0/24", "fd00::/64")
	implied.Implied = true
	for _, c := range []struct {
		name   string
		subnet core.Subnet
		ips    []netip.Addr
		mac    string
		code   uint
		says   string
	}{
		{"gateway", four, ips("10.0.0.1"), "", 103, "10.0.0.1 is the subnet's gateway"},
		{"network", four, ips("10.0.0.0"), "", 103, "10.0.0.0 is the subnet's network address"},
		{"broadcast", four, ips("10.0.0.255"), "", 103, "10.0.0.255 is the subnet's broadcast address"},
		{"anycast", dual, ips("fd00::"), "", 103, "fd00:: is the subnet's subnet-router anycast"},
		{"outside", four, ips("10.0.1.7"), "", 103, "10.0.1.7 is outside of the subnet's CIDR [10.0.0.0/24]"},
		{"other family", four, ips("fd00::7"), "", 103, "outside of the subnet's CIDR"},
		{"two of a family", four, ips("10.0.0.7", "10.0.0.8"), "", 102, "two IPv4 addresses"},
		{"zone", dual, ips("fe80::1%eth0"), "", 102, "not a plain IP address"},
		{"no address", four, []netip.Addr{{}}, "", 102, "not a plain IP address"},
		{"short MAC", four, nil, "02:00:00:00:00:00:00:01", 102, "has not 6 bytes"},
		{"multicast MAC", four, nil, "01:00:5e:00:00:01", 102, "multicast"},
		{"zero MAC", four, nil, "00:00:00:00:00:00", 102, "zero"},
		{"implied", implied, nil, "", 103, "no object declares the subnet"},
		{"implied, half", implied, ips("10.0.0.7"), "", 103, "IPv6"},
		{"no CIDR", core.Subnet{Name: "n"}, nil, "", 103, "no CIDR"},
		{"two CIDRs", subnet("t", "10.0.0.0/24", "10.1.0.0/24"), nil, "", 103, "two IPv4 CIDRs"},
		{"invalid CIDR", core.Subnet{Name: "v", CIDRs: []netip.Prefix{{}}}, nil, "", 103, "invalid CIDR"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := New()
			var mac core.MAC
			if c.mac != "" {
				require.NoError(t, mac.UnmarshalText([]byte(c.mac)))
			}
			_, err := a.Acquire(Request{Subnet: c.subnet, Owner: owner(1), IPs: c.ips, MAC: mac})
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.code, core.CodeOf(err))
			require.Empty(t, a.Leases())
		})
	}
}

// TestQuiet: a lease is quiet when no neighbour can remember one of its addresses
// with another MAC.
func TestQuiet(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/29", "fd00::/64") // five IPv4 addresses
	first := take(t, a, s, 1)
	require.True(t, first.Quiet, "never used")
	require.True(t, take(t, a, s, 1).Quiet, "the same lease once more")
	a.Release(first)
	again := take(t, a, s, 1)
	require.Equal(t, first.IPs, again.IPs)
	require.True(t, again.Quiet, "the pod's own address and MAC came back")
	a.Release(again)

	other := take(t, a, s, 2, first.IPs[0].String())
	require.False(t, other.Quiet, "requested")
	a.Release(other)
	back := take(t, a, s, 1)
	require.Equal(t, first.IPs, back.IPs)
	require.False(t, back.Quiet, "another MAC had it in between")
	a.Release(back)

	l, err := a.Acquire(Request{Subnet: s, Owner: owner(3), MAC: core.MAC{2, 0, 0, 0, 0, 7}})
	require.NoError(t, err)
	require.False(t, l.Quiet, "a requested MAC may have been elsewhere")
	for n := 4; n < 7; n++ {
		require.True(t, take(t, a, s, n).Quiet)
	}
	old := take(t, a, s, 7)
	require.Equal(t, first.IPs[0], old.IPs[0])
	require.False(t, old.Quiet, "it was another pod's")
}

func TestHeldNamesTheHolder(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24", "fd00::/64")
	l := take(t, a, s, 1, "10.0.0.7")
	_, err := a.Acquire(Request{Subnet: s, Owner: owner(2), IPs: ips("10.0.0.7")})
	require.ErrorIs(t, err, core.ErrHeld)
	require.EqualError(t, err, "10.0.0.7 is held by pod default/pod-1 (eth0)")
	_, err = a.Acquire(Request{Subnet: s, Owner: owner(2), MAC: l.MAC})
	require.ErrorIs(t, err, core.ErrHeld)
	require.EqualError(t, err, "MAC "+l.MAC.String()+" is held by pod default/pod-1 (eth0)")
	require.Len(t, a.Leases(), 1)
	// In another subnet both are free.
	_, err = a.Acquire(Request{Subnet: subnet("t", "10.0.0.0/24"), Owner: owner(2), IPs: ips("10.0.0.7"), MAC: l.MAC})
	require.NoError(t, err)
	require.Len(t, a.Who(netip.MustParseAddr("::ffff:10.0.0.7")), 2)
}

func TestFixedMayBeExcluded(t *testing.T) {
	a, s := New(), exclude(subnet("s", "10.0.0.0/24", "fd00::/64"), "10.0.0.2", "10.0.0.99")
	l := take(t, a, s, 1, "10.0.0.50")
	require.Equal(t, ips("10.0.0.50", "fd00::2"), l.IPs, "the other family is chosen")
	require.Equal(t, ips("10.0.0.100", "fd00::3"), take(t, a, s, 2).IPs)
	require.Equal(t, ips("10.0.0.101", "fd00::ffff:0:0:9"), take(t, a, s, 3, "fd00::ffff:0:0:9").IPs)
}

func TestImpliedServesFixedOnly(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24")
	s.Implied = true
	require.Equal(t, ips("10.0.0.7"), take(t, a, s, 1, "10.0.0.7").IPs)
	s.Implied = false
	take(t, a, s, 2, "10.0.0.2")
	require.Equal(t, ips("10.0.0.3"), take(t, a, s, 3).IPs)
	for n := 4; n < 7; n++ {
		take(t, a, s, n)
	}
	require.Equal(t, ips("10.0.0.8"), take(t, a, s, 7).IPs, "what an implied request took is taken")
}

func TestSmallNetworks(t *testing.T) {
	for cidr, want := range map[string][]string{
		"10.0.0.0/30": {"10.0.0.2"},
		"10.0.0.0/31": {"10.0.0.0"},
		"10.0.0.7/32": nil, // its only address is the gateway here
		"fd00::/126":  {"fd00::2", "fd00::3"},
		"fd00::/127":  {"fd00::"},
		"10.0.0.0/29": {"10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"},
	} {
		a, s := New(), subnet("s", cidr)
		if p := s.CIDRs[0]; !p.Contains(s.Gateways[0]) {
			s.Gateways[0] = p.Addr()
		}
		for i, w := range want {
			require.Equal(t, ips(w), take(t, a, s, i).IPs, cidr)
		}
		_, err := a.Acquire(Request{Subnet: s, Owner: owner(99)})
		require.ErrorIs(t, err, core.ErrExhausted, cidr)
		require.Equal(t, core.CodeAddress, core.CodeOf(err))
	}
}

// TestBigNetworks: the window's end, addresses beyond it, and prefixes whose
// host part is longer than 64 bits.
func TestBigNetworks(t *testing.T) {
	a := New()
	s := exclude(subnet("s", "fd00::/48"), "fd00::", "fd00::ffff:fffe")
	require.Equal(t, ips("fd00:0:0:7::1"), take(t, a, s, 1, "fd00:0:0:7::1").IPs)
	require.Equal(t, ips("fd00::ffff:ffff"), take(t, a, s, 2).IPs)
	_, err := a.Acquire(Request{Subnet: s, Owner: owner(3)})
	require.ErrorIs(t, err, core.ErrExhausted, "nothing is chosen beyond the window")
	s.Exclude = nil
	require.Equal(t, ips("fd00::2"), take(t, a, s, 3).IPs)
	require.Equal(t, ips("10.0.0.2"), take(t, a, subnet("v4", "10.0.0.0/8"), 1).IPs)
	require.Equal(t, ips("0.0.0.2"), take(t, a, subnet("all", "0.0.0.0/0"), 1).IPs)
	require.Equal(t, ips("::2"), take(t, a, subnet("all6", "::/0"), 1).IPs)
}

// TestBeyondOneContainer walks over the boundary of roaring's containers, where
// its NextAbsentValue fails.
func TestBeyondOneContainer(t *testing.T) {
	a, s := New(), exclude(subnet("s", "10.0.0.0/14"), "10.0.0.2", "10.0.255.253")
	for n, want := range []string{"10.0.255.254", "10.0.255.255", "10.1.0.0", "10.1.0.1"} {
		require.Equal(t, ips(want), take(t, a, s, n).IPs)
	}
	s = exclude(s, "10.1.0.3", "10.2.255.255")
	require.Equal(t, ips("10.1.0.2"), take(t, a, s, 10).IPs)
	require.Equal(t, ips("10.3.0.0"), take(t, a, s, 11).IPs)
}

func TestFormerAddressAndMAC(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24", "fd00::/64")
	take(t, a, s, 1)
	old := take(t, a, s, 2)
	a.Release(old)
	take(t, a, s, 3)
	back, err := a.Acquire(Request{Subnet: s, Owner: ownerOf(20, "pod-2")})
	require.NoError(t, err)
	require.Equal(t, old.IPs, back.IPs)
	require.Equal(t, old.MAC, back.MAC)
	a.Release(back)
	// Another interface of the same pod is somebody else.
	o := ownerOf(21, "pod-2")
	o.Key.IfName = "net1"
	l, err := a.Acquire(Request{Subnet: s, Owner: o})
	require.NoError(t, err)
	require.NotEqual(t, old.IPs, l.IPs)
	// A fixed request for the old address brings the old MAC too.
	l, err = a.Acquire(Request{Subnet: s, Owner: ownerOf(22, "pod-2"), IPs: old.IPs[:1]})
	require.NoError(t, err)
	require.Equal(t, old.IPs, l.IPs)
	require.Equal(t, old.MAC, l.MAC)
	// Taken meanwhile: another address, and no MAC of the past.
	a.Release(l)
	_, err = a.Acquire(Request{Subnet: s, Owner: owner(23), IPs: old.IPs})
	require.NoError(t, err)
	l, err = a.Acquire(Request{Subnet: s, Owner: ownerOf(24, "pod-2")})
	require.NoError(t, err)
	require.NotEqual(t, old.MAC, l.MAC)
}

// TestBareContainersHaveNoPast: without a pod's name nothing comes back.
func TestBareContainersHaveNoPast(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24")
	o := core.Owner{Key: core.Key{Container: "a", IfName: "eth0"}}
	l, err := a.Acquire(Request{Subnet: s, Owner: o})
	require.NoError(t, err)
	a.Release(l)
	o.Key.Container = "b"
	l, err = a.Acquire(Request{Subnet: s, Owner: o})
	require.NoError(t, err)
	require.Equal(t, ips("10.0.0.3"), l.IPs)
}

func TestCancelLeavesNoTrace(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/29")
	l := take(t, a, s, 1)
	a.Cancel(l)
	require.Equal(t, l.IPs, take(t, a, s, 2).IPs, "still the lowest never used")
	// A repeated Acquire is undone alone.
	l = take(t, a, s, 2)
	a.Cancel(l)
	require.Len(t, a.Leases(), 1)
	a.Cancel(l)
	a.Cancel(l)
	require.Empty(t, a.Leases())
}

func TestAnotherAddressForTheSameOwner(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/29")
	l := take(t, a, s, 1)
	_, err := a.Acquire(Request{Subnet: s, Owner: owner(1), IPs: ips("10.0.0.5")})
	require.Equal(t, core.CodeConflict, core.CodeOf(err))
	_, err = a.Acquire(Request{Subnet: s, Owner: owner(1), MAC: core.MAC{2, 0, 0, 0, 0, 1}})
	require.Equal(t, core.CodeConflict, core.CodeOf(err))
	require.Equal(t, []core.Lease{l}, a.Leases())
}

func TestSubnetChanges(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/30")
	first := take(t, a, s, 1)
	grown := subnet("s", "10.0.0.0/28")
	require.Equal(t, ips("10.0.0.3"), take(t, a, grown, 2).IPs, "was the broadcast address")
	moved := subnet("s", "10.9.0.0/28")
	require.Equal(t, ips("10.9.0.2"), take(t, a, moved, 3).IPs)
	require.Len(t, a.Leases(), 3, "leases outside of the CIDR stay")
	st := a.Stats([]core.Subnet{moved})
	require.Equal(t, []SubnetStats{{Subnet: "s", Family: "IPv4", Total: 16, Used: 3, Excluded: 3, Free: 12}}, st)
	a.Release(first)
	require.Equal(t, ips("10.9.0.3"), take(t, a, moved, 1).IPs, "the former address is outside")
	// The order of release outlives that the addresses were outside.
	back, err := a.Acquire(Request{Subnet: grown, Owner: ownerOf(40, "pod-40")})
	require.NoError(t, err)
	require.Equal(t, ips("10.0.0.4"), back.IPs)
}

func TestRestoreConflict(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24", "fd00::/64")
	one := core.Lease{Subnet: "s", Owner: owner(1), IPs: ips("10.0.0.9", "fd00::9"), MAC: core.MAC{2, 0, 0, 0, 0, 9}}
	two := core.Lease{Subnet: "s", Owner: owner(2), IPs: ips("10.0.0.9", "fd00::a"), MAC: core.MAC{2, 0, 0, 0, 0, 9}}
	err := a.Restore([]core.Lease{one, two, one}, nil)
	require.ErrorIs(t, err, core.ErrHeld)
	require.ErrorContains(t, err, "restore lease of c2/eth0 in subnet s")
	require.Equal(t, []core.Lease{one}, a.Who(one.IPs[0]))
	require.Equal(t, ips("fd00::a"), a.Release(two).IPs, "only what was its own")
	require.Equal(t, []core.Lease{one}, a.Leases())
	_, err = a.Acquire(Request{Subnet: s, Owner: owner(3), IPs: one.IPs})
	require.ErrorIs(t, err, core.ErrHeld)
}

func TestStats(t *testing.T) {
	s := exclude(subnet("s", "10.0.0.0/24", "fd00::/64"), "10.0.0.0", "10.0.0.9")
	a := New()
	take(t, a, s, 1)
	take(t, a, s, 2, "10.0.0.5")
	require.Equal(t, []SubnetStats{
		{Subnet: "s", Family: "IPv4", Total: 256, Used: 2, Excluded: 10, Free: 244},
		{Subnet: "s", Family: "IPv6", Total: math.MaxUint64, Used: 2, Excluded: 2, Free: math.MaxUint64 - 4},
	}, a.Stats([]core.Subnet{{Name: "bad"}, s}))
}

// TestMemoryIsBounded: pods with ever new names in a network without end.
func TestMemoryIsBounded(t *testing.T) {
	a, s := New(), subnet("s", "fd00::/64")
	for n := range maxReleased + 1000 {
		l := take(t, a, s, n)
		a.Release(l)
	}
	p := a.pool("s")
	require.Len(t, p.former, maxReleased)
	require.Equal(t, maxReleased, p.freed[v6].len())
	require.LessOrEqual(t, len(p.freed[v6].order), 2*maxReleased+64)
	// What was forgotten counts as never used: after 65,536 others, in turn.
	require.Equal(t, ips("fd00::3e9"), take(t, a, s, -1).IPs)
}

// TestDrop: of a subnet that is dropped nothing is kept, unless somebody holds an address of it.
func TestDrop(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24")
	l := take(t, a, s, 1)
	a.Drop("s")
	require.Equal(t, []core.Lease{l}, a.Leases())
	a.Release(l)
	a.Drop("s")
	a.Drop("none")
	require.Empty(t, a.pools)
	require.Equal(t, l.IPs, take(t, a, s, 2).IPs, "as if nobody had ever had it")
}

func TestCallersSlicesAreTheirOwn(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24")
	l := take(t, a, s, 1)
	want := clone(l)
	l.IPs[0], l.MAC[5] = netip.Addr{}, l.MAC[5]+1
	require.Equal(t, []core.Lease{want}, a.Leases())
}

// BenchmarkAcquire: the cost of one Acquire and Release in an empty /16, in one
// with only every second address free, and in one with a single free address.
func BenchmarkAcquire(b *testing.B) {
	for _, c := range []struct {
		name string
		keep func(n int) bool
	}{
		{"empty", func(int) bool { return false }},
		{"fragmented", func(n int) bool { return n%2 == 0 }},
		{"full", func(n int) bool { return n != 40000 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			a, s := New(), subnet("s", "10.16.0.0/16")
			var drop []core.Lease
			for n := range 65533 {
				l, err := a.Acquire(Request{Subnet: s, Owner: owner(n)})
				require.NoError(b, err)
				if !c.keep(n) {
					drop = append(drop, l)
				}
			}
			for _, l := range drop {
				a.Release(l)
			}
			o := make([]core.Owner, 1000)
			for i := range o {
				o[i] = ownerOf(1000000+i, fmt.Sprintf("new-%d", i))
			}
			for i := 0; b.Loop(); i++ {
				l, err := a.Acquire(Request{Subnet: s, Owner: o[i%len(o)]})
				if err != nil {
					b.Fatal(err)
				}
				a.Release(l)
			}
		})
	}
	b.Run("fresh", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			_, err := New().Acquire(Request{Subnet: subnet("s", "fd00::/64"), Owner: owner(1)})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestNoMAC: an interface that is not ours has none chosen for it, and gets one
// that is asked for.
func TestNoMAC(t *testing.T) {
	a := New()
	s := core.Subnet{Name: "s", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}
	owner := func(name string) core.Owner {
		return core.Owner{Key: core.Key{Container: name, IfName: "net1"}, Pod: core.Pod{Namespace: "n", Name: name}}
	}
	l, err := a.Acquire(Request{Subnet: s, Owner: owner("a"), NoMAC: true})
	require.NoError(t, err)
	require.Nil(t, l.MAC)
	a.Release(l)
	l, err = a.Acquire(Request{Subnet: s, Owner: owner("a"), NoMAC: true})
	require.NoError(t, err)
	require.Nil(t, l.MAC)
	m := core.MAC{2, 0, 0, 0, 0, 9}
	_, err = a.Acquire(Request{Subnet: s, Owner: owner("b"), NoMAC: true, MAC: m})
	require.NoError(t, err)
	_, err = a.Acquire(Request{Subnet: s, Owner: owner("c"), MAC: m})
	require.ErrorIs(t, err, core.ErrHeld)
}

// TestWithin: of a part of a subnet nothing outside is given, whoever asks and
// whatever was given before; the part may lie anywhere in a large network.
func TestWithin(t *testing.T) {
	s := subnet("s", "10.0.0.0/16", "fd00::/48")
	a := New()
	before := take(t, a, s, 0)
	require.Equal(t, ips("10.0.0.2", "fd00::2"), before.IPs)
	part := []netip.Prefix{netip.MustParsePrefix("10.0.7.0/30"), netip.MustParsePrefix("fd00:0:0:8000::/64")}
	within := func(n int, fixed ...string) (core.Lease, error) {
		return a.Acquire(Request{Subnet: s, Owner: owner(n), IPs: ips(fixed...), Within: part})
	}
	for n, v4 := range []string{"10.0.7.1", "10.0.7.2"} {
		l, err := within(n + 1)
		require.NoError(t, err)
		require.Equal(t, v4, l.IPs[0].String())
		require.True(t, part[1].Contains(l.IPs[1]), "%s", l.IPs[1])
	}
	_, err := within(3)
	require.ErrorIs(t, err, core.ErrExhausted)
	_, err = within(3, "10.0.8.1")
	require.ErrorContains(t, err, "outside of this node's block 10.0.7.0/30")
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	pool := Request{Subnet: s, Owner: owner(3), Within: part[:1], Pool: [][]netip.Addr{ips("10.0.8.1"), ips("10.0.7.3")}}
	l, err := a.Acquire(pool)
	require.NoError(t, err)
	require.Equal(t, "10.0.7.3", l.IPs[0].String())
	pool.Owner, pool.Pool = owner(4), pool.Pool[:1]
	_, err = a.Acquire(pool)
	require.ErrorContains(t, err, "none of the addresses")
	require.Equal(t, before.IPs, take(t, a, s, 0).IPs, "what was given before stays")
	require.Len(t, a.Held("s"), 8)
}

// TestFamily: of a Subnet of both families one may be asked for; the other one's
// addresses stay for those who want them.
func TestFamily(t *testing.T) {
	dual := subnet("d", "10.0.0.0/24", "fd00::/64")
	a := New()
	want := func(n int, f core.Family, fixed ...string) (core.Lease, error) {
		return a.Acquire(Request{Subnet: dual, Owner: owner(n), IPs: ips(fixed...), Family: f})
	}
	for n, c := range []struct {
		family core.Family
		fixed  []string
		ips    []netip.Addr
	}{
		{core.IPv4, nil, ips("10.0.0.2")},
		{core.IPv6, nil, ips("fd00::2")},
		{core.AnyFamily, nil, ips("10.0.0.3", "fd00::3")},
		{core.IPv4, []string{"10.0.0.9"}, ips("10.0.0.9")},
	} {
		l, err := want(n, c.family, c.fixed...)
		require.NoError(t, err)
		require.Equal(t, c.ips, l.IPs)
		require.NotEmpty(t, l.MAC)
	}
	_, err := want(9, core.IPv6, "10.0.0.7")
	require.Equal(t, core.CodeConflict, core.CodeOf(err))
	require.ErrorContains(t, err, "the address 10.0.0.7 is requested, and only an IPv6 address")
	_, err = a.Acquire(Request{Subnet: dual, Owner: owner(9), Family: core.IPv4, Pool: [][]netip.Addr{ips("fd00::7")}})
	require.Equal(t, core.CodeConflict, core.CodeOf(err))
	_, err = a.Acquire(Request{Subnet: subnet("s", "10.1.0.0/24"), Owner: owner(9), Family: core.IPv6})
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	require.ErrorContains(t, err, "an IPv6 address is requested, and the subnet has none ([10.1.0.0/24])")
	require.Len(t, a.Leases(), 4)
}
