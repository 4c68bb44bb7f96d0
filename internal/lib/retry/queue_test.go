package retry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/retry"
)

// running starts a queue; the function it gives ends it.
func running(t *testing.T, q *retry.Queue[string], workers int, do func(context.Context, string) error) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.Run(ctx, workers, do)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// pass has time pass, and lets everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestFailuresAreRepeated: later and later, and not any more once it succeeds. A
// key that rests is not counted.
func TestFailuresAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		q := retry.NewQueue[string](time.Second, time.Minute)
		stop := running(t, q, 1, func(context.Context, string) error {
			require.Equal(t, 1, q.Len())
			at = append(at, time.Now())
			if len(at) < 5 {
				return errors.New("not yet")
			}
			return nil
		})
		q.Add("a")
		synctest.Wait()
		require.Zero(t, q.Len())
		pass(time.Hour)
		require.Len(t, at, 5)
		for i, least := range []time.Duration{1, 2, 4, 8} {
			pause := at[i+1].Sub(at[i])
			require.GreaterOrEqual(t, pause, least*time.Second)
			require.Less(t, pause, least*time.Second*5/4)
		}
		stop()
	})
}

// TestNewsWhileWorking: a key is never worked on twice at the same time, and
// news of it is not lost, however often it came. It counts until it is done, and
// what it failed at before has it worked on no third time.
func TestNewsWhileWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs, busy atomic.Int32
		q := retry.NewQueue[string](time.Second, time.Minute)
		stop := running(t, q, 4, func(context.Context, string) error {
			runs.Add(1)
			require.EqualValues(t, 1, busy.Add(1))
			defer busy.Add(-1)
			time.Sleep(time.Minute)
			if runs.Load() == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		q.Add("a", "a")
		pass(time.Second)
		q.Add("a")
		q.Add("a")
		synctest.Wait()
		require.EqualValues(t, 1, runs.Load())
		pass(time.Minute)
		require.EqualValues(t, 2, runs.Load(), "at once, for there was news")
		require.Equal(t, 1, q.Len())
		pass(time.Hour)
		require.EqualValues(t, 2, runs.Load())
		require.Zero(t, q.Len())
		stop()
	})
}

// TestNewsEndsAPause: a key that rests is worked on at once, and its pauses begin
// anew.
func TestNewsEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		q := retry.NewQueue[string](time.Minute, time.Hour)
		stop := running(t, q, 1, func(context.Context, string) error {
			return fmt.Errorf("run %d", runs.Add(1))
		})
		q.Add("a")
		pass(10 * time.Minute)
		before := runs.Load()
		require.Greater(t, before, int32(2))
		q.Add("a")
		synctest.Wait()
		require.EqualValues(t, before+1, runs.Load())
		pass(75 * time.Second) // the first pause, with its spread
		require.EqualValues(t, before+2, runs.Load())
		stop()
	})
}

// TestManyKeys: all are done, a few at a time.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order, want []string
		busy, most := 0, 0
		q := retry.NewQueue[string](time.Second, time.Minute)
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
		}
		q.Add(want...)
		require.Equal(t, 50, q.Len())
		stop := running(t, q, 4, func(_ context.Context, k string) error {
			mu.Lock()
			order = append(order, k)
			busy++
			most = max(most, busy)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			busy--
			mu.Unlock()
			return nil
		})
		pass(time.Minute)
		require.ElementsMatch(t, want, order)
		require.Equal(t, 4, most)
		require.Zero(t, q.Len())
		stop()
	})
}

// TestEndWaits: the end waits for what is under way, begins nothing more, and
// repeats nothing.
func TestEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []string
		q := retry.NewQueue[string](time.Second, time.Minute)
		stop := running(t, q, 1, func(ctx context.Context, k string) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			done = append(done, k)
			return ctx.Err()
		})
		q.Add("a", "b")
		synctest.Wait()
		stop()
		require.Equal(t, []string{"a"}, done)
		require.Zero(t, q.Len())
		q.Add("a")
		pass(time.Hour)
		require.Equal(t, []string{"a"}, done)
		require.Zero(t, q.Len())
	})
}
