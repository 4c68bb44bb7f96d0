package core_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

func TestClip(t *testing.T) {
	require.Equal(t, "äöü", core.Clip("äöü", 6))
	require.Equal(t, "ä...", core.Clip("äöüä", 6), "no half of a character")
	require.Equal(t, "...", core.Clip("äöü", 3))
}
