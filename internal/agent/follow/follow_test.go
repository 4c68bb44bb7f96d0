package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// running starts f; the function it returns ends it.
func running(t *testing.T, f *Follower) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestFailuresAreRepeated: later and later, and not any more once it succeeds.
func TestFailuresAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		f := New(Config{Log: slog.New(slog.DiscardHandler), Do: func(context.Context, core.Pod) error {
			at = append(at, time.Since(began))
			if len(at) < 5 {
				return errors.New("not yet")
			}
			return nil
		}})
		stop := running(t, f)
		f.Changed(core.Pod{Namespace: "a", Name: "b", UID: "1"})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}, at)
		require.Empty(t, f.pods)
		stop()
	})
}

// TestChangeWhileRunning: a pod is never worked on twice at the same time, and a
// change is not lost. A change does not wait for what failed before it.
func TestChangeWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := core.Pod{Namespace: "a", Name: "b"}
		runs, busy := 0, 0
		f := New(Config{Log: slog.New(slog.DiscardHandler), Do: func(context.Context, core.Pod) error {
			busy++
			require.Equal(t, 1, busy)
			runs++
			time.Sleep(time.Minute)
			busy--
			return fmt.Errorf("run %d", runs)
		}})
		stop := running(t, f)
		f.Changed(p)
		time.Sleep(time.Second)
		f.Changed(p)
		f.Changed(p)
		synctest.Wait()
		require.Equal(t, 1, runs)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2, runs, "at once, for it changed")
		time.Sleep(59500 * time.Millisecond) // between its failure and the next attempt
		f.Changed(p)
		synctest.Wait()
		require.Equal(t, 3, runs)
		stop()
	})
}

// TestManyPods: all are done, a few at a time.
func TestManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen, busy, most := map[string]int{}, 0, 0
		f := New(Config{Log: slog.New(slog.DiscardHandler), Do: func(_ context.Context, p core.Pod) error {
			mu.Lock()
			seen[p.Name]++
			busy++
			most = max(most, busy)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			busy--
			mu.Unlock()
			return nil
		}})
		stop := running(t, f)
		for i := range 50 {
			f.Changed(core.Pod{Namespace: "a", Name: fmt.Sprint(i)})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, seen, 50)
		require.Equal(t, workers, most)
		stop()
	})
}
