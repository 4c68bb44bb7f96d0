//go:build vm

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestKernelDelayFollowsTheAnnotation: a running pod's delay behind its rate becomes what
// the annotation says, and is there again after a restart of the agent and a loss of Open
// vSwitch's database. (Package internal/driver/ovs measures both.)
func TestKernelDelayFollowsTheAnnotation(t *testing.T) {
	objects := func(latency string) string {
		return together(subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
			podObject("default/slow", map[string]string{"ovn.kubernetes.io/ingress_rate": "20", "ovn.kubernetes.io/latency": latency}))
	}
	n := testbed.New(t)
	n.WriteObjects("all.yaml", objects("50"))
	a := n.Agent()
	a.WaitReady()
	slow, _ := attached(n, "slow")
	host := hostIf(slow, "eth0")
	delayed := func(ms string) {
		t.Helper()
		eventually(t, func() string {
			q := n.Run("tc", "qdisc", "show", "dev", host)
			if !strings.Contains(q, "parent 1:1 limit 1000 delay "+ms+"ms") {
				return q
			}
			return ""
		})
		passesCheck(t, slow)
	}
	delayed("50")
	require.NotContains(t, n.Fairlead("describe", "pod", "default/slow"), "enforced")
	n.WriteObjects("all.yaml", objects("80"))
	delayed("80")
	a.Kill()
	n.Run("tc", "qdisc", "del", "dev", host, "parent", "1:1")
	a = n.Agent()
	a.WaitReady()
	delayed("80")
	n.OVS.LoseConfDB()
	delayed("80")
	slow.CNI("DEL", ownConf).Must()
}
