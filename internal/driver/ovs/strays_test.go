package ovs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
)

// sweep removes the strays that are not kept.
func sweep(t *testing.T, d *ovsdriver.Driver, keep ...core.Spec) {
	t.Helper()
	strays, err := d.Strays(t.Context(), keep)
	require.NoError(t, err)
	for _, s := range strays {
		require.NoError(t, s.Remove(t.Context()))
	}
}

// A new process knows nothing but what is in the kernel and the database.
func TestResyncAndSweepStrays(t *testing.T) {
	n := newNode(t)
	before := n.inventory()
	_, s := n.pod(1)
	_, o := n.pod(2)
	n.attach(s)
	n.attach(o)
	n.sw.Vsctl("add-port", "br-int", "foreign")
	require.NoError(t, n.driver.Resync(t.Context(), nil), "both were attached by this process: in flight, not lost")
	sweep(t, n.driver)
	require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, s, core.Link{}))

	again := n.newDriver()
	full := n.inventory()
	strays, err := again.Strays(t.Context(), []core.Spec{s})
	require.NoError(t, err)
	var told []string
	for _, x := range strays {
		require.Equal(t, o.Key, x.Key)
		if x.Kind != driver.StrayFlows {
			require.Equal(t, o.NIC.OVS.HostIf, x.Name)
		}
		told = append(told, x.Kind)
	}
	require.Equal(t, []string{driver.StrayPort, driver.StrayFlows, driver.StrayLink}, told)
	require.Equal(t, full, n.inventory(), "to tell removes nothing")
	require.NoError(t, again.Resync(t.Context(), []core.Spec{s}))
	sweep(t, again, s)
	require.NoError(t, again.Check(t.Context(), driver.Run{}, s, core.Link{}))
	require.ErrorIs(t, again.Check(t.Context(), driver.Run{}, o, core.Link{}), core.ErrDrift)
	require.NoError(t, again.Detach(t.Context(), driver.Run{}, s))
	require.Contains(t, n.sw.Vsctl("list-ports", "br-int"), "foreign")
	n.sw.Vsctl("del-port", "foreign")
	require.Equal(t, before, n.inventory())
}
