package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNewestGenerationCounts: in whichever order a pool's slices are met, what
// only an older generation has is not there.
func TestNewestGenerationCounts(t *testing.T) {
	t.Parallel()
	of := func(generation int64, device string) slice {
		return slice{driver: "d", pool: "p", generation: generation, devices: map[string]map[string]string{device: {"a": "1"}}}
	}
	for range 100 {
		all := map[id]slice{{Name: "new"}: of(2, "here"), {Name: "old"}: of(1, "gone"), {Name: "older"}: of(0, "gone")}
		attributes, ok := find(all, "d", "p", "gone")
		require.False(t, ok)
		require.Empty(t, attributes)
		_, ok = find(all, "d", "p", "here")
		require.True(t, ok)
	}
}
