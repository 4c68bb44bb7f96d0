package claim_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
)

// TestBar: an address of another's claim is kept from being given until the watch tells that
// the claim is gone, and not for ever where it told that before.
func TestBar(t *testing.T) {
	net := core.Subnet{Name: "uplink", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/29")}}
	at := netip.MustParseAddr("10.1.0.4")
	its := &fairlead.AddressLease{Spec: fairlead.AddressLeaseSpec{Subnet: net.Name, Address: at.String()}}
	its.Name = fairlead.LeaseName(net.Name, at)
	var now error
	var freed []string
	k := claim.Keeper{
		Reader: claim.Nobody(), Book: book.New(),
		Net:     func(string) (core.Subnet, bool) { return net, true },
		Counted: func(string) {}, Freed: func(subnet string) { freed = append(freed, subnet) },
	}
	k.Now = func(context.Context, string) (*fairlead.AddressLease, error) { return its, now }
	taken := func() bool {
		l, _, err := k.Book.Acquire(ipam.Request{Subnet: net, IPs: []netip.Addr{at}, Owner: core.Owner{Key: core.Key{Container: "1", IfName: "p"}}})
		if err == nil {
			k.Book.Forget(l, true)
		}
		return err != nil
	}
	now = core.ErrNotFound
	is, err := k.Bar(t.Context(), its)
	require.NoError(t, err)
	require.False(t, is)
	require.False(t, taken())
	now = core.ErrUnavailable
	is, err = k.Bar(t.Context(), its)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.False(t, is)
	require.False(t, taken())
	require.Equal(t, []string{net.Name, net.Name}, freed)
	now = nil
	is, err = k.Bar(t.Context(), its)
	require.NoError(t, err)
	require.True(t, is)
	require.True(t, taken())
	require.NoError(t, k.Heed(t.Context(), its.Name)) // Get says that it is gone
	require.False(t, taken())
}
