package nft_test

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

const guardGroup = 0x0fa1d001

func newGuard(t *testing.T) (*nft.Guard, *netns.Handle) {
	t.Helper()
	ns := netnstest.New(t)
	g := nft.NewGuard(ns, "flg", guardGroup)
	require.ErrorIs(t, g.Check(), core.ErrDrift, "there is none yet")
	require.NoError(t, g.Apply(t.Context()))
	require.NoError(t, g.Check())
	return g, ns
}

func TestGuardIsOneRule(t *testing.T) {
	g, ns := newGuard(t)
	text := run(t, ns, "list", "table", "inet", "flg")
	require.Contains(t, text, "type filter hook prerouting priority raw; policy accept;")
	require.Contains(t, text, `iifgroup 262262785 drop comment "only the switch takes what pods send"`)

	before := run(t, ns, "-a", "list", "table", "inet", "flg") // handles count every write
	require.NoError(t, g.Apply(t.Context()))
	require.NoError(t, nft.NewGuard(ns, "flg", guardGroup).Apply(t.Context()))
	require.Equal(t, before, run(t, ns, "-a", "list", "table", "inet", "flg"))
	for range 2 {
		require.NoError(t, g.Remove())
		require.Empty(t, run(t, ns, "list", "ruleset"))
	}
	require.NoError(t, g.Apply(t.Context()))
	require.NoError(t, g.Check())
}

func TestGuardIsRepaired(t *testing.T) {
	for name, args := range map[string]string{
		"ruleset flushed": "flush ruleset",
		"table deleted":   "delete table inet flg",
		"rule deleted":    "flush chain inet flg guard",
		"rule added":      "insert rule inet flg guard accept",
		"chain added":     "add chain inet flg x",
		"other group":     "flush chain inet flg guard; add rule inet flg guard iifgroup 7 drop",
		"other verdict":   `flush chain inet flg guard; add rule inet flg guard iifgroup 0x0fa1d001 accept comment "only the switch takes what pods send"`,
		"dormant":         "add table inet flg { flags dormant; }",
		"other policy":    "chain inet flg guard { policy drop; }",
		"other hook": "flush chain inet flg guard; delete chain inet flg guard; " +
			`add chain inet flg guard { type filter hook input priority raw; }; ` +
			`add rule inet flg guard iifgroup 0x0fa1d001 drop comment "only the switch takes what pods send"`,
	} {
		t.Run(name, func(t *testing.T) {
			g, ns := newGuard(t)
			run(t, ns, "add table inet other; add chain inet other c")
			run(t, ns, args)
			require.ErrorIs(t, g.Check(), core.ErrDrift)
			require.NoError(t, g.Apply(t.Context()))
			require.NoError(t, g.Check())
		})
	}
	g, _ := newGuard(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Apply(ctx), context.Canceled)
}

// TestWatchHearsOfLosses: whichever part somebody removes, and however.
func TestWatchHearsOfLosses(t *testing.T) {
	_, ns := newGuard(t)
	lost := make(chan struct{}, 64)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	w, err := nft.NewWatch(ns, "flg", "flt")
	require.NoError(t, err)
	go func() { done <- w.Run(ctx, func() { lost <- struct{}{} }) }()
	heard := func(why string) {
		t.Helper()
		select {
		case <-lost:
		case err := <-done:
			t.Fatalf("%s: the watch ended: %v", why, err)
		case <-time.After(time.Minute):
			t.Fatal("not heard of: " + why)
		}
	}
	for _, args := range []string{
		"flush chain inet flg guard", "delete table inet flg", "add table inet flg; flush ruleset",
	} {
		run(t, ns, args)
		heard(args)
	}
	stop()
	require.NoError(t, <-done)
}

// TestWatchHearsOfWhatComes: what somebody adds to ours, or has be something else.
func TestWatchHearsOfWhatComes(t *testing.T) {
	t.Parallel()
	_, ns := newGuard(t)
	sh := func(script string) {
		t.Helper()
		require.NoError(t, ns.Do(func() error { return exec.CommandContext(t.Context(), "sh", "-ec", script).Run() }), script)
	}
	sh("nft add set inet flg s '{ type ipv4_addr; }'; iptables-nft -t nat -N OVN-POSTROUTING; iptables-nft -t nat -A OVN-POSTROUTING -j RETURN")
	for _, harm := range []string{
		"nft add rule inet flg guard accept", "nft insert rule inet flg guard accept", "nft add chain inet flg x", "nft chain inet flg guard '{ policy drop; }'",
		"nft add table inet flg '{ flags dormant; }'", "nft add element inet flg s '{ 192.0.2.1 }'", "nft add set inet flg x '{ type ipv4_addr; }'",
		"iptables-nft -t nat -I OVN-POSTROUTING 1 -j ACCEPT", "iptables-nft -t nat -A OVN-POSTROUTING -j ACCEPT", "iptables-nft -t nat -N OVN-OTHER",
	} {
		w, err := nft.NewWatch(ns, "flg")
		require.NoError(t, err)
		w.Chains("OVN-")
		sh(harm)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		heard := false
		require.NoError(t, w.Run(ctx, func() { heard = true; stop() }))
		stop()
		require.True(t, heard, harm)
	}
}
