package shaper_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/shaper"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// TestShaper: setting it twice is setting it once, another rate replaces the
// first, and what is cleared leaves the port and others alone.
func TestShaper(t *testing.T) {
	t.Parallel()
	ns := netnstest.New(t)
	inside.Sh(t, ns, "ip link add p1 mtu 1400 up type veth peer name far1; ip link add p2 up type veth peer name far2")
	s := shaper.New(ns)
	require.NoError(t, s.Set("a", "p1", netplugin.Rates{}))
	require.NotContains(t, inside.Sh(t, ns, "tc qdisc show"), "tbf")
	require.ErrorContains(t, s.Set("a", "nowhere", netplugin.Rates{Ingress: 1000}), "nowhere")
	for range 2 {
		require.NoError(t, s.Set("a", "p1", netplugin.Rates{Ingress: 1_000_000, Egress: 2_000_000}))
	}
	require.NoError(t, s.Set("b", "p2", netplugin.Rates{Egress: 1000}))
	require.Equal(t, 1, strings.Count(inside.Sh(t, ns, "tc filter show dev p1 ingress"), "Egress Redirect"))
	require.Contains(t, inside.Sh(t, ns, "ip link show type ifb"), "mtu 1400")
	require.NoError(t, s.Set("a", "p1", netplugin.Rates{Ingress: 1_000_000_000_000_000, Egress: 3_000_000}))
	require.Equal(t, 1, strings.Count(inside.Sh(t, ns, "tc filter show dev p1 ingress"), "Egress Redirect"))
	qdiscs := inside.Sh(t, ns, "tc qdisc show")
	require.Contains(t, qdiscs, "rate 3Mbit")
	require.Contains(t, qdiscs, "rate 1Kbit")
	require.NotContains(t, qdiscs, "rate 2Mbit")
	require.Contains(t, inside.Sh(t, ns, "tc qdisc show dev p1 root"), "rate 1000Tbit")

	for range 2 {
		require.NoError(t, s.Clear("a"))
	}
	require.Equal(t, 1, strings.Count(inside.Sh(t, ns, "ip -o link show type ifb"), "flifb"))
	require.NoError(t, s.Keep(map[string]bool{"b": true}))
	require.Equal(t, 1, strings.Count(inside.Sh(t, ns, "ip -o link show type ifb"), "flifb"))
	inside.Sh(t, ns, "ip link add flother up type ifb")
	require.NoError(t, s.Keep(nil))
	require.NotContains(t, inside.Sh(t, ns, "ip -o link show type ifb"), "flifb")
	require.Contains(t, inside.Sh(t, ns, "ip -o link show type ifb"), "flother", "somebody else's")
}
