package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTraceOfANode: without OVN the node's switch is asked alone, from a pod to a pod, to
// the world by the Subnet's gateway, and where a flow drops it; what could not be
// asked is said.
func TestTraceOfANode(t *testing.T) {
	t.Parallel()
	n := newThieves(t, "")
	db := []string{"--ovsdb", n.OVS.Endpoint()}
	trace := func(words ...string) string { return n.Fairlead(append(append([]string{"trace"}, words...), db...)...) }

	out := trace("bystander", "peer", "tcp:80")
	require.Contains(t, out, "to pod default/peer ("+n.at+"), tcp port 80\n")
	require.Contains(t, out, "not asked: OVN's southbound database: this node's Open vSwitch has no external_ids:ovn-remote")
	require.Contains(t, out, "\nPASSES this node's switch; what is behind it is not known here\n")
	require.Contains(t, trace("bystander", n.at), "PASSES")
	require.Contains(t, trace("bystander", "203.0.113.9", "udp:53"), "gateway        203.0.113.9 is not in Subnet ovn-default")

	n.Run("ovs-ofctl", "add-flow", "br-int", "priority=65000,tcp,tp_dst=81,actions=drop")
	out = exitsWith(t, n.Node, 1, append([]string{"trace", "bystander", "peer", "tcp:81"}, db...)...)
	require.Contains(t, out, "DROPPED by this node's switch: tcp,tp_dst=81, priority 65000")

	require.Contains(t, exitsWith(t, n.Node, 3, append([]string{"trace", "nobody", "peer"}, db...)...), "nobody is there to trace a packet of pod default/nobody")
	require.Contains(t, exitsWith(t, n.Node, 1, append([]string{"trace", "bystander", "svc/default/web", "tcp:80"}, db...)...), "without OVN Services are kube-proxy's")
	require.Contains(t, exitsWith(t, n.Node, 2, "trace", "bystander", "peer", "sctp:80"), "is none of tcp:PORT, udp:PORT and icmp")
}
