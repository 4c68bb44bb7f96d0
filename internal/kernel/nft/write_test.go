package nft_test

import (
	"os/exec"
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
