package ipam

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func list(elements ...[]netip.Addr) [][]netip.Addr { return elements }

// TestPoolGivesTheFirstFreeCandidate: the order of the list counts, a pair is
// free when both its addresses are.
func TestPoolGivesTheFirstFreeCandidate(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24", "fd00::/64")
	take(t, a, s, 100, "10.0.0.9", "fd00::99")
	pool := list(ips("10.0.0.8", "fd00::99"), ips("10.0.0.9"), ips("fd00::7", "10.0.0.7"), ips("10.0.0.6"))
	var got []string
	for n := range 2 {
		l, err := a.Acquire(Request{Subnet: s, Owner: owner(n), Pool: pool})
		require.NoError(t, err)
		got = append(got, l.IPs[0].String())
		require.Len(t, l.IPs, 2, "a family that the element leaves open is chosen")
		again, err := a.Acquire(Request{Subnet: s, Owner: owner(n), Pool: pool})
		require.NoError(t, err)
		require.Equal(t, l.IPs, again.IPs, "the owner keeps what it has")
	}
	require.Equal(t, []string{"10.0.0.7", "10.0.0.6"}, got)
	_, err := a.Acquire(Request{Subnet: s, Owner: owner(3), Pool: pool})
	require.ErrorIs(t, err, core.ErrExhausted)
	require.ErrorContains(t, err, "all 4")
}

func TestPoolRefusals(t *testing.T) {
	s := subnet("s", "10.0.0.0/24")
	for _, c := range []struct {
		pool [][]netip.Addr
		ips  []netip.Addr
		code uint
		says string
	}{
		{list(ips("10.0.0.7"), ips("10.0.1.7")), nil, 103, "10.0.1.7"},
		{list(ips("10.0.0.1")), nil, 103, "gateway"},
		{list(ips("10.0.0.7", "10.0.0.8")), nil, 102, "two IPv4"},
		{list(ips("10.0.0.7")), ips("10.0.0.8"), 105, "10.0.0.8"},
	} {
		a := New()
		_, err := a.Acquire(Request{Subnet: s, Owner: owner(1), Pool: c.pool, IPs: c.ips})
		require.Equal(t, c.code, core.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, c.says)
		require.Empty(t, a.Leases())
	}
	implied := subnet("i", "10.0.0.0/24", "fd00::/64")
	implied.Implied = true
	_, err := New().Acquire(Request{Subnet: implied, Owner: owner(1), Pool: list(ips("10.0.0.7"))})
	require.ErrorContains(t, err, "IPv6")
	l, err := New().Acquire(Request{Subnet: implied, Owner: owner(1), Pool: list(ips("10.0.0.7", "fd00::7"))})
	require.NoError(t, err)
	require.Len(t, l.IPs, 2)
}

// TestPoolAtOnce: as many owners as candidates, all at the same time.
func TestPoolAtOnce(t *testing.T) {
	a, s := New(), subnet("s", "10.0.0.0/24")
	var pool [][]netip.Addr
	for n := range 50 {
		pool = append(pool, ips(fmt.Sprintf("10.0.0.%d", n+10)))
	}
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			_, err := a.Acquire(Request{Subnet: s, Owner: owner(n), Pool: pool})
			require.NoError(t, err)
		})
	}
	wg.Wait()
	seen := map[netip.Addr]bool{}
	for _, l := range a.Leases() {
		require.False(t, seen[l.IPs[0]])
		seen[l.IPs[0]] = true
	}
	require.Len(t, seen, 50)
}
