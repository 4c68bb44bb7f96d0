package keylock

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneTurnPerName(t *testing.T) {
	q := New()
	unlock, err := q.Lock(t.Context(), "a")
	require.NoError(t, err)
	_, ok := q.TryLock("a")
	require.False(t, ok)
	other, ok := q.TryLock("b")
	require.True(t, ok)
	other()
	over, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no patience")
	cancel(why)
	_, err = q.Lock(over, "a")
	require.ErrorIs(t, err, why)
	unlock()
	unlock, ok = q.TryLock("a")
	require.True(t, ok)
	unlock()
	require.Empty(t, q.slots, "nothing is kept of who is not there")
}

// TestHold: whoever holds comes after the one that has the turn, and before the
// next one.
func TestHold(t *testing.T) {
	var q Queue
	first := q.Hold("a")
	q.Hold("b")()
	order, done := make(chan string, 2), make(chan struct{})
	go func() {
		defer close(done)
		defer q.Hold("a")()
		order <- "second"
	}()
	order <- "first"
	first()
	<-done
	require.Equal(t, "first", <-order)
	require.Equal(t, "second", <-order)
	require.Empty(t, q.slots)
}

func TestSupersede(t *testing.T) {
	q := New()
	cause := errors.New("somebody more important")
	q.Supersede("a", cause) // nobody there
	unlock, err := q.Lock(t.Context(), "a")
	require.NoError(t, err)
	q.Supersede("a", cause) // does not give way
	ctx, cancel := context.WithCancelCause(t.Context())
	q.GivesWay("a", cancel)
	q.Supersede("a", cause)
	require.ErrorIs(t, context.Cause(ctx), cause)
	q.GivesWay("a", nil)
	unlock()
}
