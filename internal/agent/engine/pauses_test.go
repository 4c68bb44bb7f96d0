package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// TestUndoneWorkRestsLongerAndLonger: what cannot be removed is tried more and
// more rarely, by a clock of the test's own, and at once when there is news.
func TestUndoneWorkRestsLongerAndLonger(t *testing.T) {
	req := add(t)
	req.Netns = netnstest.Bind(t, netnstest.New(t))
	synctest.Test(t, func(t *testing.T) {
		d := &nics{}
		e := newEngine(t, d)
		_, err := e.Add(t.Context(), req)
		require.NoError(t, err)
		e.Delivered(req.Key)
		require.NoError(t, unix.Unmount(req.Netns, unix.MNT_DETACH))
		d.detach = errors.New("not today")
		require.NoError(t, e.Del(t.Context(), req), "its namespace is gone")
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { e.Run(ctx) })
		tries := func(d0 time.Duration) int {
			before := d.tries()
			time.Sleep(d0)
			synctest.Wait()
			return d.tries() - before
		}
		first := tries(time.Minute)
		require.Positive(t, first)
		tries(time.Hour)
		each := tries(time.Hour)
		require.Positive(t, each, "it is never given up")
		require.Less(t, each, 12*first, "an hour has no more than it takes at the longest pause")

		before := d.tries()
		e.Kick()
		synctest.Wait()
		require.Greater(t, d.tries(), before, "news: at once")
		again := tries(time.Minute)
		require.Positive(t, again, "and from the shortest pause again")

		d.detach = nil
		done, err := e.Collect(ctx)
		require.NoError(t, err)
		require.Len(t, done.Removed, 1, "whoever asks waits for no pause")
		require.Zero(t, tries(time.Hour))
		require.True(t, e.pauses.Due(core.Key{Container: "c1", IfName: "eth0"}, time.Now()))
		stop()
		wg.Wait()
	})
}
