package chassis_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/encap"
)

// TestGivenIsNotKnown: while nobody can tell which NICs were given away none is taken for the
// one that is meant.
func TestGivenIsNotKnown(t *testing.T) {
	t.Parallel()
	by := chassis.Choice{Iface: "lo,.*", Tunnel: func() string { return "" }, Given: func() ([]encap.Given, error) { return nil, syscall.EMFILE }}
	_, late, err := by.First()
	require.NoError(t, err)
	require.ErrorIs(t, late, syscall.EMFILE)
}

// TestFirstOfWhatIsYetToCome: at a start a choice that nothing meets is no error, one that
// nothing can ever meet is.
func TestFirstOfWhatIsYetToCome(t *testing.T) {
	t.Parallel()
	by := func(iface string) chassis.Choice {
		return chassis.Choice{Iface: iface, Tunnel: func() string { return "" }, Given: func() ([]encap.Given, error) { return nil, nil }}
	}
	nic, late, err := by("^none-of-this-machine$").First()
	require.NoError(t, err)
	require.ErrorIs(t, late, core.ErrNotFound)
	require.Equal(t, encap.NIC{MTU: 1500}, nic)
	_, _, err = by("eth(").First()
	require.ErrorContains(t, err, "--iface: \"eth(\" is no regular expression")
	nic, late, err = by("lo").First()
	require.NoError(t, errors.Join(late, err))
	require.Equal(t, "lo", nic.Name)
}
