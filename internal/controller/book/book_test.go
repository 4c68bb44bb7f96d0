package book_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// TestMisfitOfOneMore: a Subnet in which nobody has an address has none that does not fit it,
// without a look at all leases; one that somebody has is found.
func TestMisfitOfOneMore(t *testing.T) {
	b := book.New()
	net := core.Subnet{Name: "s", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	for i := range 100 {
		name := fmt.Sprint("p", i)
		_, _, err := b.Acquire(ipam.Request{Subnet: net, Owner: core.Owner{Key: core.Key{Container: name, IfName: name + ".web"}, Pod: core.Pod{Namespace: "web", Name: name}}})
		require.NoError(t, err)
	}
	more := core.Subnet{Name: "more", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		if ip, _ := b.Misfit(more, ""); ip.IsValid() {
			t.Error(ip)
		}
	}))
	net.CIDRs = more.CIDRs
	ip, port := b.Misfit(net, "")
	require.Equal(t, "10.0.0.2", ip.String())
	require.Equal(t, "p0.web", port)
	_, port = b.Misfit(net, "p0.web")
	require.Equal(t, "p1.web", port)
}

// TestDrop: of a Subnet that is no more nothing is kept, unless somebody has an address of it;
// one of its name gives addresses as a new one.
func TestDrop(t *testing.T) {
	b := book.New()
	net := core.Subnet{Name: "s", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, Gateways: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
	acquire := func(name string) (core.Lease, error) {
		l, _, err := b.Acquire(ipam.Request{Subnet: net, Owner: core.Owner{Key: core.Key{Container: name, IfName: name + ".web"}, Pod: core.Pod{Namespace: "web", Name: name}}})
		return l, err
	}
	is := func(name, ip string) core.Lease {
		t.Helper()
		l, err := acquire(name)
		require.NoError(t, err)
		require.Equal(t, ip, l.IPs[0].String())
		return l
	}
	first, second := is("p0", "10.0.0.2"), is("p1", "10.0.0.3")
	require.False(t, b.Shut("s"))
	b.Drop("s")
	require.Len(t, b.Held("s"), 2, "somebody has them")
	b.Forget(first, false)
	b.Forget(second, false)
	require.True(t, b.Shut("s"))
	_, err := acquire("p2")
	require.ErrorIs(t, err, core.ErrUnavailable)
	b.Drop("s")
	is("p1", "10.0.0.2")
}
