package retry_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/retry"
)

// TestPauses grow to their limit, differ, are each thing's own, and end with news.
func TestPauses(t *testing.T) {
	p, now := retry.New[string](10*time.Second, time.Minute), time.Unix(0, 0)
	require.True(t, p.Due("a", now))
	for _, least := range []time.Duration{10, 20, 40, 60, 60} {
		least *= time.Second
		rest := p.Failed("a", now)
		require.GreaterOrEqual(t, rest, least)
		require.Less(t, rest, least+least/4)
		require.False(t, p.Due("a", now.Add(rest-1)))
		require.True(t, p.Due("b", now))
		now = now.Add(rest)
		require.True(t, p.Due("a", now))
	}
	rests := map[time.Duration]bool{}
	for i := range 50 {
		rests[p.Failed(string(rune('A'+i)), now)] = true
	}
	require.Greater(t, len(rests), 1, "what failed together is not tried together")
	p.Failed("a", now)
	p.Forget("a")
	require.True(t, p.Due("a", now))
	require.Less(t, p.Failed("a", now), 13*time.Second, "from the beginning again")
	p.Reset()
	require.True(t, p.Due("a", now))
	require.True(t, p.Due("A", now))
}

// TestSleep: an end that came before, and one that comes meanwhile, are told.
func TestSleep(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	require.True(t, retry.Sleep(ctx, 0))
	require.True(t, retry.Sleep(ctx, time.Nanosecond))
	time.AfterFunc(time.Millisecond, stop)
	require.False(t, retry.Sleep(ctx, time.Hour))
	require.False(t, retry.Sleep(ctx, -time.Second))
}

// TestLoop works at once, after the pause that it gave, and before that when it is woken.
func TestLoop(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	wake, did, pauses := make(chan struct{}), make(chan struct{}), make(chan time.Duration, 3)
	pauses <- time.Nanosecond
	pauses <- time.Hour
	pauses <- time.Hour
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		retry.Loop(ctx, wake, func(context.Context) time.Duration { did <- struct{}{}; return <-pauses })
	}()
	<-did
	<-did
	wake <- struct{}{}
	<-did
	stop()
	<-ended
}
