package ipam

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func subnet(name string, cidrs ...string) core.Subnet {
	s := core.Subnet{Name: name}
	for _, c := range cidrs {
		p := netip.MustParsePrefix(c)
		s.CIDRs = append(s.CIDRs, p)
		s.Gateways = append(s.Gateways, p.Masked().Addr().Next())
	}
	return s
}

func owner(n int) core.Owner { return ownerOf(n, fmt.Sprintf("pod-%d", n)) }

func ownerOf(n int, pod string) core.Owner {
	return core.Owner{
		Key: core.Key{Container: fmt.Sprintf("c%d", n), IfName: "eth0"},
		Pod: core.Pod{Namespace: "default", Name: pod},
	}
}

func ips(s ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range s {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestFirstAddresses(t *testing.T) {
	a, s := New(), subnet("s", "10.16.0.0/16", "fd00:10:16::/64")
	l, err := a.Acquire(Request{Subnet: s, Owner: owner(1)})
	require.NoError(t, err)
	require.Equal(t, ips("10.16.0.2", "fd00:10:16::2"), l.IPs)
	require.NoError(t, checkMAC(l.MAC))
	require.Equal(t, byte(2), l.MAC[0]&3, "locally administered unicast")
	again, err := a.Acquire(Request{Subnet: s, Owner: owner(1)})
	require.NoError(t, err)
	require.Equal(t, l, again)
	require.Equal(t, []core.Lease{l}, a.Who(l.IPs[1]))
	require.Equal(t, []core.Lease{l}, a.Leases())
	r := a.Retire(l)
	require.Equal(t, []core.Lease{l}, a.Leases(), "still held")
	require.Equal(t, r, a.Release(l))
	require.Empty(t, a.Leases())
}
