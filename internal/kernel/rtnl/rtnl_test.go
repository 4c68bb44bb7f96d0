package rtnl_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

const group = 0xFA1D0001

// bed is a node's namespace and a pod's.
type bed struct {
	hostNS, podNS *netns.Handle
	host, pod     *rtnl.Conn
}

func newBed(t testing.TB) bed {
	t.Helper()
	b := bed{hostNS: netnstest.New(t), podNS: netnstest.New(t)}
	b.host, b.pod = open(t, b.hostNS), open(t, b.podNS)
	return b
}

func open(t testing.TB, ns *netns.Handle) *rtnl.Conn {
	t.Helper()
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func mac(s string) (m core.MAC) {
	if err := m.UnmarshalText([]byte(s)); err != nil {
		panic(err)
	}
	return m
}

func (b bed) veth() rtnl.Veth {
	return rtnl.Veth{
		Name: "fl1", MTU: 1400, TxQLen: 777, Group: group,
		Peer: b.podNS, PeerName: "eth0", PeerMAC: mac("02:00:00:00:00:02"),
	}
}

// ip runs iproute2 inside ns: an independent witness of the kernel's state.
func ip(t testing.TB, ns *netns.Handle, args ...string) string {
	t.Helper()
	var out []byte
	require.NoError(t, ns.Do(func() (err error) {
		out, err = exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return err
	}))
	return string(out)
}

func TestEnsureVethMakesBothEndsInPlace(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	near, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	far, err := b.pod.LinkByName("eth0")
	require.NoError(t, err)

	require.Equal(t, rtnl.Link{
		Index: near.Index, PeerIndex: far.Index, MTU: 1400, TxQLen: 777, Name: "fl1", Kind: "veth",
		MAC: near.MAC, Group: group, PeerNetnsID: near.PeerNetnsID,
	}, near)
	require.GreaterOrEqual(t, near.PeerNetnsID, 0)
	require.Equal(t, v.PeerMAC, far.MAC)
	require.Equal(t, near.Index, far.PeerIndex)
	require.Equal(t, 1400, far.MTU)
	require.Zero(t, far.Group, "the mark is the near end's")
	require.Contains(t, ip(t, b.podNS, "link", "show", "eth0"), "02:00:00:00:00:02")

	require.NoError(t, b.host.SetUp(near.Index))
	require.NoError(t, b.pod.SetUp(far.Index))
	near, err = b.host.LinkByIndex(near.Index)
	require.NoError(t, err)
	require.True(t, near.Running)
}

func TestEnsureVethCompletesItsOwn(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	first, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	again, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.Equal(t, first, again)

	v.MTU, v.PeerMTU = 1300, 1280
	v.PeerMAC = mac("02:00:00:00:01:02")
	changed, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.Equal(t, first.Index, changed.Index)
	require.Equal(t, 1300, changed.MTU)
	require.Equal(t, first.MAC, changed.MAC)
	far, err := b.pod.LinkByName("eth0")
	require.NoError(t, err)
	require.Equal(t, 1280, far.MTU)
	require.Equal(t, v.PeerMAC, far.MAC)
}

func TestEnsureVethRefusesOthers(t *testing.T) {
	tests := map[string]func(t *testing.T, b bed, v *rtnl.Veth){
		"another group":     func(_ *testing.T, _ bed, v *rtnl.Veth) { v.Group++ },
		"another peer name": func(_ *testing.T, _ bed, v *rtnl.Veth) { v.PeerName = "net1" },
		"another namespace": func(t *testing.T, _ bed, v *rtnl.Veth) { v.Peer = netnstest.New(t) },
		// Same index and name, but that pair has nothing to do with ours.
		"a lookalike in another namespace": func(t *testing.T, b bed, v *rtnl.Veth) {
			other := netnstest.New(t)
			o := *v
			o.Name, o.Peer = "fl2", other
			_, err := b.host.EnsureVeth(o)
			require.NoError(t, err)
			v.Peer = other
		},
		"peer name taken in the pod": func(_ *testing.T, _ bed, v *rtnl.Veth) { v.Name = "fl2" },
		"no veth": func(t *testing.T, b bed, v *rtnl.Veth) {
			ip(t, b.hostNS, "link", "add", "br9", "type", "bridge")
			v.Name = "br9"
		},
		"the namespace itself": func(_ *testing.T, b bed, v *rtnl.Veth) { v.Peer, v.PeerName = b.hostNS, "fl1" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			v := b.veth()
			_, err := b.host.EnsureVeth(v)
			require.NoError(t, err)
			before := ip(t, b.hostNS, "-d", "link") + ip(t, b.podNS, "-d", "link")
			change(t, b, &v)
			_, err = b.host.EnsureVeth(v)
			require.ErrorIs(t, err, core.ErrExists)
			if name != "no veth" && name != "a lookalike in another namespace" {
				require.Equal(t, before, ip(t, b.hostNS, "-d", "link")+ip(t, b.podNS, "-d", "link"))
			}
		})
	}
}

