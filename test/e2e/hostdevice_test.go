package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// kill is where the agent dies.
type kill struct{ op, point string }

// killedAt has the agent die at a point of an operation of the pod, and starts the next one.
// For a DEL the pod is made before.
func killedAt(t *testing.T, agent *testbed.Agent, n *testbed.Node, p *testbed.Pod, k kill) *testbed.Agent {
	t.Helper()
	if k.op == "DEL" {
		p.CNI("ADD", ownConf).Must()
	}
	n.Crash(k.point)
	answer := p.CNI(k.op, ownConf)
	require.True(t, k.op == "DEL" || answer.Err() != nil, "%v", k) // the plugin keeps a DEL for the next agent
	require.Error(t, agent.Wait(), "%v: it never came there", k)
	next := n.Agent()
	next.WaitReady()
	return next
}

const hostDevicePods = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: bank, name: db-net, labels: {net.fairlead.io/pod-network: "true"}}
data:
  a: '{"interface":"net1","network":"bank/db","ip":"10.9.0.3/29","mac":"02:0a:09:00:00:11"}'
  b: '{"interface":"net1","network":"bank/db","ip":"10.9.0.4/29"}'
`

// TestHostDeviceSurvives: a device that a pod had is on the machine as it was, wherever the
// agent was killed, and the next pod gets it.
func TestHostDeviceSurvives(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("declared.yaml", hostDevicePods)
	n.WriteObjects("nad.yaml", nadObject("bank/db", `{"cniVersion":"1.0.0","type":"host-device","device":"d0"}`))
	n.Run("ip", "link", "add", "d0", "mtu", "1450", "type", "veth", "peer", "name", "d1")
	n.Run("ip", "link", "set", "d0", "alias", "to the left rack")
	agent := n.Agent()
	agent.WaitReady()
	a, b := n.NewPod("bank/a"), n.NewPod("bank/b")
	state := func() string { // but its index, which the kernel may choose anew
		_, all, _ := strings.Cut(n.Run("ip", "-d", "link", "show", "dev", "d0"), ": ")
		return all
	}
	before, device := n.Inventory(), state()
	for _, k := range []kill{
		{"ADD", "hostdevice.marked"}, {"ADD", "hostdevice.moved"}, {"ADD", "hostdevice.leased"}, {"ADD", "hostdevice.configured"},
		{"DEL", "hostdevice.renamed"}, {"DEL", "hostdevice.back"}, {"DEL", "hostdevice.clean"}, {"DEL", "hostdevice.released"},
	} {
		agent = killedAt(t, agent, n, a, k)
		a.CNI("DEL", ownConf).Must()
		require.Equal(t, device, state(), "%v", k)
		b.CNI("ADD", ownConf).Must()
		b.CNI("CHECK", ownConf).Must()
		a.CNI("DEL", ownConf).Must() // late
		require.Equal(t, []string{"10.9.0.4/29"}, addresses(t, b, "net1"))
		b.CNI("DEL", ownConf).Must()
		require.Equal(t, device, state(), "%v", k)
		n.RequireNoLeaks(before)
	}
}
