package ovn_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// TestSwitch: a logical switch of two nodes carries both families over geneve,
// goes on without its central part, and all of it ends in order.
func TestSwitch(t *testing.T) {
	t.Parallel()
	under := testbed.NewUnderlay(t)
	mid, a, b := testbed.Bare(t), testbed.New(t), testbed.New(t)
	site, siteA, siteB := under.Join(mid), under.Join(a), under.Join(b)
	require.NoError(t, a.Ping(siteB.IP4))
	require.NoError(t, a.Ping(siteB.IP6))
	require.NoError(t, mid.Ping(siteA.IP6))

	central := ovn.New(t, mid, site.IP4)
	chA := ovn.NewChassis(t, a, central, "ch-a", siteA.IP4)
	chB := ovn.NewChassis(t, b, central, "ch-b", siteB.IP4)
	const macA, macB = "00:00:00:00:00:0a", "00:00:00:00:00:0b"
	central.Nbctl("ls-add", "s",
		"--", "lsp-add", "s", "pa", "--", "lsp-set-addresses", "pa", macA+" 10.16.0.11 fd16::11",
		"--", "lsp-add", "s", "pb", "--", "lsp-set-addresses", "pb", macB+" 10.16.0.12 fd16::12")
	pa, pb := a.NewPod("pa"), b.NewPod("pb")
	chA.Bind(pa, ovn.NIC{Port: "pa", MAC: macA, Addresses: []string{"10.16.0.11/24", "fd16::11/64"}})
	chB.Bind(pb, ovn.NIC{Port: "pb", MAC: macB, Addresses: []string{"10.16.0.12/24", "fd16::12/64"}})
	central.Sync()
	require.NoError(t, pa.Ping("10.16.0.12"))
	require.NoError(t, pb.Ping("fd16::11"))
	require.Equal(t, 2, central.Count("Logical_Switch_Port"))
	require.Equal(t, "ch-a", central.Sbctl("get", "Chassis", "ch-a", "name"))

	siteB.Cut()
	require.Error(t, pa.Ping("10.16.0.12"), "the packets go over the underlay")
	siteB.Mend()
	require.NoError(t, pa.Ping("10.16.0.12"))

	crashed := chA.PID()
	require.NoError(t, syscall.Kill(crashed, syscall.SIGSEGV))
	require.Eventually(t, func() bool {
		now := chA.PID()
		_, err := a.Try("ovs-appctl", "-t", fmt.Sprintf("/run/ovn/ovn-controller.%d.ctl", now), "version")
		return now != crashed && err == nil
	}, time.Minute, 50*time.Millisecond, "it is started again")
	chA.Stop()
	require.NotContains(t, central.Sbctl("show"), "ch-a")
	central.Stop()
	chB.Kill()
}
