package central

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompare: versions of schemas are compared number by number.
func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"7.0.0", "7.0.0", 0}, {"7.0.0", "7.0.1", -1}, {"20.27.0", "7.1.0", 1}, {"7.0", "7.0.0", -1}} {
		got, err := compare(c.a, c.b)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%s and %s", c.a, c.b)
	}
	_, err := compare("7.0.0", "")
	require.ErrorContains(t, err, "no version")
}
