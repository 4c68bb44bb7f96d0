package inside

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Open gives a network namespace by its path, until the test ends.
func Open(t testing.TB, path string) *netns.Handle {
	t.Helper()
	ns, err := netns.Open(path)
	require.NoError(t, err, path)
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}