func TestEnsureVethInOneNamespace(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	v.Peer = b.hostNS
	l, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.Equal(t, -1, l.PeerNetnsID)
	_, err = b.host.EnsureVeth(v)
	require.NoError(t, err)
	v.Peer = b.podNS
	_, err = b.host.EnsureVeth(v)
	require.ErrorIs(t, err, core.ErrExists)
}

func TestEnsureVethFailsCleanly(t *testing.T) {
	b := newBed(t)
	for name, change := range map[string]func(v *rtnl.Veth){
		"mtu too small": func(v *rtnl.Veth) { v.MTU = 10 },
		"bad name":      func(v *rtnl.Veth) { v.Name = "a/b" },
		"long name":     func(v *rtnl.Veth) { v.Name = "sixteen-letters-" },
		"bad peer name": func(v *rtnl.Veth) { v.PeerName = "a b" },
		"multicast mac": func(v *rtnl.Veth) { v.PeerMAC = mac("ff:00:00:00:00:01") },
	} {
		t.Run(name, func(t *testing.T) {
			v := b.veth()
			change(&v)
			_, err := b.host.EnsureVeth(v)
			require.Error(t, err)
			links, err := b.host.Links()
			require.NoError(t, err)
			require.Len(t, links, 1, "only lo")
		})
	}
}

func TestLinksThatAreNotThere(t *testing.T) {
	b := newBed(t)
	_, err := b.host.LinkByName("fl1")
	require.ErrorIs(t, err, core.ErrNotFound)
	_, err = b.host.LinkByIndex(99)
	require.ErrorIs(t, err, core.ErrNotFound)
	require.ErrorIs(t, b.host.SetUp(99), core.ErrNotFound)
	require.ErrorIs(t, b.host.SetName(99, "x"), core.ErrNotFound)
	require.ErrorIs(t, b.host.AddAddr(99, netip.MustParsePrefix("10.0.0.1/24"), true), core.ErrNotFound)
	require.NoError(t, b.host.DelLink(99))
	require.NoError(t, b.host.DelGroup(group))
	require.NoError(t, b.host.DelAddr(99, netip.MustParsePrefix("10.0.0.1/24")))
	addrs, err := b.host.Addrs(99)
	require.True(t, errors.Is(err, core.ErrNotFound) || err == nil && len(addrs) == 0, "%v %v", addrs, err)
}

