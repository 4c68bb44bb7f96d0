package netns_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// TestNewLeavesNoThreadBehind: whichever thread makes a namespace is home again. The process's first
// one cannot be ended by Go: it would keep the namespace, and be what /proc/PID tells of the process.
func TestNewLeavesNoThreadBehind(t *testing.T) {
	first := "/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/ns/net"
	home, err := os.Readlink(first)
	require.NoError(t, err)
	for range 500 {
		h, err := netns.New()
		require.NoError(t, err)
		require.NoError(t, h.Close())
		now, err := os.Readlink(first)
		require.NoError(t, err)
		require.Equal(t, home, now)
	}
}
