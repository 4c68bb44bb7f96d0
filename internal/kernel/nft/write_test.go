package nft_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

// TestReadAgainWhenChanged: nft is not asked for what is as it was read, and a change of
// anybody's has it asked.
func TestReadAgainWhenChanged(t *testing.T) {
	ns := netnstest.New(t)
	tab := nft.New(ns, "flt")
	require.NoError(t, tab.Apply(t.Context(), sample()))
	require.NoError(t, tab.Check(t.Context(), sample()))
	program, err := exec.LookPath("nft")
	require.NoError(t, err)
	t.Setenv("PATH", t.TempDir())
	require.NoError(t, tab.Check(t.Context(), sample()))
	require.NoError(t, tab.Apply(t.Context(), sample()))
	require.NoError(t, ns.Do(exec.Command(program, "add table ip other").Run))
	require.ErrorIs(t, tab.Check(t.Context(), sample()), exec.ErrNotFound)
}

// TestOneMore: of a table that nobody else touched only what differs is written, and that is
// the same as all of it written anew, whichever way it differs.
func TestOneMore(t *testing.T) {
	more, less := sample(), sample()
	for i := range more.Sets {
		if !more.Sets[i].V6 {
			more.Sets[i].Members = append(more.Sets[i].Members, prefixes("10.15.0.0/16", "192.0.2.2/32")...)
		}
	}
	less.Sets[0].Members, less.Sets[1].Members = nil, prefixes("10.16.0.0/15", "10.0.0.0/30")
	less.Sets[4].Members = prefixes("10.17.0.0/16")
	for name, next := range map[string]nft.Ruleset{"more": more, "less": less} {
		t.Run(name, func(t *testing.T) {
			ns, other := netnstest.New(t), netnstest.New(t)
			tab := nft.New(ns, "flt")
			require.NoError(t, tab.Apply(t.Context(), sample()))
			before, rules := tab.Written(), run(t, ns, "-a", "-t", "list", "chain", "inet", "flt", "postrouting")
			for _, want := range []nft.Ruleset{next, sample(), next} {
				require.NoError(t, tab.Apply(t.Context(), want))
				require.NoError(t, nft.New(ns, "flt").Check(t.Context(), want))
				require.NoError(t, tab.Check(t.Context(), want))
			}
			require.Equal(t, rules, run(t, ns, "-a", "-t", "list", "chain", "inet", "flt", "postrouting"), "handles stay")
			require.Less(t, tab.Written()-before, 3*before, "not all of it three times")
			require.NoError(t, nft.New(other, "flt").Apply(t.Context(), next))
			lines := func(ns *netns.Handle) []string { return strings.Split(run(t, ns, "-s", "list", "ruleset"), "\n") }
			require.ElementsMatch(t, lines(other), lines(ns))
			run(t, ns, "add rule inet flt hide accept")
			require.ErrorIs(t, tab.Check(t.Context(), next), core.ErrDrift)
			require.NoError(t, tab.Apply(t.Context(), sample()))
			require.NoError(t, nft.New(ns, "flt").Check(t.Context(), sample()))
			require.NoError(t, tab.Check(t.Context(), sample()))
		})
	}
}

// TestRulesOneMore: rules that come and go, wherever in a chain, leave the others theirs, with
// the chains and sets that they need.
func TestRulesOneMore(t *testing.T) {
	chains := func(names ...string) nft.Ruleset {
		out := nft.Ruleset{Sets: sample().Sets}
		for i, name := range names {
			c := nft.Chain{Name: fmt.Sprintf("c%d", i)}
			for _, r := range strings.Fields(name) {
				c.Rules = append(c.Rules, nft.Entry{Comment: r, Text: "ip saddr 192.0.2." + r + " accept"})
			}
			out.Chains = append(out.Chains, c)
		}
		return out
	}
	newSet := chains("1 2 3")
	newSet.Sets = append(newSet.Sets[1:], nft.Set{Name: "new", Members: prefixes("192.0.2.0/24")}, nft.Set{Name: "new6", V6: true, Counters: true, Members: prefixes("2001:db8::/32")})
	newSet.Chains[0].Rules = append(newSet.Chains[0].Rules, nft.Entry{Text: "ip saddr @new jump added"}, nft.Entry{Text: "counter name ip6 saddr map @new6"})
	newSet.Chains = append([]nft.Chain{{Name: "added", Rules: []nft.Entry{{Text: "accept"}}}}, newSet.Chains...)
	ns, other := netnstest.New(t), netnstest.New(t)
	tab := nft.New(ns, "flt")
	for _, want := range []nft.Ruleset{
		chains("1 2 3"), chains("1 5 2 3"), chains("0 1 5 2 6 3 4"), chains("5 2 4"), chains("4 2 5"), chains("2", "7 7 8"), chains("2 2", "7 8"), chains("", "8 9"), newSet, chains("3 2 1", ""), newSet,
	} {
		require.NoError(t, tab.Apply(t.Context(), want))
		require.NoError(t, tab.Check(t.Context(), want))
		require.NoError(t, nft.New(ns, "flt").Check(t.Context(), want))
		require.NoError(t, nft.New(other, "flt").Apply(t.Context(), want))
		chain := func(ns *netns.Handle, name string) string { return run(t, ns, "list", "chain", "inet", "flt", name) }
		for _, c := range want.Chains {
			require.Equal(t, chain(other, c.Name), chain(ns, c.Name))
		}
		lines := func(ns *netns.Handle) []string { return strings.Split(run(t, ns, "-s", "list", "ruleset"), "\n") }
		require.ElementsMatch(t, lines(other), lines(ns))
		run(t, ns, "add table ip other; delete table ip other") // so that all is read once more
		require.NoError(t, tab.Check(t.Context(), want))
	}

	handles := func() string { return run(t, ns, "-a", "list", "chain", "inet", "flt", "added") }
	before := handles()
	newSet.Chains = slices.Clone(newSet.Chains)
	newSet.Chains[1].Rules = newSet.Chains[1].Rules[1:]
	require.NoError(t, tab.Apply(t.Context(), newSet))
	require.Equal(t, before, handles(), "only what differs is written")
}
