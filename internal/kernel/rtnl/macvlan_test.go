package rtnl_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// lower makes a device that a macvlan can sit on.
func (b bed) lower(t *testing.T) rtnl.Link {
	ip(t, b.hostNS, "link", "add", "m0", "type", "veth", "peer", "name", "m1")
	l, err := b.host.LinkByName("m0")
	require.NoError(t, err)
	return l
}

// Both ways make the same link, also where the host has one of the name.
func TestNewUpperMakesItInPlace(t *testing.T) {
	b := newBed(t)
	m0 := b.lower(t)
	ip(t, b.hostNS, "link", "add", "taken", "type", "bridge")
	for _, c := range []struct {
		name, mac string
		make      func(rtnl.Upper) error
	}{
		{"net1", "02:00:00:00:00:0a", b.host.NewUpper},
		{"net2", "02:00:00:00:00:0b", b.host.NewUpperByDraft},
		{"taken", "02:00:00:00:00:0c", b.host.NewUpper},
	} {
		u := rtnl.Upper{
			Kind: rtnl.KindMacvlan, Name: c.name, Lower: m0.Index, Mode: rtnl.MacvlanVEPA, MTU: 1400, MAC: mac(c.mac), BCQueueLen: 77, Netns: b.podNS,
		}
		require.NoError(t, c.make(u), c.name)
		l, mode, err := b.pod.UpperByName(c.name)
		require.NoError(t, err)
		require.Equal(t, rtnl.MacvlanVEPA, mode)
		require.Equal(t, rtnl.KindMacvlan, l.Kind)
		require.Equal(t, 1400, l.MTU)
		require.Equal(t, u.MAC, l.MAC)
		require.False(t, l.Up)
		require.Contains(t, ip(t, b.podNS, "-d", "link", "show", c.name), "bcqueuelen 77")
		require.ErrorIs(t, c.make(u), core.ErrExists, c.name)
	}
	require.Contains(t, ip(t, b.hostNS, "-d", "link", "show", "taken"), "bridge")

	// what a crash left between the two requests
	left := rtnl.Upper{Kind: rtnl.KindMacvlan, Name: rtnl.Draft("net3"), Lower: m0.Index, Mode: rtnl.MacvlanVEPA, Netns: b.podNS}
	require.NoError(t, b.host.NewUpper(left))
	left.Name = "net3"
	require.NoError(t, b.host.NewUpperByDraft(left))
	require.NotContains(t, ip(t, b.podNS, "link"), "fldraft")
}

func TestNewUpperRefusals(t *testing.T) {
	b := newBed(t)
	m0 := b.lower(t)
	u := rtnl.Upper{Kind: rtnl.KindMacvlan, Name: "net1", Lower: m0.Index + 100, Mode: rtnl.MacvlanBridge, Netns: b.podNS}
	require.ErrorIs(t, b.host.NewUpper(u), core.ErrNotFound)
	u.Lower, u.MTU = m0.Index, 9000
	require.ErrorIs(t, b.host.NewUpper(u), unix.EINVAL)
	_, _, err := b.pod.UpperByName("net1")
	require.ErrorIs(t, err, core.ErrNotFound)
	_, mode, err := b.host.UpperByName("m0")
	require.NoError(t, err)
	require.Zero(t, mode)
}

// The request for an ipvlan, which not every kernel has: mode and flag have 16
// bits, and no macvlan's attributes are among them.
func TestIpvlanRequest(t *testing.T) {
	b := newBed(t)
	raw := b.host.UpperRequest(rtnl.Upper{Kind: rtnl.KindIpvlan, Name: "net1", Lower: 7, Mode: rtnl.IpvlanL3S, MTU: 1300, BCQueueLen: 9})
	find := func(b []byte, kind uint16) []byte {
		list, err := nl.ParseRouteAttr(b)
		require.NoError(t, err)
		for _, a := range list {
			if a.Attr.Type&^unix.NLA_F_NESTED == kind {
				return a.Value
			}
		}
		return nil
	}
	top := raw[unix.SizeofNlMsghdr+unix.SizeofIfInfomsg:]
	require.Equal(t, nl.Uint32Attr(7), find(top, unix.IFLA_LINK))
	require.Equal(t, nl.Uint32Attr(1300), find(top, unix.IFLA_MTU))
	info := find(top, unix.IFLA_LINKINFO)
	require.Equal(t, []byte("ipvlan"), find(info, unix.IFLA_INFO_KIND))
	data, err := nl.ParseRouteAttr(find(info, unix.IFLA_INFO_DATA))
	require.NoError(t, err)
	require.Len(t, data, 2)
	require.Equal(t, nl.Uint16Attr(2), data[0].Value)
	require.Equal(t, nl.Uint16Attr(0), data[1].Value)
}
