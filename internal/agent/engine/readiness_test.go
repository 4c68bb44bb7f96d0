package engine

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// TestReadinessInVain: the deadline is code 11 and says what is awaited; who is
// sent away for another reason is told that.
func TestReadinessInVain(t *testing.T) {
	conf := core.Conf{ReadinessFile: filepath.Join(t.TempDir(), "ready")}
	e := New(Config{})
	ctx, stop := context.WithTimeout(t.Context(), 1)
	defer stop()
	err := e.awaitReady(ctx, conf)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
	require.ErrorContains(t, err, conf.ReadinessFile)

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSuperseded)
	require.ErrorIs(t, e.awaitReady(ctx, conf), context.Canceled)
	require.NoError(t, e.awaitReady(t.Context(), core.Conf{}))
}
