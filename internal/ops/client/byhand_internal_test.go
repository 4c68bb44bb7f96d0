package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsableContainers(t *testing.T) {
	for _, tc := range []struct {
		ifName string
		c      Container
		want   string
	}{
		{"eth0", Container{Mode: "none", Running: true}, ""},
		{"net1", Container{Mode: "bridge", Running: true}, ""},
		{"eth0", Container{Mode: "none"}, "not running"},
		{"eth0", Container{Mode: "host", Running: true}, "host's network"},
		{"eth0", Container{Mode: "bridge", Running: true}, `Docker's network "bridge"`},
	} {
		err := (&ByHand{Container: "web", IfName: tc.ifName}).usable(tc.c)
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
		var h interface{ Hint() string }
		require.ErrorAs(t, err, &h)
		require.NotEmpty(t, h.Hint())
	}
}
