package podruntime

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestThrough: what has begun outlasts who wanted it, but not for ever; what has
// not begun does not begin.
func TestThrough(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got, err := through(ctx, time.Hour, func(during context.Context) (int, error) {
		cancel()
		return 7, during.Err()
	})
	require.NoError(t, err)
	require.Equal(t, 7, got)

	_, err = through(ctx, time.Hour, func(context.Context) (int, error) {
		t.Error("begun")
		return 0, nil
	})
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithCancel(t.Context())
	_, err = through(ctx, time.Millisecond, func(during context.Context) (int, error) {
		cancel()
		<-during.Done()
		return 0, context.Cause(during)
	})
	require.ErrorIs(t, err, context.Canceled)
}
