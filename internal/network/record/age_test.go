package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/record"
)

// The journal's order is that of container ids, which are random: what counts
// of two sandboxes of one pod must not depend on it.
func TestByAge(t *testing.T) {
	at := func(id string, sec int64) core.Record {
		return core.Record{Key: core.Key{Container: id}, Created: time.Unix(sec, 0)}
	}
	in := []core.Record{at("a", 3), at("b", 1), at("c", 2)}
	require.Equal(t, []core.Record{at("b", 1), at("c", 2), at("a", 3)}, record.ByAge(in))
	require.Equal(t, "a", in[0].Key.Container, "the journal's own order stays")

	// The clock on the wall is set back now and then, that of the boot is not.
	early, late := at("early", 9), at("late", 1)
	early.Boottime, late.Boottime = time.Second, 2*time.Second
	require.Equal(t, []core.Record{early, late}, record.ByAge([]core.Record{late, early}))
}
