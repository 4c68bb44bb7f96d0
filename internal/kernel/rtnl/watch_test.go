package rtnl_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// TestWatch: a change of a link that is aimed at, of its addresses or of
// forwarding is heard, and so is one of a route over it; what happens to other links and
// their routes is not.
func TestWatch(t *testing.T) {
	ns := netnstest.New(t)
	ip := func(args ...string) {
		t.Helper()
		netnstest.Do(t, ns, func() error {
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%v: %w: %s", args, err, out)
			}
			return nil
		})
	}
	ip("ip", "link", "add", "nic0", "up", "type", "veth", "peer", "nic1")
	ip("ip", "addr", "add", "198.51.100.1/24", "dev", "nic0")
	ip("ip", "link", "add", "gw0", "type", "veth", "peer", "gw0p")
	ip("sysctl", "-qw", "net.ipv4.ip_forward=1")
	conn, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	gw, err := conn.LinkByName("gw0")
	require.NoError(t, err)
	w, err := rtnl.NewWatch(ns)
	require.NoError(t, err)
	require.NoError(t, w.Aim(rtnl.Aims{Links: []int{gw.Index}, Routes: []int{gw.Index}}))
	heard := make(chan struct{}, 1000)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, w.Run(ctx, func() { heard <- struct{}{} })) })
	defer wg.Wait()
	defer stop()
	expect := func(args ...string) {
		t.Helper()
		ip(args...)
		select {
		case <-heard:
		case <-time.After(20 * time.Second):
			require.Fail(t, "not heard", "%v", args)
		}
		for settled := false; !settled; { // one command makes several news
			select {
			case <-heard:
			case <-time.After(50 * time.Millisecond):
				settled = true
			}
		}
	}
	ip("ip", "link", "add", "pod0", "type", "veth", "peer", "pod0p")
	ip("ip", "addr", "add", "192.0.2.1/24", "dev", "pod0")
	ip("ip", "link", "set", "pod0", "up")
	ip("ip", "link", "del", "pod0")
	expect("ip", "link", "set", "gw0", "up")
	expect("ip", "addr", "add", "192.0.2.1/24", "dev", "gw0")
	for _, proto := range []string{"static", "boot", "bird"} {
		expect("ip", "route", "add", "203.0.113.0/24", "via", "192.0.2.2", "dev", "gw0", "proto", proto)
		expect("ip", "route", "del", "203.0.113.0/24")
		expect("ip", "-6", "route", "add", "2001:db8::/64", "dev", "gw0", "proto", proto)
		expect("ip", "-6", "route", "del", "2001:db8::/64")
		ip("ip", "route", "add", "203.0.113.0/24", "via", "198.51.100.2", "dev", "nic0", "proto", proto)
		ip("ip", "route", "del", "203.0.113.0/24")
		ip("ip", "-6", "route", "add", "2001:db8::/64", "dev", "nic0", "proto", proto)
		ip("ip", "-6", "route", "del", "2001:db8::/64")
	}
	require.Empty(t, heard, "routes over other links")
	expect("ip", "route", "add", "203.0.113.0/24", "dev", "nic0", "proto", "70")
	expect("ip", "route", "del", "203.0.113.0/24")
	for _, route := range [][]string{{"203.0.113.0/24"}, {"203.0.113.0/24", "table", "1000"}, {"2001:db8::/64"}} {
		expect(append(append([]string{"ip", "route", "add"}, route...), "dev", "gw0", "proto", "static")...)
		expect(append(append([]string{"ip", "route", "replace"}, route...), "dev", "nic0", "proto", "static")...)
		ip(append([]string{"ip", "route", "del"}, route...)...)
	}
	expect("ip", "addr", "del", "192.0.2.1/24", "dev", "gw0")
	expect("sysctl", "-qw", "net.ipv4.conf.gw0.forwarding=0")
	expect("sysctl", "-qw", "net.ipv4.ip_forward=0")
	expect("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	expect("ip", "link", "set", "gw0", "mtu", "1300")
	ip("ip", "link", "add", "pod1", "type", "veth", "peer", "pod1p")
	require.Empty(t, heard, "what pods' links do")
	require.NoError(t, w.Aim(rtnl.Aims{Links: []int{gw.Index}, Come: true}))
	expect("ip", "link", "add", "pod2", "type", "veth", "peer", "pod2p")
	expect("ip", "link", "set", "pod2", "name", "eth1")
	ip("ip", "addr", "add", "192.0.2.1/24", "dev", "eth1")
	require.Empty(t, heard, "addresses of other links")
	expect("ip", "link", "del", "gw0")
}

// TestAwait: a link that runs already is not waited for; one that comes to run is seen by what
// the kernel tells of it, for nobody asks again meanwhile.
func TestAwait(t *testing.T) {
	ns := netnstest.New(t)
	c, err := rtnl.Open(ns)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = c.NewVeth(rtnl.Veth{Name: "near", Peer: ns, PeerName: "far"})
	require.NoError(t, err)
	near, err := c.LinkByName("near")
	require.NoError(t, err)
	far, err := c.LinkByName("far")
	require.NoError(t, err)
	require.NoError(t, c.SetUp(near.Index))

	looks := 0
	runs := func() (bool, error) {
		looks++
		l, err := c.LinkByIndex(near.Index)
		return l.Running, err
	}
	begun := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		<-begun
		other, err := rtnl.Open(ns)
		require.NoError(t, err)
		defer func() { _ = other.Close() }()
		require.NoError(t, other.SetUp(far.Index))
	})
	require.NoError(t, rtnl.Await(t.Context(), ns, near.Index, func() (bool, error) {
		is, err := runs()
		if looks == 1 {
			require.False(t, is)
			close(begun)
		}
		return is, err
	}))
	wg.Wait()
	require.Greater(t, looks, 1)

	looks = 0
	require.NoError(t, rtnl.Await(t.Context(), ns, near.Index, runs))
	require.Equal(t, 1, looks)
	require.ErrorIs(t, rtnl.Await(t.Context(), ns, near.Index, func() (bool, error) { return false, context.Canceled }), context.Canceled)
	ended, end := context.WithCancelCause(t.Context())
	end(errors.New("given up"))
	require.ErrorContains(t, rtnl.Await(ended, ns, near.Index, func() (bool, error) { return false, nil }), "given up")
}
