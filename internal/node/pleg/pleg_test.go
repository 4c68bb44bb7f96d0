package pleg

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffer(t *testing.T) {
	k := func(id string) Key { return Key{UID: "u", ID: id} }
	got := differ(
		map[Key]State{k("same"): Running, k("dies"): Running, k("goes"): Running, k("tidied"): Exited, k("lost"): Running},
		map[Key]State{k("same"): Running, k("dies"): Exited, k("new"): Running, k("short"): Exited, k("made"): Unknown, k("lost"): Unknown})
	slices.SortFunc(got, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Kind, b.Kind))
	})
	require.Equal(t, []Event{
		{"u", Died, "dies"}, {"u", Died, "goes"}, {"u", Removed, "goes"}, {"u", Changed, "lost"},
		{"u", Started, "new"}, {"u", Died, "short"}, {"u", Removed, "tidied"},
	}, got)
}
