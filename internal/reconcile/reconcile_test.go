package reconcile

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("broken")

// target is a set in memory that fails for chosen keys and notes each call.
type target struct {
	have    map[int]int
	broken  map[int]bool
	calls   []string
	touched []int
	list    error
}

func (t *target) List(context.Context) (map[int]int, error) { return maps.Clone(t.have), t.list }

func (t *target) Put(_ context.Context, k, v int) error {
	t.calls, t.touched = append(t.calls, "put"), append(t.touched, k)
	if t.broken[k] {
		return errBroken
	}
	t.have[k] = v
	return nil
}

func (t *target) Delete(_ context.Context, k int) error {
	t.calls, t.touched = append(t.calls, "delete"), append(t.touched, k)
	if t.broken[k] {
		return errBroken
	}
	delete(t.have, k)
	return nil
}

func someSet(r *rand.Rand) map[int]int {
	m := map[int]int{}
	for range r.IntN(12) {
		m[r.IntN(16)] = r.IntN(3)
	}
	return m
}

// TestOnceProperties: whatever is there, wanted and broken: keys that work end
// as wanted, broken ones stay as they were and are each in the error, equal
// ones are not touched, and no delete precedes a put.
func TestOnceProperties(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		before, want, tg := someSet(r), someSet(r), &target{broken: map[int]bool{}}
		tg.have = maps.Clone(before)
		for range r.IntN(4) {
			tg.broken[r.IntN(16)] = true
		}
		err := Once(t.Context(), tg, want)
		failures := 0
		for k := range 16 {
			was, had := before[k]
			wish, wanted := want[k]
			is, has := tg.have[k]
			differs := had != wanted || was != wish
			switch {
			case differs && tg.broken[k]:
				failures++
				require.Equal(t, had, has, "seed %d key %d", seed, k)
				require.Equal(t, was, is, "seed %d key %d", seed, k)
			default:
				require.Equal(t, wanted, has, "seed %d key %d", seed, k)
				require.Equal(t, wish, is, "seed %d key %d", seed, k)
			}
			if !differs {
				require.NotContains(t, tg.touched, k, "seed %d", seed)
			}
		}
		require.Equal(t, failures, count(err), "seed %d: %v", seed, err)
		for i := 1; i < len(tg.calls); i++ {
			require.False(t, tg.calls[i-1] == "delete" && tg.calls[i] == "put", "seed %d", seed)
		}
	}
}

// count is the number of errors joined in err.
func count(err error) int {
	if err == nil {
		return 0
	}
	return len(err.(interface{ Unwrap() []error }).Unwrap())
}

func TestOnceWithoutAListDoesNothing(t *testing.T) {
	tg := &target{have: map[int]int{1: 1}, list: errBroken}
	require.ErrorIs(t, Once(t.Context(), tg, map[int]int{2: 2}), errBroken)
	require.Empty(t, tg.calls)
}

func TestOnceStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	tg := &target{have: map[int]int{1: 1}}
	require.ErrorIs(t, Once(ctx, tg, map[int]int{2: 2}), errBroken)
	require.Empty(t, tg.calls)
}
