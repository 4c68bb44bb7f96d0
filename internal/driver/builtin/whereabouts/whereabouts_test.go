package whereabouts_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/builtin/whereabouts"
)

// TestOnlyTheEnd: what the program began ends without it; nothing begins.
func TestOnlyTheEnd(t *testing.T) {
	p, call := whereabouts.Plugin{}, driver.PluginCall{Conf: []byte(`{"ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}`)}
	require.NoError(t, p.Accepts(call.Conf))
	require.NoError(t, p.Check(t.Context(), call))
	require.NoError(t, p.Del(t.Context(), call))
	require.NoError(t, p.GC(t.Context(), call))
	_, err := p.Add(t.Context(), call)
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
}
