package hostport_test

import (
	"context"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// TestTrafficFromEverywhere: a host port leads to the pod from outside, from
// the node at each of its addresses, from another pod and from the pod itself,
// in both families; the pod sees who asks wherever the answer can find back.
func TestTrafficFromEverywhere(t *testing.T) {
	b := newBed(t)
	web := b.pod("web", tcp(8080, 80), udp(8080, 80))
	other := b.pod("other")
	b.attach(web)
	for _, proto := range []string{"tcp", "udp"} {
		require.Equal(t, "web sees "+world4, b.ask(b.world, proto, node4, 8080), "outside %s", proto)
		require.Equal(t, "web sees "+world6, b.ask(b.world, proto, node6, 8080), "outside %s", proto)
		require.Equal(t, "web sees "+node4, b.ask(b.host, proto, node4, 8080), "node %s", proto)
		require.Equal(t, "web sees "+node6, b.ask(b.host, proto, node6, 8080), "node %s", proto)
		require.Equal(t, "web sees 10.9.0.1", b.ask(b.host, proto, "127.0.0.1", 8080), "localhost %s", proto)
		require.Equal(t, "web sees 10.9.0.1", b.ask(other.ns, proto, node4, 8080), "another pod %s", proto)
		require.Equal(t, "web sees fd09::1", b.ask(other.ns, proto, node6, 8080), "another pod %s", proto)
		require.Equal(t, "web sees 10.9.0.1", b.ask(web.ns, proto, node4, 8080), "itself %s", proto)
		require.Equal(t, "web sees fd09::1", b.ask(web.ns, proto, node6, 8080), "itself %s", proto)
	}
	require.Nil(t, b.dial(b.host, "tcp", "::1", 8080), "Linux has no such way")
	b.detach(web)
	require.Empty(t, b.ask(b.world, "tcp", node4, 8080))
	require.Empty(t, b.ruleset())
}

// TestStaleConnections: a UDP client that never pauses reaches the pod that
// opens its port, then the next one, though the kernel tracked its connection
// to whoever was there before.
func TestStaleConnections(t *testing.T) {
	b := newBed(t)
	first, second := b.pod("first", udp(5300, 80)), b.pod("second", udp(5300, 80))
	b.attach(b.pod("base", tcp(1, 80))) // the kernel tracks where there are rules that need it
	for _, addr := range []string{node4, node6} {
		c := b.dial(b.world, "udp", addr, 5300)
		defer func() { _ = c.Close() }()
		require.Empty(t, inside.Talk(c, patience))
		require.Contains(t, b.sh(b.host, "conntrack -L -p udp -d "+addr+" 2>/dev/null"), "dport=5300", "nobody is there, and the kernel remembers it")
		b.attach(first)
		require.Contains(t, inside.Talk(c, patience), "first sees")
		b.detach(first)
		require.Empty(t, inside.Talk(c, patience))
		b.attach(second)
		require.Contains(t, inside.Talk(c, patience), "second sees")
		b.detach(second)
	}
}

// TestStaleConnectionsLater: the same where Run forgets, and a port that went from
// one pod to another meanwhile.
func TestStaleConnectionsLater(t *testing.T) {
	b := newBed(t)
	b.table = hostport.New(hostport.Config{Host: b.host, Late: true})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { b.table.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	first, second := b.pod("first", udp(5300, 80)), b.pod("second", udp(5300, 80))
	b.attach(b.pod("base", tcp(1, 80)))
	c := b.dial(b.world, "udp", node4, 5300)
	defer func() { _ = c.Close() }()
	require.Empty(t, inside.Talk(c, patience))
	sees := func(who string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(inside.Talk(c, 200*time.Millisecond), who+" sees") }, 30*time.Second, time.Millisecond)
	}
	b.attach(first)
	sees("first")
	b.detach(first)
	b.attach(second)
	sees("second")
	require.NoError(t, b.table.Flush())
	require.Contains(t, b.sh(b.host, "conntrack -L -p udp -d "+node4+" 2>/dev/null"), "dport=5300", "the living pod's connection")
	b.detach(second)
	require.Eventually(t, func() bool { return inside.Talk(c, 200*time.Millisecond) == "" }, 30*time.Second, time.Millisecond)
}

// TestForeignConnectionsStay: what only has the number of a host port is not
// forgotten.
func TestForeignConnectionsStay(t *testing.T) {
	b := newBed(t)
	web, client := b.pod("web", udp(5300, 80), tcp(8080, 80)), b.pod("client")
	inside.Serve(t, b.world, "world", 5300)
	b.sh(b.world, "ip route add 10.9.0.0/24 via "+node4)
	b.attach(b.pod("base", tcp(1, 80)))
	c := b.dial(client.ns, "udp", world4, 5300)
	require.Equal(t, "world sees 10.9.0.11", inside.Talk(c, patience))
	tracked := func() string { return b.sh(b.host, "conntrack -L -p udp -d "+world4+" 2>/dev/null") }
	before := tracked()
	require.Contains(t, before, "dport=5300")
	inside.Serve(t, b.host, "node", 8080)
	ssh := b.dial(b.world, "tcp", node4, 8080)
	b.attach(web)
	require.Contains(t, tracked(), "dport=5300")
	require.Equal(t, "node sees "+world4, inside.Talk(ssh, patience), "a TCP connection to the node itself")
	require.Equal(t, "web sees "+world4, b.ask(b.world, "tcp", node4, 8080))
}

