package ipset

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatchGoesOn: a look that fails is a doubt, told once, and what went meanwhile is
// seen when looks succeed again.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var told []int     // the looks after which somebody was told ...
	var names []string // ... and of which sets
	looks, away := 0, errors.New("no descriptor")
	watch(ctx, time.Millisecond, func(name string) { told, names = append(told, looks), append(names, name) }, func() (map[string]uint32, error) {
		looks++
		switch looks {
		case 1, 2:
			return map[string]uint32{"ovn40subnets": 2}, nil
		case 3, 4:
			return nil, away
		case 5:
			return map[string]uint32{"ovn40subnets": 1}, nil
		}
		stop()
		return map[string]uint32{"ovn40subnets": 1}, nil
	})
	require.Equal(t, []int{3, 5}, told)
	require.Equal(t, []string{"", "ovn40subnets"}, names)
}
