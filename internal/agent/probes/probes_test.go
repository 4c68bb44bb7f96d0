package probes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/probes"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// noPorts is a switch without ports: there is no way to the pods but the proxy.
type noPorts struct{ standalone.PortMaker }

func (noPorts) PortsWith(string, string) []ovs.PortState      { return nil }
func (noPorts) PortByName(string) (ovs.PortState, bool)       { return ovs.PortState{}, false }
func (noPorts) AddPort(context.Context, ovs.Port) error       { return core.ErrUnavailable }
func (noPorts) WaitPort(context.Context, string) (int, error) { return 0, core.ErrUnavailable }

// book is the records of a node, and what pods were told.
type book struct {
	mu    sync.Mutex
	list  []core.Record
	ports map[string][]uint16
	said  []string
}

func (b *book) Heads() (out []journal.Head) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.list {
		r := &b.list[i]
		out = append(out, journal.Head{Key: r.Key, Pod: r.Pod, Netns: r.Netns, Phase: r.Phase, Called: r.Called()})
	}
	return out
}

func (b *book) Get(k core.Key) (core.Record, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.list {
		if r.Key == k {
			return r, true
		}
	}
	return core.Record{}, false
}

// add is a pod of a Subnet, probed at ports; those in which it listens are its own to open.
func (b *book) add(t *testing.T, name, subnet string, ns *netns.Handle, ports []uint16, addrs ...string) {
	t.Helper()
	at, err := netns.Identify(ns.ProcPath())
	require.NoError(t, err)
	nic := &core.NICSpec{Subnet: subnet}
	for _, a := range addrs {
		nic.Addrs = append(nic.Addrs, netip.MustParsePrefix(a))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports[name] = ports
	n := len(b.ports)
	b.list = append(b.list, core.Record{
		Key: core.Key{Container: fmt.Sprint(n), IfName: "eth0"}, Pod: core.Pod{Namespace: subnet, Name: name}, Netns: at, Phase: core.Added,
		Created: time.Unix(int64(n), 0), Specs: []core.Spec{{Default: true, NIC: nic}},
	})
}

func (b *book) remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range b.list {
		if r.Pod.Name == name {
			b.list = append(b.list[:i:i], b.list[i+1:]...)
			return
		}
	}
}

func (b *book) told() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.said, "\n")
}

// newPod is a namespace with addresses on a link that leads nowhere.
func newPod(t *testing.T) *netns.Handle {
	t.Helper()
	ns := netnstest.New(t)
	inside.Sh(t, ns, "ip link set lo up; ip link add eth0 type veth peer name far; ip link set eth0 up; ip link set far up; ip addr add 10.0.0.5/24 dev eth0; ip addr add fd00:1::5/64 dev eth0 nodad")
	return ns
}

// TestProbes: the node itself reaches a pod of another Vpc at its probed ports, and not at
// others, while it listens there; of two with one address the first one, and none whose
// address the node reaches by itself. What somebody takes away is found missing, and comes
// back; without the option nothing is left.
func TestProbes(t *testing.T) {
	t.Parallel()
	for _, mode := range []netfilter.Mode{netfilter.IPTables, netfilter.NFTables} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			probed(t, mode)
		})
	}
}

