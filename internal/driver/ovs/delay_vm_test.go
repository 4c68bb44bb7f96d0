//go:build vm

package ovs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/ovs/ovstest"
)

var fastest = regexp.MustCompile(`rtt min/avg/max/mdev = ([0-9.]+)/`)

// delayed waits until the fastest of some pings takes so many milliseconds, or 10 more.
func (n *node) delayed(from *netns.Handle, addr string, want int) {
	n.Helper()
	said := ""
	n.eventually(fmt.Sprintf("%d ms", want), func() bool {
		said, _ = ovstest.Run(from, "ping", "-n", "-c5", "-i0.2", "-w5", addr)
		found := fastest.FindStringSubmatch(said)
		if found == nil {
			return false
		}
		ms, err := strconv.ParseFloat(found[1], 64)
		return err == nil && ms >= float64(want) && ms <= float64(want+10)
	})
	n.Log(said[strings.LastIndex(said, "rtt"):])
}

// TestDelayBehindARate: an interface has a rate and a delay at once. Both change and go
// while it is in use, and are there after a restart of ovs-vswitchd and without all that the
// database knew; what somebody takes away of it is found and put back. Not parallel: it
// measures.
func TestDelayBehindARate(t *testing.T) {
	n := newNode(t)
	hub, o := n.pod(1)
	o.NIC.QoS = core.QoS{}
	pod, s := n.pod(2)
	o.NIC.OVS.Secure, s.NIC.OVS.Secure = false, false // whose flows the agent puts back after a restart
	addr, host := s.NIC.Addrs[0].Addr().String(), s.NIC.OVS.HostIf
	qdiscs := func() string { return n.sw.In("tc", "qdisc", "show", "dev", host) }
	both := func(ms int) {
		t.Helper()
		n.delayed(hub, addr, ms)
		require.Contains(t, qdiscs(), fmt.Sprintf("parent 1:1 limit 1000 delay %dms", ms))
		require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
	}
	change := func(q core.QoS) {
		t.Helper()
		nic := *s.NIC
		nic.QoS = q
		s.NIC = &nic
		_, err := n.driver.Repair(t.Context(), driver.Run{}, s)
		require.NoError(t, err)
	}
	s.NIC.QoS = core.QoS{IngressMbps: 1, IngressBurstMbit: 1, LatencyMs: 50}
	n.attach(o)
	n.attach(s)
	both(50)
	ovstest.RequireRate(t, hub, pod, addr+":7000", 1)
	change(core.QoS{IngressMbps: 2, IngressBurstMbit: 1, LatencyMs: 80})
	both(80)
	ovstest.RequireRate(t, hub, pod, addr+":7001", 2)

	n.sw.ExitSwitchd()
	n.sw.StartSwitchd()
	both(80)
	n.sw.In("tc", "qdisc", "del", "dev", host, "parent", "1:1")
	require.ErrorIs(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}), core.ErrDrift)
	found, err := n.driver.Repair(t.Context(), driver.Run{}, s)
	require.NoError(t, err)
	require.ErrorContains(t, found, "netem behind the rate")
	both(80)
	n.sw.KillServer()
	n.eventually("noticed", func() bool { return n.client.Connected() != nil })
	n.sw.CreateDB()
	n.sw.StartServer()
	n.eventually("connected", func() bool { return n.client.Connected() == nil })
	// The switch looks for its database in its own time. Where it finds the port there again it
	// has lost none, and makes no rate of one that it made before.
	n.eventually("ovs-vswitchd without ports", func() bool {
		return !strings.Contains(n.sw.In("ip", "link", "show", "dev", host), "master")
	})
	n.sw.In("tc", "qdisc", "del", "dev", host, "root") // as a reboot does
	require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{o, s}))
	both(80)
	recovered, err := n.newDriver().Recover()
	require.NoError(t, err)
	for _, r := range recovered {
		if r.Key == s.Key {
			require.Equal(t, s.NIC.QoS, r.NIC.QoS)
		}
	}

	change(core.QoS{LatencyMs: 80})
	n.eventually("a delay alone", func() bool { return strings.Contains(qdiscs(), "netem 1: root") })
	n.delayed(hub, addr, 80)
	change(core.QoS{IngressMbps: 2, LatencyMs: 50})
	both(50)
	change(core.QoS{IngressMbps: 2})
	require.NotContains(t, qdiscs(), "netem")
	n.delayed(hub, addr, 0)
	require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))
}
