package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// thieves is a node with a pod that sends from an address that is not its own, one
// that it sends to, and a bystander.
type thieves struct {
	*testbed.Node
	bystander, thief, peer *testbed.Pod
	at                     string // the peer's address
}

// stolen is an address of the Subnet that no pod has.
const stolen = "10.16.99.99"

func newThieves(t *testing.T, subnet string) *thieves {
	n := &thieves{Node: startNode(t, thievesObjects(subnet, ""))}
	n.bystander, n.thief, n.peer = n.NewPod("bystander"), n.NewPod("thief"), n.NewPod("peer")
	n.bystander.CNI("ADD", ownConf).Must()
	n.thief.CNI("ADD", ownConf).Must()
	n.at = bare(n.peer.CNI("ADD", ownConf).Must().IPs()[0])
	n.thief.Run("ip", "addr", "add", stolen+"/32", "dev", "eth0")
	return n
}

// thievesObjects are a Subnet and its pods; the values are port_security of the
// Subnet and of the thief.
func thievesObjects(subnet, pod string) map[string]string {
	notes := map[string]string{}
	if pod != "" {
		notes["ovn.kubernetes.io/port_security"] = pod
	}
	var ofSubnet map[string]string
	if subnet != "" {
		ofSubnet = map[string]string{"ovn.kubernetes.io/port_security": subnet}
	}
	s := object("kubeovn.io/v1", "Subnet", "ovn-default", ofSubnet, map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"})
	return map[string]string{"all.yaml": together(s, podObject("default/thief", notes), podObject("default/bystander", nil), podObject("default/peer", nil))}
}

// steals tells whether the thief's packets pass: the peer then knows whose address it
// is.
func (n *thieves) steals() bool {
	_, _ = n.peer.Try("ip", "neigh", "flush", "dev", "eth0")
	_, _ = n.thief.Try("arping", "-c", "1", "-w", "1", "-s", stolen, "-I", "eth0", n.at)
	return n.peer.Run("ip", "neigh", "show", stolen) != ""
}

// TestPortSecurity: on the node's own switch no pod sends as another. It follows the
// annotation of a running pod, and comes back after ovs-vswitchd was killed; CHECK
// and doctor's words agree with it, and DEL leaves nothing.
func TestPortSecurity(t *testing.T) {
	t.Parallel()
	n := newThieves(t, "")
	becomes := func(what string, passes bool) {
		t.Helper()
		eventually(t, func() string {
			if n.steals() != passes {
				return fmt.Sprintf("%s: its packets pass: %t", what, !passes)
			}
			return ""
		})
	}
	becomes("at first", false)
	require.NoError(t, n.thief.Ping(n.at))
	require.Contains(t, n.Fairlead("describe", "pod", "default/thief"), "Security: on")

	ping := n.bystander.StartPing(n.at, 10*time.Millisecond)
	n.WriteObjects("all.yaml", thievesObjects("", "false")["all.yaml"])
	becomes("the pod's annotation", true)
	require.Contains(t, n.Fairlead("describe", "pod", "default/thief"), "Security: off")
	n.WriteObjects("all.yaml", thievesObjects("", "")["all.yaml"])
	becomes("no annotation", false)
	n.peer.CNI("CHECK", ownConf).Must()
	_, lost := ping.Stop()
	require.Zero(t, lost, "the bystander's")

	n.Run("ovs-ofctl", "del-flows", "br-int", "cookie=0x0fa1000000000000/0xffff000000000000")
	require.Contains(t, n.peer.CNI("CHECK", ownConf).Err().Details, "port security")
	n.OVS.KillVswitchd()
	n.OVS.StartVswitchd()
	eventually(t, func() string {
		if err := n.thief.Ping(n.at); err != nil {
			return err.Error()
		}
		return ""
	})
	becomes("a new ovs-vswitchd", false)
	eventually(t, func() string {
		if err := n.peer.CNI("CHECK", ownConf).Err(); err != nil {
			return err.Msg + err.Details
		}
		return ""
	})
	for _, p := range []*testbed.Pod{n.bystander, n.thief, n.peer} {
		p.CNI("DEL", ownConf).Must()
	}
	eventually(t, func() string { return strings.Join(n.Inventory()["ovs flows"], "\n") })
}

// TestRepairComesToTheBusy: the flows of a pod that had an operation under way when
// ovs-vswitchd came back follow when that ends, and not with the next look at
// everything, which is minutes away.
func TestRepairComesToTheBusy(t *testing.T) {
	t.Parallel()
	n, r := recorderNode(t, together(
		nadObject("slow", `{"cniVersion":"1.0.0","name":"slow","type":"slow"}`),
		podObject("busy", map[string]string{networksKey: "slow"}), podObject("idle", nil)), "slow")
	busy, idle := addChecked(n.NewPod("busy")), addChecked(n.NewPod("idle"))
	require.Equal(t, []string{"ADD slow"}, verbs(r.take()))
	// CHECK would take the pod's turn. An ovs-vswitchd that has just started may not
	// answer yet.
	flows := func(c *checked) int {
		port := n.OVS.Vsctl("get", "Interface", c.host, "ofport")
		out, _ := n.Try("ovs-ofctl", "dump-flows", "br-int", "in_port="+port)
		return strings.Count(out, "cookie=0xfa1")
	}
	require.NotZero(t, flows(busy))
	require.Equal(t, flows(busy), flows(idle))
	whole := flows(idle)

	r.order("slow", "CHECK", "hang")
	caller := startCNI(t, n, busy.Pod, "CHECK", busy.conf)
	hanging := r.await("CHECK slow")
	n.OVS.KillVswitchd()
	n.OVS.StartVswitchd()
	eventually(t, func() string {
		if flows(idle) != whole {
			return "the idle pod's flows are not back"
		}
		return ""
	})
	require.NoError(t, caller.Process.Kill())
	_ = caller.Wait() // killed
	requireGone(t, hanging)
	require.Eventually(t, func() bool { return flows(busy) == whole }, time.Minute, 20*time.Millisecond, "the busy pod's flows are not back")
}

// TestOpenSubnet: a Subnet without port security has pods that send what they like.
func TestOpenSubnet(t *testing.T) {
	t.Parallel()
	n := newThieves(t, "false")
	require.True(t, n.steals())
	require.Empty(t, n.Inventory()["ovs flows"])
}
