package upkeep

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDelays: a kernel that has no netem is asked again, since a module may come, and one
// that has is asked no more.
func TestDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, none := 0, errors.New("no module")
		has := Delays(func() error { asked++; return none }, slog.New(slog.DiscardHandler))
		require.ErrorIs(t, has(), none)
		require.ErrorIs(t, has(), none)
		require.Equal(t, 1, asked)
		none = nil
		time.Sleep(asksAgain)
		require.NoError(t, has())
		time.Sleep(asksAgain)
		require.NoError(t, has())
		require.Equal(t, 2, asked)
	})
}