func TestTombstonesGoInOneRequest(t *testing.T) {
	b := newBed(t)
	const n = 20
	for i := range n {
		v := b.veth()
		v.Name, v.PeerName, v.PeerMAC = fmt.Sprintf("fl%d", i), fmt.Sprintf("net%d", i), nil
		l, err := b.host.EnsureVeth(v)
		require.NoError(t, err)
		if i == 0 {
			require.NoError(t, b.host.Apply(l.Index, rtnl.Change{Alias: "kept"}))
			continue
		}
		require.NoError(t, b.host.SetUp(l.Index))
		require.NoError(t, b.host.SetDown(l.Index))
		require.NoError(t, b.host.SetName(l.Index, fmt.Sprintf("dead%d", i)))
		require.NoError(t, b.host.SetGroup(l.Index, group+1))
		got, err := b.host.LinkByName(fmt.Sprintf("dead%d", i))
		require.NoError(t, err)
		require.Equal(t, uint32(group+1), got.Group)
		require.False(t, got.Up)
	}
	l, err := b.host.LinkByName("fl0")
	require.NoError(t, err)
	require.ErrorIs(t, b.host.SetName(l.Index, "dead1"), core.ErrExists)

	require.NoError(t, b.host.DelGroup(group+1))
	require.NoError(t, b.host.DelGroup(group+1))
	links, err := b.host.Links()
	require.NoError(t, err)
	require.Len(t, links, 2, "lo and fl0")
	require.Equal(t, "kept", links[1].Alias)
	links, err = b.pod.Links()
	require.NoError(t, err)
	require.Len(t, links, 2, "the far ends went too")
	require.NoError(t, b.host.DelLink(l.Index))
	require.NoError(t, b.host.DelLink(l.Index))
}

func TestSetters(t *testing.T) {
	b := newBed(t)
	l, err := b.host.EnsureVeth(b.veth())
	require.NoError(t, err)
	require.NoError(t, b.host.SetMTU(l.Index, 1234))
	require.NoError(t, b.host.SetMAC(l.Index, mac("02:aa:00:00:00:01")))
	require.NoError(t, b.host.Apply(l.Index, rtnl.Change{Alias: "ns/pod"}))
	got, err := b.host.LinkByIndex(l.Index)
	require.NoError(t, err)
	require.Equal(t, 1234, got.MTU)
	require.Equal(t, mac("02:aa:00:00:00:01"), got.MAC)
	require.Equal(t, "ns/pod", got.Alias)
}

func TestAddresses(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	near, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.NoError(t, b.host.SetUp(near.Index))
	l, err := b.pod.LinkByName("eth0")
	require.NoError(t, err)
	require.NoError(t, b.pod.SetUp(l.Index))
	a4, a6 := netip.MustParsePrefix("10.0.0.5/24"), netip.MustParsePrefix("fd00::5/64")
	for range 2 { // the second time is success too
		require.NoError(t, b.pod.AddAddr(l.Index, a4, true))
		require.NoError(t, b.pod.AddAddr(l.Index, a6, true))
	}
	require.ErrorIs(t, b.pod.AddAddr(l.Index, netip.MustParsePrefix("fd00::5/80"), true), core.ErrExists)
	require.Contains(t, ip(t, b.podNS, "-4", "addr", "show", "eth0"), "10.0.0.5/24 brd 10.0.0.255")

	addrs, err := b.pod.Addrs(l.Index)
	require.NoError(t, err)
	flags := map[netip.Prefix]int{}
	for _, a := range addrs {
		flags[a.Prefix] = a.Flags
	}
	require.Contains(t, flags, a4)
	require.Contains(t, flags, a6)
	require.Zero(t, flags[a6]&unix.IFA_F_TENTATIVE, "usable at once")
	require.NoError(t, b.podNS.Do(func() error { // to bind is what DAD forbids
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		return unix.Bind(fd, &unix.SockaddrInet6{Addr: a6.Addr().As16()})
	}))

	for range 2 {
		require.NoError(t, b.pod.DelAddr(l.Index, a4))
		require.NoError(t, b.pod.DelAddr(l.Index, a6))
	}
	addrs, err = b.pod.Addrs(l.Index)
	require.NoError(t, err)
	for _, a := range addrs {
		require.True(t, a.Prefix.Addr().IsLinkLocalUnicast(), a.Prefix)
	}
}