// TestBoundPorts: one port of two addresses of the node leads to two pods.
func TestBoundPorts(t *testing.T) {
	b := newBed(t)
	one, two := b.pod("one", on(node4, tcp(8080, 80)), on(node6, tcp(8080, 80))), b.pod("two", on(node4b, tcp(8080, 80)), on("127.0.0.1", tcp(8080, 80)))
	b.attach(one)
	b.attach(two)
	require.Equal(t, "one sees "+world4, b.ask(b.world, "tcp", node4, 8080))
	require.Equal(t, "two sees "+world4, b.ask(b.world, "tcp", node4b, 8080))
	require.Equal(t, "one sees "+world6, b.ask(b.world, "tcp", node6, 8080))
	require.Equal(t, "two sees 10.9.0.1", b.ask(b.host, "tcp", "127.0.0.1", 8080))
	b.detach(one)
	require.Nil(t, b.dial(b.world, "tcp", node4, 8080))
	require.Equal(t, "two sees "+world4, b.ask(b.world, "tcp", node4b, 8080))
}

// TestLoopbackStaysClosed: what opens 127.0.0.1 towards pods does not let them
// in; with the last port it is taken back.
func TestLoopbackStaysClosed(t *testing.T) {
	b := newBed(t)
	web := b.pod("web", tcp(8080, 80))
	b.attach(web)
	inside.Serve(t, b.host, "node", 7000)
	localnet := func() string { return b.sh(b.host, "cat /proc/sys/net/ipv4/conf/br0/route_localnet") }
	require.Equal(t, "1\n", localnet())
	b.sh(web.ns, "ip route add 127.0.0.2/32 via 10.9.0.1 dev eth0", "sysctl -qw net.ipv4.conf.eth0.route_localnet=1", "ip route del local 127.0.0.0/8 dev lo table local")
	require.Empty(t, b.ask(web.ns, "tcp", "127.0.0.2", 7000))
	b.sh(b.host, "nft flush chain inet fairlead-hostports guard")
	require.Equal(t, "node sees 10.9.0.10", b.ask(web.ns, "tcp", "127.0.0.2", 7000), "the guard is what kept the pod out")
	b.detach(web)
	require.Equal(t, "0\n", localnet())
}

// TestDeviceMadeAnew: a device of the same name is not the one that was opened:
// the next pod's ports lead there from the node's loopback addresses too, and
// Drift tells of a device that nobody has opened.
func TestDeviceMadeAnew(t *testing.T) {
	b := newBed(t)
	web, next := b.pod("web", tcp(8080, 80)), b.pod("next", tcp(8081, 80))
	b.attach(web)
	require.NoError(t, b.table.Drift(t.Context()))
	b.sh(b.host, "ip link del br0", "ip link add br0 type bridge", "ip addr add 10.9.0.1/24 dev br0", "ip addr add fd09::1/64 dev br0 nodad",
		"ip link set br0 up", "ip link set p1 master br0", "ip link set p2 master br0")
	err := b.table.Drift(t.Context())
	require.ErrorIs(t, err, core.ErrDrift)
	require.ErrorContains(t, err, "br0/route_localnet")
	b.attach(next)
	require.NoError(t, b.table.Drift(t.Context()))
	require.Equal(t, "next sees 10.9.0.1", b.ask(b.host, "tcp", "127.0.0.1", 8081))
	require.Equal(t, "web sees 10.9.0.1", b.ask(b.host, "tcp", "127.0.0.1", 8080))
	b.sh(b.host, "nft flush ruleset")
	require.ErrorContains(t, b.table.Drift(t.Context()), "is missing")
	require.NoError(t, b.table.Audit(t.Context()))
	require.NoError(t, b.table.Drift(t.Context()))
}

// TestForgetsLater: what could not be forgotten, here for want of descriptors, is
// forgotten as soon as it can be, though nobody asks again.
func TestForgetsLater(t *testing.T) {
	b := newBed(t)
	b.table = hostport.New(hostport.Config{Host: b.host, Late: true})
	b.attach(b.pod("base", tcp(1, 80)))                                    // the kernel tracks where there are rules that need it
	b.sh(b.host, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=3600") // it does not forget by itself
	c := b.dial(b.world, "udp", node4, 5300)
	defer func() { _ = c.Close() }()
	require.Empty(t, inside.Talk(c, patience))
	tracked := func() bool {
		return strings.Contains(b.sh(b.host, "conntrack -L -p udp -d "+node4+" 2>/dev/null"), "dport=5300")
	}
	require.True(t, tracked())

	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	b.table.Forget([]netip.Addr{netip.MustParseAddr(world4)})
	err := b.table.Flush()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, syscall.EMFILE)
	require.True(t, tracked())

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { b.table.Run(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	require.Eventually(t, func() bool { return !tracked() }, time.Minute, 10*time.Millisecond)
}
