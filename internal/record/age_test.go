package record_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/record"
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
}