func TestRoutes(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	near, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.NoError(t, b.host.SetUp(near.Index))
	l, err := b.pod.LinkByName("eth0")
	require.NoError(t, err)
	require.NoError(t, b.pod.SetUp(l.Index))
	require.NoError(t, b.pod.AddAddr(l.Index, netip.MustParsePrefix("10.0.0.5/24"), true))
	require.NoError(t, b.pod.AddAddr(l.Index, netip.MustParsePrefix("fd00::5/64"), true))

	want := []rtnl.Route{
		{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.0.0.1")},
		{Dst: netip.MustParsePrefix("10.9.0.0/16")},
		{Dst: netip.MustParsePrefix("10.8.0.0/16"), GW: netip.MustParseAddr("192.0.2.1"), OnLink: true},
		{Dst: netip.MustParsePrefix("10.7.0.0/16"), GW: netip.MustParseAddr("fd00::9")},
		{Dst: netip.MustParsePrefix("10.6.0.0/16"), GW: netip.MustParseAddr("10.0.0.1"), Src: netip.MustParseAddr("10.0.0.5"), Priority: 7},
		{Dst: netip.MustParsePrefix("::/0"), GW: netip.MustParseAddr("fd00::1")},
		{Dst: netip.MustParsePrefix("fd07::/64")},
	}
	for range 2 {
		for i := range want {
			want[i].Index = l.Index
			require.NoError(t, b.pod.ReplaceRoute(want[i]), want[i].Dst)
		}
	}
	got, err := b.pod.Routes(l.Index)
	require.NoError(t, err)
	require.Subset(t, boot(got), want)
	require.Len(t, boot(got), len(want))
	all, err := b.pod.Routes(0)
	require.NoError(t, err)
	require.Equal(t, len(got), len(all))
	routers, err := b.pod.Routers()
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, routers)

	// Replaced, not added.
	want[0].GW = netip.MustParseAddr("10.0.0.2")
	require.NoError(t, b.pod.ReplaceRoute(want[0]))
	got, err = b.pod.Routes(l.Index)
	require.NoError(t, err)
	require.Subset(t, boot(got), want)
	require.Len(t, boot(got), len(want))

	require.Error(t, b.pod.ReplaceRoute(rtnl.Route{Dst: want[0].Dst, GW: netip.MustParseAddr("192.0.2.7"), Index: l.Index}))
}

// boot gives the routes that somebody made, in the form they were asked for.
func boot(list []rtnl.Route) (out []rtnl.Route) {
	for _, r := range list {
		if r.Protocol != unix.RTPROT_BOOT {
			continue
		}
		r.Protocol, r.Table, r.Type, r.Scope = 0, 0, 0, 0
		if r.Priority == 1024 {
			r.Priority = 0
		}
		out = append(out, r)
	}
	return out
}

func TestRoutesShowEveryHop(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	l, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.NoError(t, b.host.SetUp(l.Index))
	require.NoError(t, b.host.AddAddr(l.Index, netip.MustParsePrefix("10.0.0.1/24"), true))
	ip(t, b.hostNS, "route", "add", "10.5.0.0/16",
		"nexthop", "via", "10.0.0.2", "dev", "fl1", "nexthop", "via", "10.0.0.3", "dev", "fl1", "weight", "3")
	got, err := b.host.Routes(0)
	require.NoError(t, err)
	require.Len(t, boot(got), 1)
	require.Equal(t, []rtnl.Hop{
		{GW: netip.MustParseAddr("10.0.0.2"), Index: l.Index, Weight: 1},
		{GW: netip.MustParseAddr("10.0.0.3"), Index: l.Index, Weight: 3},
	}, boot(got)[0].Multipath)
}

