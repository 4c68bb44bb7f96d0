package pleg

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDiffer(t *testing.T) {
	k := func(id string) Key { return Key{UID: "u", ID: id} }
	got := differ(
		map[Key]State{k("same"): Running, k("dies"): Running, k("goes"): Running, k("tidied"): Exited, k("lost"): Running},
		map[Key]State{k("same"): Running, k("dies"): Exited, k("new"): Running, k("short"): Exited, k("made"): Unknown, k("lost"): Unknown})
	slices.SortFunc(got, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Kind, b.Kind))
	})
	require.Equal(t, []Event{
		{"u", Died, "dies"}, {"u", Died, "goes"}, {"u", Removed, "goes"}, {"u", Changed, "lost"},
		{"u", Started, "new"}, {"u", Died, "short"}, {"u", Removed, "tidied"},
	}, got)
}

// runtime answers as often as answers says, then with an error, and then not at all.
type runtime struct{ answers, errors int }

func (r *runtime) States(ctx context.Context) (map[Key]State, error) {
	switch {
	case r.answers > 0:
		r.answers--
		return map[Key]State{}, nil
	case r.errors > 0:
		r.errors--
		return nil, errors.New("no such socket")
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestStale: who never listed is not alive, nor who has not for too long, whether
// the runtime refuses or hangs.
func TestStale(t *testing.T) {
	for name, r := range map[string]*runtime{"refuses": {answers: 5, errors: 1000}, "hangs": {answers: 5}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(r, time.Second, slog.New(slog.DiscardHandler))
				require.EqualError(t, p.Stale(), "the runtime has not answered yet")
				ctx, end := context.WithCancel(t.Context())
				go p.Run(ctx)
				synctest.Wait()
				require.NoError(t, p.Stale())
				time.Sleep(4*time.Second + threshold - 1)
				require.NoError(t, p.Stale())
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				require.ErrorContains(t, p.Stale(), "last listed 3m0s ago")
				if r.errors > 0 {
					require.ErrorContains(t, p.Stale(), "no such socket")
				}
				end()
				synctest.Wait()
			})
		})
	}
}
