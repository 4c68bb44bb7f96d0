package rtnl_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

func TestBridgeAndPort(t *testing.T) {
	host, pod := netnstest.New(t), netnstest.New(t)
	c, err := rtnl.Open(host)
	require.NoError(t, err)
	defer c.Close()
	br, err := c.NewBridge("br0", 1400)
	require.NoError(t, err)
	require.Equal(t, rtnl.KindBridge, br.Kind)
	require.Equal(t, 1400, br.MTU)
	require.True(t, br.Up)
	_, err = c.NewBridge("br0", 0)
	require.ErrorIs(t, err, core.ErrExists)

	near, err := c.NewVeth(rtnl.Veth{Name: "p0", Peer: pod, PeerName: "eth0", Master: br.Index, Up: true, NoQueue: true})
	require.NoError(t, err)
	require.NoError(t, c.SetPort(near.Index, true, true))
	port, err := c.PortByIndex(near.Index)
	require.NoError(t, err)
	require.True(t, port.Up && port.Hairpin && port.Isolated)
	require.Equal(t, br.Index, port.MasterIndex)
	require.Zero(t, port.TxQLen)
	require.NotEqual(t, rtnl.OperUp, port.State, "its far end is down")
	require.NoError(t, c.SetPort(near.Index, false, true))
	port, err = c.PortByName("p0")
	require.NoError(t, err)
	require.False(t, port.Hairpin)
	require.True(t, port.Isolated)

	require.NoError(t, c.SetPromisc(br.Index))
	got, err := c.PortByName("br0")
	require.NoError(t, err)
	require.True(t, got.Promisc)
	_, err = c.PortByName("other")
	require.ErrorIs(t, err, core.ErrNotFound)
	require.Error(t, c.SetPort(br.Index, true, true), "no port")
}

// Every namespace counts its links from 1: the same numbers are in many.
func TestPartnerIsInThisNamespace(t *testing.T) {
	host, other, pod, third := netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t)
	c, err := rtnl.Open(host)
	require.NoError(t, err)
	defer c.Close()
	near, err := c.NewVeth(rtnl.Veth{Name: "p0", Peer: pod, PeerName: "eth0"})
	require.NoError(t, err)
	stranger, err := rtnl.Open(other)
	require.NoError(t, err)
	defer stranger.Close()
	_, err = stranger.NewVeth(rtnl.Veth{Name: "p0", Peer: third, PeerName: "eth0"})
	require.NoError(t, err)

	in, err := rtnl.Open(pod)
	require.NoError(t, err)
	defer in.Close()
	far, err := in.LinkByName("eth0")
	require.NoError(t, err)
	got, err := c.Partner(pod, far)
	require.NoError(t, err)
	require.Equal(t, near.Index, got.Index)
	_, err = stranger.Partner(pod, far)
	require.ErrorIs(t, err, core.ErrNotFound, "its own p0 has the same indexes")
	lo, err := in.LinkByName("lo")
	require.NoError(t, err)
	_, err = c.Partner(pod, lo)
	require.ErrorIs(t, err, core.ErrNotFound)
	require.NoError(t, c.DelLink(near.Index))
	_, err = c.Partner(pod, far)
	require.ErrorIs(t, err, core.ErrNotFound)
}

func TestAddRouteReplacesNothing(t *testing.T) {
	ns, peer := netnstest.New(t), netnstest.New(t)
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer c.Close()
	l, err := c.NewVeth(rtnl.Veth{Name: "v0", Peer: peer, PeerName: "v1", Up: true})
	require.NoError(t, err)
	require.NoError(t, c.AddAddr(l.Index, netip.MustParsePrefix("10.0.0.2/24"), false))
	r := rtnl.Route{Dst: netip.MustParsePrefix("192.0.2.0/24"), GW: netip.MustParseAddr("10.0.0.1"), Index: l.Index}
	require.NoError(t, c.AddRoute(r))
	require.ErrorIs(t, c.AddRoute(r), core.ErrExists)
	r.GW = netip.MustParseAddr("10.0.0.3")
	require.NoError(t, c.AddRoute(r))
	onLink := rtnl.Route{Dst: netip.MustParsePrefix("198.51.100.0/24"), Index: l.Index}
	require.NoError(t, c.AddRoute(onLink))
	require.ErrorIs(t, c.AddRoute(rtnl.Route{Dst: netip.MustParsePrefix("10.1.2.3/8"), Index: l.Index}), unix.EINVAL)
	have, err := c.Routes(l.Index)
	require.NoError(t, err)
	hops := 0
	for _, h := range have {
		if h.Dst == r.Dst {
			hops++
		}
		if h.Dst == onLink.Dst {
			require.Zero(t, h.Scope, "as it was said")
		}
	}
	require.Equal(t, 2, hops)
}

// What is set here and what /proc/sys says are the same.
func TestSettingsBesideSysctls(t *testing.T) {
	ns := netnstest.New(t)
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer c.Close()
	br, err := c.NewBridge("br0", 0)
	require.NoError(t, err)

	sysctl := func(name, value string) (before string) {
		t.Helper()
		require.NoError(t, ns.Do(func() (err error) {
			if before, err = sysfs.ReadSysctl(name); err == nil && value != "" {
				err = sysfs.WriteSysctl(name, value)
			}
			return err
		}))
		return before
	}
	require.Equal(t, "0", sysctl("net/ipv4/conf/br0/arp_notify", ""))
	require.NoError(t, c.AnnounceIPv4(br.Index))
	require.Equal(t, "1", sysctl("net/ipv4/conf/br0/arp_notify", ""))
	require.ErrorIs(t, c.AnnounceIPv4(99), core.ErrNotFound)

	for _, value := range []string{"1", "0", "2"} {
		sysctl("net/ipv6/conf/br0/accept_ra", value)
		got, err := c.PortByName("br0")
		require.NoError(t, err)
		require.Equal(t, value == "0", got.NoRA, value)
	}
	for family, name := range map[int]string{unix.AF_INET: "net/ipv4/ip_forward", unix.AF_INET6: "net/ipv6/conf/all/forwarding"} {
		for _, value := range []string{"0", "1", "2"} {
			sysctl(name, value)
			got, err := c.Forwards(family)
			require.NoError(t, err)
			require.Equal(t, value == "1", got, name)
		}
	}
	_, err = c.Forwards(unix.AF_UNIX)
	require.Error(t, err)
}