func TestPoolReusesSockets(t *testing.T) {
	b := newBed(t)
	p := rtnl.NewPool(b.hostNS)
	defer p.Close()
	c, err := p.Get()
	require.NoError(t, err)
	for _, none := range []string{"nothing", "more-than-15-bytes"} {
		_, err = c.LinkByName(none)
		require.ErrorIs(t, err, core.ErrNotFound, none)
	}
	p.Put(c)
	again, err := p.Get()
	require.NoError(t, err)
	require.Same(t, c, again)
	_, err = again.LinkByName("lo")
	require.NoError(t, err)
	p.Put(again)

	var wg sync.WaitGroup
	for i := range 40 { // more than a pool keeps
		wg.Go(func() {
			c, err := p.Get()
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Put(c)
			v := b.veth()
			v.Name, v.PeerName, v.PeerMAC = fmt.Sprintf("fl%d", i), fmt.Sprintf("net%d", i), nil
			if _, err := c.EnsureVeth(v); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	links, err := b.host.Links()
	require.NoError(t, err)
	require.Len(t, links, 41)
}

func TestApplyChangesAllAtOnce(t *testing.T) {
	b := newBed(t)
	near, err := b.host.EnsureVeth(b.veth())
	require.NoError(t, err)
	require.NoError(t, b.host.Apply(near.Index, rtnl.Change{Alias: "whose", Up: true, NoLinkLocal: true}))
	got, err := b.host.LinkByIndex(near.Index)
	require.NoError(t, err)
	require.True(t, got.Up)
	require.Equal(t, "whose", got.Alias)
	require.Equal(t, near.Name, got.Name)
	require.Equal(t, near.Group, got.Group)
	far, err := b.pod.LinkByName("eth0")
	require.NoError(t, err)
	require.NoError(t, b.pod.SetUp(far.Index))
	require.Eventually(t, func() bool { // the pod's end gets a link-local address, ours does not
		there, err := b.pod.Addrs(far.Index)
		return err == nil && len(there) == 1
	}, 10*time.Second, 5*time.Millisecond)
	addrs, err := b.host.Addrs(near.Index)
	require.NoError(t, err)
	require.Empty(t, addrs)

	require.NoError(t, b.host.Apply(near.Index, rtnl.Change{Name: "gone1", Group: 77, Down: true}))
	got, err = b.host.LinkByName("gone1")
	require.NoError(t, err)
	require.False(t, got.Up)
	require.Equal(t, uint32(77), got.Group)
	require.Equal(t, "whose", got.Alias)
	require.ErrorIs(t, b.host.Apply(1<<20, rtnl.Change{Up: true}), core.ErrNotFound)
}

func TestAnnounceReachesTheNeighbour(t *testing.T) {
	b := newBed(t)
	v := b.veth()
	near, err := b.host.EnsureVeth(v)
	require.NoError(t, err)
	require.NoError(t, b.host.SetUp(near.Index))
	far, err := b.pod.LinkByName("eth0")
	require.NoError(t, err)
	require.NoError(t, b.pod.SetUp(far.Index))
	require.NoError(t, b.host.AddAddr(near.Index, netip.MustParsePrefix("10.0.0.1/24"), true))
	require.NoError(t, b.host.AddAddr(near.Index, netip.MustParsePrefix("fd00::1/64"), true))
	// The neighbour believes the addresses to be somewhere else.
	ip(t, b.hostNS, "neigh", "add", "10.0.0.5", "lladdr", "02:99:00:00:00:01", "dev", "fl1", "nud", "stale")
	ip(t, b.hostNS, "neigh", "add", "fd00::5", "lladdr", "02:99:00:00:00:01", "dev", "fl1", "nud", "stale")
	frames := sniff(t, b.hostNS, near.Index)

	require.NoError(t, neigh.Announce(b.podNS, "eth0", v.PeerMAC, []netip.Prefix{
		netip.MustParsePrefix("10.0.0.5/24"), netip.MustParsePrefix("fd00::5/64"),
	}))
	seen := map[string]bool{}
	for len(seen) < 2 {
		f, ok := <-frames
		require.True(t, ok, "only %v arrived", seen)
		switch {
		case len(f) >= 42 && f[12] == 8 && f[13] == 6:
			require.Equal(t, f[28:32], f[38:42], "sender and target address")
			require.Equal(t, []byte(v.PeerMAC), f[22:28])
			seen[fmt.Sprint("arp", f[21])] = true
		case len(f) >= 86 && f[54] == 136:
			require.Equal(t, byte(255), f[21], "hop limit")
			require.Equal(t, byte(0x20), f[58], "override, not solicited")
			seen["na"] = true
		}
	}
	for _, a := range []string{"10.0.0.5", "fd00::5"} {
		require.Eventually(t, func() bool {
			return strings.Contains(ip(t, b.hostNS, "neigh", "show", a), v.PeerMAC.String())
		}, 10*time.Second, 10*time.Millisecond, "the kernel took %s over", a)
	}
}

// sniff gives every frame that arrives on the link.
func sniff(t *testing.T, ns *netns.Handle, index int) <-chan []byte {
	t.Helper()
	var fd int
	all := uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8)
	require.NoError(t, ns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
		return err
	}))
	require.NoError(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
	require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}))
	ch := make(chan []byte, 100)
	go func() {
		defer close(ch)
		defer func() { _ = unix.Close(fd) }()
		for {
			buf := make([]byte, 2048)
			n, err := unix.Read(fd, buf)
			if err != nil {
				return
			}
			ch <- buf[:n]
		}
	}()
	return ch
}

