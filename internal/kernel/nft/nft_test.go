package nft_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// run is nft itself, an independent witness.
func run(t *testing.T, ns *netns.Handle, args ...string) string {
	t.Helper()
	var out []byte
	require.NoError(t, ns.Do(func() (err error) {
		out, err = exec.Command("nft", args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("nft %v: %w: %s", args, err, out)
		}
		return err
	}))
	return string(out)
}

func sample() nft.Ruleset {
	return nft.Ruleset{
		Masquerade: prefixes("10.16.0.0/16", "10.18.0.0/24", "fd00:10:16::/64"),
		Internal:   prefixes("10.16.0.0/16", "10.17.0.0/16", "10.17.3.0/24", "192.0.2.1/32", "fd00:10:16::/64"),
		Direct: []nft.Way{
			{Link: "ovn0", From: netip.MustParsePrefix("10.17.0.0/16")}, {Link: "ovn0", From: netip.MustParsePrefix("10.16.0.0/16")},
			{Link: "web-1", From: netip.MustParsePrefix("192.0.2.1/32")}, {Link: "ovn0", From: netip.MustParsePrefix("fd00:10:16::/64")},
		},
	}
}

func TestApplyWritesTheTable(t *testing.T) {
	ns := netnstest.New(t)
	tab := nft.New(ns, "flt")
	require.NoError(t, tab.Apply(t.Context(), sample()))
	text := run(t, ns, "list", "table", "inet", "flt")
	for _, want := range []string{
		"type nat hook postrouting priority srcnat",
		"oifname . ip saddr @direct-ip ct status dnat masquerade random,fully-random",
		"oifname . ip6 saddr @direct-ip6 ct status dnat masquerade random,fully-random",
		"ip saddr @masquerade-ip ip daddr != @internal-ip masquerade random,fully-random",
		"ip6 saddr @masquerade-ip6 ip6 daddr != @internal-ip6 masquerade random,fully-random",
		"10.18.0.0/24", "fd00:10:16::/64",
	} {
		require.Contains(t, text, want)
	}
	require.NoError(t, tab.Check(t.Context(), sample()))
	got, err := tab.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, prefixes("10.16.0.0/16", "10.18.0.0/24", "fd00:10:16::/64"), got.Masquerade)
	require.Equal(t, prefixes("10.16.0.0/15", "192.0.2.1/32", "fd00:10:16::/64"), got.Internal, "merged")
	require.Equal(t, []nft.Way{
		{Link: "ovn0", From: netip.MustParsePrefix("10.16.0.0/15")}, {Link: "web-1", From: netip.MustParsePrefix("192.0.2.1/32")},
		{Link: "ovn0", From: netip.MustParsePrefix("fd00:10:16::/64")},
	}, got.Direct)
}

func TestApplyWritesOnlyOnDifference(t *testing.T) {
	ns := netnstest.New(t)
	require.NoError(t, nft.New(ns, "flt").Apply(t.Context(), sample()))
	before := run(t, ns, "-a", "list", "table", "inet", "flt") // handles count every write
	require.NoError(t, nft.New(ns, "flt").Apply(t.Context(), sample()))
	require.Equal(t, before, run(t, ns, "-a", "list", "table", "inet", "flt"))

	changed := sample()
	changed.Masquerade = changed.Masquerade[1:]
	require.ErrorIs(t, nft.New(ns, "flt").Check(t.Context(), changed), core.ErrDrift)
	require.NoError(t, nft.New(ns, "flt").Apply(t.Context(), changed))
	require.NoError(t, nft.New(ns, "flt").Check(t.Context(), changed))
}

func TestNothingToMasqueradeIsNoTable(t *testing.T) {
	ns := netnstest.New(t)
	tab := nft.New(ns, "flt")
	none := nft.Ruleset{Internal: prefixes("10.0.0.0/8")}
	require.NoError(t, tab.Apply(t.Context(), none))
	require.NoError(t, tab.Check(t.Context(), none))
	require.Empty(t, run(t, ns, "list", "ruleset"))
	require.ErrorIs(t, tab.Check(t.Context(), sample()), core.ErrDrift)
	require.NoError(t, tab.Apply(t.Context(), sample()))
	require.ErrorIs(t, tab.Check(t.Context(), none), core.ErrDrift)
	require.NoError(t, tab.Apply(t.Context(), none))
	require.Empty(t, run(t, ns, "list", "ruleset"))
	got, err := tab.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestForeignTablesAreLeftAlone(t *testing.T) {
	ns := netnstest.New(t)
	run(t, ns, "add table inet other; add chain inet other c; add rule inet other c accept")
	before := run(t, ns, "-a", "list", "table", "inet", "other")
	tab := nft.New(ns, "flt")
	require.NoError(t, tab.Apply(t.Context(), sample()))
	require.NoError(t, tab.Apply(t.Context(), nft.Ruleset{}))
	require.Equal(t, before, run(t, ns, "-a", "list", "ruleset"))
}

func TestTamperingIsSeenAndRepaired(t *testing.T) {
	forms := []string{"rules flushed", "rule added", "rule in new chain", "chain added", "set added", "rule replaced"}
	for name, args := range map[string]string{
		"table deleted":      "delete table inet flt",
		"table emptied":      "flush table inet flt",
		"rules flushed":      "flush chain inet flt postrouting",
		"rule added":         "insert rule inet flt postrouting accept",
		"rule in new chain":  "add chain inet flt x; add rule inet flt x drop",
		"element deleted":    "delete element inet flt masquerade-ip { 10.18.0.0/24 }",
		"way deleted":        "delete element inet flt direct-ip { web-1 . 192.0.2.1 }",
		"way added":          "add element inet flt direct-ip6 { web-1 . fd00:10:16::/64 }",
		"ways emptied":       "flush set inet flt direct-ip",
		"element added":      "add element inet flt masquerade-ip { 172.16.0.0/12 }",
		"v6 element deleted": "delete element inet flt masquerade-ip6 { fd00:10:16::/64 }",
		"internal widened":   "add element inet flt internal-ip { 0.0.0.0/5 }",
		"chain added":        "add chain inet flt x { type filter hook forward priority 0; policy drop; }",
		"set emptied":        "flush set inet flt internal-ip6",
		"set added":          "add set inet flt x { type ipv4_addr; }",
		"rule replaced": "flush chain inet flt postrouting; " +
			"add rule inet flt postrouting ip saddr @masquerade-ip masquerade",
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			tab := nft.New(ns, "flt")
			require.NoError(t, tab.Apply(t.Context(), sample()))
			run(t, ns, args)
			require.ErrorIs(t, tab.Check(t.Context(), sample()), core.ErrDrift)
			if _, err := tab.Read(t.Context()); slices.Contains(forms, name) {
				require.ErrorIs(t, err, core.ErrDrift, "no Ruleset says this")
			}
			require.NoError(t, tab.Apply(t.Context(), sample()))
			require.NoError(t, tab.Check(t.Context(), sample()))
		})
	}
}

func TestApplyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ns := netnstest.New(t)
	require.ErrorIs(t, nft.New(ns, "flt").Apply(ctx, sample()), context.Canceled)
	require.Empty(t, run(t, ns, "list", "ruleset"))
}
