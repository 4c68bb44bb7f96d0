package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamespaceOf(t *testing.T) {
	require.Equal(t, "d", namespaceOf(nil, "d"))
	require.Equal(t, "d", namespaceOf([]string{"a", "b"}, "d"))
	require.Equal(t, "n", namespaceOf([]string{"n/a", "n/b"}, "d"))
	require.Empty(t, namespaceOf([]string{"n/a", "b"}, "d"))
	require.Empty(t, namespaceOf([]string{"a", "n/b"}, "d"))
}