func TestAnnounceFails(t *testing.T) {
	b := newBed(t)
	addr := []netip.Prefix{netip.MustParsePrefix("10.0.0.5/24")}
	require.ErrorIs(t, neigh.Announce(b.podNS, "eth0", mac("02:00:00:00:00:02"), addr), core.ErrNotFound)
	require.Error(t, neigh.Announce(b.podNS, "lo", nil, addr))
	require.Error(t, neigh.Announce(b.podNS, "sixteen-letters-", mac("02:00:00:00:00:02"), addr))
	_, err := b.host.EnsureVeth(b.veth())
	require.NoError(t, err)
	require.ErrorIs(t, neigh.Announce(b.podNS, "eth0", mac("02:00:00:00:00:02"), addr), unix.ENETDOWN)
}

func BenchmarkPodNetlink(b *testing.B) {
	bed := newBed(b)
	addr := netip.MustParsePrefix("10.0.0.5/24")
	route := rtnl.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), GW: netip.MustParseAddr("10.0.0.1")}
	step := func(name string, fn func() error) {
		start := time.Now()
		require.NoError(b, fn())
		b.ReportMetric(float64(time.Since(start).Microseconds()), name+"-us")
	}
	for b.Loop() {
		var near, far rtnl.Link
		var pod *rtnl.Conn
		v := bed.veth()
		step("open", func() (err error) { pod, err = rtnl.Open(bed.podNS); return err })
		step("veth", func() (err error) { near, err = bed.host.EnsureVeth(v); return err })
		step("get", func() (err error) { far, err = pod.LinkByIndex(near.PeerIndex); return err })
		step("up", func() error { return errors.Join(bed.host.SetUp(near.Index), pod.SetUp(far.Index)) })
		step("addr", func() error { return pod.AddAddr(far.Index, addr, true) })
		step("route", func() error { r := route; r.Index = far.Index; return pod.ReplaceRoute(r) })
		step("announce", func() error { return neigh.Announce(bed.podNS, "eth0", v.PeerMAC, []netip.Prefix{addr}) })
		step("down", func() error { return bed.host.SetDown(near.Index) })
		step("rename", func() error { return bed.host.SetName(near.Index, "dead") })
		step("group", func() error { return bed.host.SetGroup(near.Index, group+1) })
		step("reap", func() error { return bed.host.DelGroup(group + 1) })
		step("close", pod.Close)
	}
}
