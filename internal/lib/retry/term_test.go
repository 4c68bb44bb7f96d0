package retry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/retry"
)

// TestTerm: what is renewed after six days is so when they have passed, though the clock was
// set back by three weeks; that was set forward comes at once. A program that starts under a
// clock that is behind waits six days at most.
func TestTerm(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		off := time.Duration(0)
		term := retry.Term{Wall: func() time.Time { return time.Now().Add(off) }}
		due := time.Now().Add(6 * day)
		left := func() time.Duration { return term.Left("a", due, 6*day) }
		require.Equal(t, 6*day, left())
		time.Sleep(day)
		off = -21 * day
		require.Equal(t, 5*day, left())
		time.Sleep(5 * day)
		require.Zero(t, left())
		off = 21 * day
		require.Equal(t, -21*day, left())

		off, due = -21*day, time.Now().Add(6*day)
		require.Equal(t, 6*day, term.Left("b", due, 6*day), "another one")
	})
}
