package nft_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/knftables"

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
		Sets: []nft.Set{
			{Name: "from", Members: prefixes("10.16.0.0/16", "10.18.0.0/24")},
			{Name: "to", Members: prefixes("10.16.0.0/16", "10.17.0.0/16", "10.17.3.0/24", "192.0.2.1/32")},
			{Name: "from6", V6: true, Members: prefixes("fd00:10:16::/64")},
			{Name: "none", V6: true},
			{Name: "counted", Counters: true, Members: prefixes("10.16.0.0/16", "10.17.0.0/16", "192.0.2.1/32")},
		},
		Chains: []nft.Chain{
			{Name: "hide", Rules: []nft.Entry{{Text: "masquerade random,fully-random"}}},
			{
				Name: "postrouting", Hook: &nft.Hook{Type: knftables.NATType, At: knftables.PostroutingHook, Priority: knftables.SNATPriority},
				Rules: []nft.Entry{
					{Comment: "led elsewhere", Text: "ip saddr @from ct status dnat jump hide"},
					{Text: "counter name ip saddr map @counted"},
					{Text: "ip saddr @from ip daddr != @to jump hide"}, {Text: "ip6 saddr @from6 ip6 daddr != @none jump hide"},
				},
			},
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
		"ip saddr @from ct status dnat jump hide comment \"led elsewhere ",
		"ip saddr @from ip daddr != @to jump hide",
		"masquerade random,fully-random",
		"10.18.0.0/24", "fd00:10:16::/64", "10.16.0.0/16, 10.17.0.0/16",
	} {
		require.Contains(t, text, want)
	}
	require.NoError(t, tab.Check(t.Context(), sample()))
}

func TestApplyWritesOnlyOnDifference(t *testing.T) {
	ns := netnstest.New(t)
	require.NoError(t, nft.New(ns, "flt").Apply(t.Context(), sample()))
	first := run(t, ns, "-a", "list", "table", "inet", "flt") // handles count every write
	tab := nft.New(ns, "flt")
	require.NoError(t, tab.Check(t.Context(), sample()))
	require.NoError(t, tab.Apply(t.Context(), sample()))
	before := run(t, ns, "-a", "list", "table", "inet", "flt")
	require.NotEqual(t, first, before, "what another one's rules do is not known")
	for range 2 {
		require.NoError(t, tab.Apply(t.Context(), sample()))
		require.Equal(t, before, run(t, ns, "-a", "list", "table", "inet", "flt"))
	}

	members, text := sample(), sample()
	members.Sets[0].Members = members.Sets[0].Members[1:]
	text.Chains[1].Rules[2].Text = "ip saddr @from jump hide"
	for _, changed := range []nft.Ruleset{members, text} {
		require.ErrorIs(t, nft.New(ns, "flt").Check(t.Context(), changed), core.ErrDrift)
		require.NoError(t, nft.New(ns, "flt").Apply(t.Context(), changed))
		require.NoError(t, nft.New(ns, "flt").Check(t.Context(), changed))
	}
}

func TestNoChainsIsNoTable(t *testing.T) {
	ns := netnstest.New(t)
	tab := nft.New(ns, "flt")
	none := nft.Ruleset{Sets: sample().Sets}
	require.NoError(t, tab.Apply(t.Context(), none))
	require.NoError(t, tab.Check(t.Context(), none))
	require.Empty(t, run(t, ns, "list", "ruleset"))
	require.ErrorIs(t, tab.Check(t.Context(), sample()), core.ErrDrift)
	require.NoError(t, tab.Apply(t.Context(), sample()))
	require.ErrorIs(t, tab.Check(t.Context(), none), core.ErrDrift)
	require.NoError(t, tab.Apply(t.Context(), none))
	require.Empty(t, run(t, ns, "list", "ruleset"))
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
	for name, args := range map[string]string{
		"table deleted":      "delete table inet flt",
		"table emptied":      "flush table inet flt",
		"rules flushed":      "flush chain inet flt postrouting",
		"rule added":         "insert rule inet flt postrouting accept",
		"rule in new chain":  "add chain inet flt x; add rule inet flt x drop",
		"element deleted":    "delete element inet flt from { 10.18.0.0/24 }",
		"element added":      "add element inet flt from { 172.16.0.0/12 }",
		"v6 element deleted": "delete element inet flt from6 { fd00:10:16::/64 }",
		"chain added":        "add chain inet flt x { type filter hook forward priority 0; policy drop; }",
		"counter's network":  "delete element inet flt counted { 10.17.0.0/16 }",
		"set emptied":        "flush set inet flt to",
		"set added":          "add set inet flt x { type ipv4_addr; }",
		"set of pairs":       "add set inet flt x { type ifname . ipv4_addr; flags interval; elements = { ovn0 . 10.16.0.0/15 }; }",
		"map of verdicts":    "add map inet flt x { type ipv4_addr : verdict; elements = { 10.16.0.1 : jump hide }; }",
		"rule replaced":      "flush chain inet flt hide; add rule inet flt hide masquerade",
		"dormant":            "add table inet flt { flags dormant; }",
		"policy":             "chain inet flt postrouting { policy drop; }",
	} {
		t.Run(name, func(t *testing.T) {
			ns := netnstest.New(t)
			tab := nft.New(ns, "flt")
			require.NoError(t, tab.Apply(t.Context(), sample()))
			run(t, ns, args)
			require.ErrorIs(t, tab.Check(t.Context(), sample()), core.ErrDrift)
			require.NoError(t, tab.Apply(t.Context(), sample()))
			require.NoError(t, tab.Check(t.Context(), sample()))
		})
	}
}

// TestOtherRuleOfOurName: a rule that bears our comment and does something else is none of
// ours, for the one who wrote ours and for one that begins anew.
func TestOtherRuleOfOurName(t *testing.T) {
	ns := netnstest.New(t)
	tab := nft.New(ns, "flt")
	require.NoError(t, tab.Apply(t.Context(), sample()))
	whole := run(t, ns, "list", "table", "inet", "flt")
	shown, err := tab.Show(t.Context(), sample())
	require.NoError(t, err)
	require.Empty(t, shown.Found)
	require.Equal(t, []nft.ShownRule{{Text: "masquerade random,fully-random", Ours: true}}, shown.Chains["hide"].Rules)
	_, comment, _ := strings.Cut(whole, "masquerade random,fully-random comment ")
	comment, _, _ = strings.Cut(comment, "\n")
	for _, who := range []*nft.Table{tab, nft.New(ns, "flt")} {
		run(t, ns, "flush chain inet flt hide; add rule inet flt hide accept comment "+comment)
		if who == tab {
			require.ErrorIs(t, who.Check(t.Context(), sample()), core.ErrDrift)
			shown, err = who.Show(t.Context(), sample())
			require.NoError(t, err)
			require.Len(t, shown.Found, 1)
			require.Equal(t, []nft.ShownRule{{Text: `[{"accept": null}]`}}, shown.Chains["hide"].Rules)
		}
		require.NoError(t, who.Apply(t.Context(), sample()))
		require.Equal(t, whole, run(t, ns, "list", "table", "inet", "flt"))
		require.NoError(t, who.Check(t.Context(), sample()))
	}
}

func TestApplyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ns := netnstest.New(t)
	require.ErrorIs(t, nft.New(ns, "flt").Apply(ctx, sample()), context.Canceled)
	require.Empty(t, run(t, ns, "list", "ruleset"))
}
