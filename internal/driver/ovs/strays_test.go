package ovs_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/ovs"
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

// TestResyncOfTwoSandboxes: of two sandboxes of one pod the later one has the logical port,
// also after the database was lost; and one that is not compared keeps it.
func TestResyncOfTwoSandboxes(t *testing.T) {
	n := newNode(t)
	_, older := n.pod(1)
	_, newer := n.pod(2)
	newer.NIC.IfaceID = older.NIC.IfaceID
	n.attach(older)
	n.attach(newer)
	has := func() (out []string) {
		for _, st := range n.client.PortsWith(ovs.KeyIfaceID, older.NIC.IfaceID) {
			out = append(out, st.Name)
		}
		return out
	}
	want := []string{newer.NIC.OVS.HostIf}
	require.Equal(t, want, has())
	for range 10 {
		require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{older, newer}))
		require.Equal(t, want, has())
	}
	require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{older}))
	require.Equal(t, want, has(), "it came after the records were read")
	for range 10 {
		n.sw.Vsctl("del-port", older.NIC.OVS.HostIf, "--", "del-port", newer.NIC.OVS.HostIf)
		n.eventually("seen", func() bool { return len(has()) == 0 })
		require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{older, newer}))
		require.Equal(t, want, has())
	}
	n.sw.Vsctl("del-port", older.NIC.OVS.HostIf, "--", "del-port", newer.NIC.OVS.HostIf)
	n.sw.Vsctl("add-port", "br-int", "left", "--", "set", "Interface", "left", "external_ids:iface-id="+older.NIC.IfaceID)
	n.eventually("seen", func() bool { return slices.Equal(has(), []string{"left"}) })
	require.NoError(t, n.driver.Resync(t.Context(), []core.Spec{older, newer}))
	require.Equal(t, want, has(), "nobody has a record of the other")
	require.NoError(t, n.driver.Check(t.Context(), driver.Run{}, newer, core.Link{}))
}