func probed(t *testing.T, mode netfilter.Mode) {
	t.Helper()
	node, red, blue := netnstest.New(t), newPod(t), newPod(t)
	inside.Sh(t, node, "ip link set lo up; ip link add eth0 type veth peer name far; ip link set eth0 up; ip link set far up; ip addr add 192.0.2.1/24 dev eth0; ip addr add 2001:db8::1/64 dev eth0 nodad; "+
		"ip route add default via 192.0.2.254; ip -6 route add default via 2001:db8::fe; "+
		"until ip -6 route show table local | grep -q '^local 2001:db8::1 '; do sleep 0.01; done") // the link's carrier brings it
	before := inside.Sh(t, node, "ip rule; ip -6 rule; ip route show table all | grep -v 'multicast\\|ff00\\|fe80' | sort")
	inside.Serve(t, red, "red", 8080, "10.0.0.5", "fd00:1::5")
	inside.Serve(t, red, "red", 9090, "10.0.0.5")
	inside.Serve(t, blue, "blue", 8080, "10.0.0.5", "fd00:1::5")

	b := &book{ports: map[string][]uint16{}}
	b.add(t, "a", "red", red, []uint16{7070, 8080}, "10.0.0.5/24", "fd00:1::5/64")
	b.add(t, "b", "blue", blue, []uint16{8080}, "10.0.0.5/24")
	b.add(t, "c", "home", blue, []uint16{8080}, "fd00:1::5/64")
	gw := standalone.New(standalone.Config{Ports: noPorts{}, Host: node, Filter: netfilter.New(netfilter.Config{Host: node, Mode: mode, Table: "t"})})
	changed := make(chan struct{}, 1)
	k := probes.New(probes.Config{
		Host: node, Records: b, Log: slog.New(slog.DiscardHandler),
		Subnets: func(context.Context) ([]core.Subnet, error) {
			return []core.Subnet{{Name: "red", Vpc: "red"}, {Name: "blue", Vpc: "blue"}, {Name: "home", Vpc: "ovn-cluster"}}, nil
		},
		Ports: func(_ context.Context, p core.Pod) ([]uint16, error) { return b.ports[p.Name], nil },
		Taken: func() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")} },
		Warn: func(p core.Pod, reason, note string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.said = append(b.said, p.String()+" "+reason+" "+note)
		},
		Changed: func() { changed <- struct{}{} },
	})
	_, err := k.Wanted()
	require.ErrorIs(t, err, core.ErrUnavailable)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.Run(ctx) })
	defer wg.Wait()
	defer stop()
	set := func() {
		t.Helper()
		list, err := k.Wanted()
		require.NoError(t, err)
		_ = gw.Set(t.Context(), standalone.Wanted{Probes: list, Join: &standalone.Join{}}) // of the join port there is none
		found := gw.Drift(t.Context())
		require.NoError(t, errors.Join(found[standalone.Filtered], found[standalone.Probed]))
	}
	ask := func(host string, port int) string {
		return inside.Query(node, inside.Peer{Network: "tcp", Host: host, Port: port, Limit: 30 * time.Second})
	}
	<-changed
	set()
	require.Equal(t, "red sees 10.0.0.5", ask("10.0.0.5", 8080))
	require.Equal(t, "red sees fd00:1::5", ask("fd00:1::5", 8080))
	require.NotContains(t, ask("10.0.0.5", 7070), "sees", "the pod does not listen")
	require.NotContains(t, inside.Query(node, inside.Peer{Network: "tcp", Host: "10.0.0.5", Port: 9090, Limit: time.Second}), "sees", "it is not probed there")
	require.NotContains(t, ask("127.0.0.1", 8102), "sees", "who asks the proxy itself is refused")
	led, refused := k.Counts()
	require.Equal(t, []uint64{2, 1}, []uint64{led, refused})
	require.Contains(t, b.told(), "blue/b ProbeNotForwarded probes of 10.0.0.5:8080 do not reach the pod: pod red/a")
	require.NotContains(t, b.told(), "home/c")

	// It begins to listen.
	inside.Serve(t, red, "late", 7070, "10.0.0.5")
	<-changed
	set()
	require.Equal(t, "late sees 10.0.0.5", ask("10.0.0.5", 7070))

	for _, harm := range []string{"ip rule del fwmark 0x90003", "ip -6 rule del fwmark 0x90003", "ip route flush table 10001"} {
		inside.Sh(t, node, harm)
		require.ErrorIs(t, gw.Drift(t.Context())[standalone.Probed], core.ErrDrift, harm)
		set()
		require.Equal(t, "red sees 10.0.0.5", ask("10.0.0.5", 8080), harm)
	}

	// The first one goes: the other has the address to itself.
	b.remove("a")
	<-changed
	set()
	require.Equal(t, "blue sees 10.0.0.5", ask("10.0.0.5", 8080))

	// An address that the node reaches by itself is nobody else's.
	inside.Sh(t, blue, "ip addr add 10.9.0.5/24 dev eth0")
	b.add(t, "d", "blue", blue, []uint16{8080}, "10.9.0.5/24")
	require.Eventually(t, func() bool { return strings.Contains(b.told(), "blue/d ProbeNotForwarded probes of 10.9.0.5:8080") }, time.Minute, 10*time.Millisecond)
	require.Empty(t, changed)

	_ = gw.Set(t.Context(), standalone.Wanted{})
	require.Equal(t, before, inside.Sh(t, node, "ip rule; ip -6 rule; ip route show table all | grep -v 'multicast\\|ff00\\|fe80' | sort"))
	require.NotContains(t, inside.Sh(t, node, "iptables-nft-save; ip6tables-nft-save; nft list ruleset"), "90003")
}

// TestUnknownPod: pods are probed behind those that the API server does not have, and a look waits
// for one of these alone that it has waited for before.
func TestUnknownPod(t *testing.T) {
	t.Parallel()
	node, pod := netnstest.New(t), newPod(t)
	inside.Serve(t, pod, "red", 8080, "10.0.0.5")
	b := &book{ports: map[string][]uint16{}}
	for i := range 3 {
		b.add(t, fmt.Sprint("gone", i), "red", pod, nil, "10.0.0.4/24")
	}
	var mu sync.Mutex
	asked, looks := 0, []int{} // for those that are gone: in this look, and in the looks before
	b.add(t, "here", "red", pod, []uint16{8080}, "10.0.0.5/24")
	k := probes.New(probes.Config{
		Host: node, Records: b, Log: slog.New(slog.DiscardHandler),
		Subnets: func(context.Context) ([]core.Subnet, error) {
			mu.Lock()
			defer mu.Unlock()
			looks, asked = append(looks, asked), 0
			return []core.Subnet{{Name: "red", Vpc: "red"}}, nil
		},
		Ports: func(_ context.Context, p core.Pod) ([]uint16, error) {
			if strings.HasPrefix(p.Name, "gone") {
				mu.Lock()
				defer mu.Unlock()
				asked++
				return nil, core.ErrNotFound
			}
			return b.ports[p.Name], nil
		},
		Taken: func() []netip.Prefix { return nil }, Warn: func(core.Pod, string, string) {}, Changed: func() {},
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	defer func() { stop(); <-done }()
	require.Eventually(t, func() bool {
		all, err := k.Wanted()
		return err == nil && len(all) == 1 && all[0].To == netip.MustParseAddrPort("10.0.0.5:8080") && all[0].Open
	}, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		again := slices.DeleteFunc(slices.Clone(looks), func(n int) bool { return n == 0 })
		return slices.Equal(again, []int{3, 1, 1, 1})
	}, time.Minute, 10*time.Millisecond)
}
