package handover_test

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/gateway/handover"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/rules"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

const table = "fairlead-test"

// everything is what iptables and ipset tell of a node, without what they count, what is
// drawn at random, and the order in which a set gives its members.
func everything(t *testing.T, ns *netns.Handle) string {
	t.Helper()
	rules := inside.Sh(t, ns, "iptables-save; ip6tables-save")
	rules = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]`).ReplaceAllString(rules, "")
	return rules + regexp.MustCompile(` (bucketsize|initval) \S+`).ReplaceAllString(inside.Sh(t, ns, "ipset save | sort"), "")
}

// TestThereAndBack: a node with Kube-OVN's rules and sets is taken over by what the agent
// writes, and given back as it was, while its pod asks the world each 10 ms by a new
// connection, and is seen as the node each time. A rule that somebody adds meanwhile stays.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	node, pod, world := netnstest.New(t), netnstest.New(t), netnstest.New(t)
	inside.Sh(t, node, "ip link add ovn0 type veth peer name eth0 netns "+pod.ProcPath(), "ip link add out0 type veth peer name eth0 netns "+world.ProcPath(),
		"sysctl -qw net.ipv4.ip_forward=1; ip link set ovn0 up; ip link set out0 up; ip addr add 10.16.0.1/16 dev ovn0; ip addr add 192.0.2.1/24 dev out0")
	inside.Sh(t, pod, "ip link set eth0 up; ip addr add 10.16.0.5/16 dev eth0; ip route add default via 10.16.0.1")
	inside.Sh(t, world, "ip link set eth0 up; ip addr add 192.0.2.2/24 dev eth0")
	inside.Serve(t, world, "world", 8080, "192.0.2.2")
	_, err := handover.Look(t.Context(), node)
	require.ErrorIs(t, err, handover.ErrNothing)
	inside.Sh(t, node, inside.KubeOVN)
	before := everything(t, node)

	var asks sync.WaitGroup
	end, lost, answered := make(chan struct{}), 0, 0
	asks.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
			if inside.Query(pod, inside.Peer{Network: "udp", Host: "192.0.2.2", Port: 8080, Limit: 5 * time.Second}) == "world sees 192.0.2.1" {
				answered++
			} else {
				lost++
			}
		}
	})

	kept, err := handover.Look(t.Context(), node)
	require.NoError(t, err)
	text, err := json.Marshal(kept) // as it is written down
	require.NoError(t, err)
	kept = handover.Kept{}
	require.NoError(t, json.Unmarshal(text, &kept))
	f := netfilter.New(netfilter.Config{Host: node, Mode: netfilter.IPTables, Table: table})
	in := rules.Input{
		Subnets: []rules.Subnet{{Name: "web", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.16.0.0/16"), netip.MustParsePrefix("fd00:10:16::/112")}, NAT: true}},
		Nodes:   []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}, Join: "ovn0",
	}
	require.NoError(t, f.Pods([]netip.Addr{netip.MustParseAddr("10.16.0.9")}))
	for range 3 {
		require.NoError(t, f.Apply(t.Context(), in))
		require.NoError(t, f.Check(t.Context(), in))
		_, err = handover.Look(t.Context(), node)
		require.ErrorIs(t, err, handover.ErrOurs)
		require.NotEqual(t, before, everything(t, node))
		for range 2 {
			require.NoError(t, kept.Restore(t.Context(), node, table))
			require.Equal(t, before, everything(t, node))
		}
	}
	require.NoError(t, f.Apply(t.Context(), in))
	inside.Sh(t, node, "iptables -t nat -I POSTROUTING 1 -s 203.0.113.0/24 -j ACCEPT")
	require.NoError(t, kept.Restore(t.Context(), node, table))
	inside.Sh(t, node, "iptables -t nat -D POSTROUTING -s 203.0.113.0/24 -j ACCEPT")
	require.Equal(t, strings.Split(before, "\n"), strings.Split(everything(t, node), "\n"))

	// Where the agent keeps its rules by nftables, its table goes.
	f = netfilter.New(netfilter.Config{Host: node, Mode: netfilter.NFTables, Table: table})
	require.NoError(t, f.Apply(t.Context(), in))
	require.NoError(t, kept.Restore(t.Context(), node, table))
	require.NotContains(t, inside.Sh(t, node, "nft list tables"), table)
	require.Equal(t, before, everything(t, node))
	close(end)
	asks.Wait()
	require.Zero(t, lost, "of %d", lost+answered)
	require.Greater(t, answered, 20)

	// As after a reboot no table is there: chains come back with what leads to them.
	inside.Sh(t, node, "nft flush ruleset")
	require.NoError(t, kept.Restore(t.Context(), node, table))
	for _, hook := range []string{"-A PREROUTING -m comment --comment \"kube-ovn prerouting rules\" -j OVN-PREROUTING", "-A POSTROUTING -m comment --comment \"kube-ovn postrouting rules\" -j OVN-POSTROUTING"} {
		require.Contains(t, everything(t, node), hook)
	}
}
