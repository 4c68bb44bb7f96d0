package loop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/lib/hint"
)

// TestKubeletFlags: an API server is told a port, or nothing is served to it.
func TestKubeletFlags(t *testing.T) {
	for at, port := range map[string]int32{"": 0, ":10250": 10250, "192.0.2.1:10255": 10255, "[2001:db8::1]:1": 1} {
		k := Kubelet{Address: at}
		require.NoError(t, k.complete(), at)
		require.Equal(t, port, k.port, at)
	}
	for _, k := range []Kubelet{
		{Address: "10250"}, {Address: ":0"}, {Address: ":70000"}, {Address: "192.0.2.1"}, {Address: ":https"},
		{Address: ":10250", CertFile: "a"}, {KeyFile: "a"},
	} {
		require.ErrorAs(t, k.complete(), new(hint.UsageError), "%+v", k)
	}
}
