package doctor

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// wholeIDs are what ovn-controller needs to be told.
var wholeIDs = map[string]string{"system-id": "n1", "ovn-remote": "unix:/sb", "ovn-encap-type": "geneve", "ovn-encap-ip": "127.0.0.1"}

// TestChassis: what ovn-controller does not find in Open vSwitch's database is named,
// with the command that sets it on a machine alone; in a cluster the agent sets it.
func TestChassis(t *testing.T) {
	look := func(ids map[string]string, bridge, objects string) outcome {
		return checkChassis(t.Context(), &machine{cfg: Config{Bridge: bridge, OVSDB: defaultOVSDB, OVN: true, Objects: objects}, ovs: ovsFacts{ids: ids}})
	}
	const alone = "pods"
	require.Equal(t, OK, look(wholeIDs, "br-int", alone).verdict)
	require.Contains(t, look(wholeIDs, "br-x", alone).next, "external_ids:ovn-bridge=br-x")
	for key := range wholeIDs {
		ids := maps.Clone(wholeIDs)
		delete(ids, key)
		o := look(ids, "br-int", alone)
		require.Equal(t, Failed, o.verdict)
		require.Contains(t, o.reason, key)
		require.Contains(t, o.next, "ovs-vsctl set open_vswitch . external_ids:"+key+"=")
		require.Contains(t, look(ids, "br-int", "").next, "--ovn-remote")
	}
}

// TestNoOVN: a machine whose networks OVN does not carry is not asked about it.
func TestNoOVN(t *testing.T) {
	r, err := Run(t.Context(), bare(t))
	require.NoError(t, err)
	for _, f := range r.Findings {
		require.NotEqual(t, "OVN", f.Group)
	}
}

// TestDatabases: of real databases, whether northd has read the one, and whether the
// other has the chassis; a chassis that must show a certificate and has none is told.
func TestDatabases(t *testing.T) {
	n := testbed.New(t)
	central := ovn.New(t, n, "127.0.0.1")
	ovn.NewChassis(t, n, central, "n1", "127.0.0.1")
	central.Sync()
	cfg := bare(t)
	cfg.OVN, cfg.Objects, cfg.OVSDB, cfg.NB = true, t.TempDir(), n.OVS.Endpoint(), central.NB()
	m := &machine{cfg: cfg}
	m.ovs, m.ovsErr = readOVS(t.Context(), cfg.OVSDB, cfg.Bridge)
	require.Equal(t, good("n1, tunnels from 127.0.0.1"), checkChassis(t.Context(), m))
	require.Equal(t, good("%s answers; ovn-northd has read it", cfg.NB), checkNorth(t.Context(), m), "Sync waited for it")
	require.Equal(t, OK, checkNorth(t.Context(), &machine{cfg: bare(t)}).verdict, "a cluster's is no node's matter")

	south := func(remote, name string) outcome {
		m.ovs.ids["ovn-remote"], m.ovs.ids["system-id"] = remote, name
		return checkSouth(t.Context(), m)
	}
	require.Eventually(t, func() bool { return south(central.SB(), "n1").verdict == OK }, time.Minute, 10*time.Millisecond, "ovn-controller writes its chassis when it has started")
	require.Equal(t, good("%s answers; it has chassis n1", central.SB()), south(central.SB(), "n1"))
	require.Equal(t, bad(startChassis, "ovn-controller has not written chassis n2 into %s: does it run?", central.SB()), south(central.SB(), "n2"))
	require.Equal(t, startOVN, south("unix:/nowhere", "n1").next)
	require.Equal(t, startOVN, south("", "n1").next)
	require.Contains(t, south("ssl:127.0.0.1:1", "n1").reason, "has none yet")

	central.KillNorthd()
	central.Nbctl("remove", "nb_global", ".", "options", "northd_internal_version")
	require.Contains(t, checkNorth(t.Context(), m).reason, "ovn-northd has never read")
}
