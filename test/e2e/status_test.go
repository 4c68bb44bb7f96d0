package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

func call(n *testbed.Node, command string) testbed.Answer {
	return n.CNI(cni.Request{Command: command, Config: []byte(ownConf)})
}

func becomesReady(t *testing.T, n *testbed.Node) {
	t.Helper()
	eventually(t, func() string {
		if e := call(n, "STATUS").Err(); e != nil {
			return e.Msg + e.Details
		}
		return ""
	})
}

// passesCheck waits until CHECK finds all of a pod as it was made.
func passesCheck(t *testing.T, p *testbed.Pod) {
	t.Helper()
	eventually(t, func() string {
		if e := p.CNI("CHECK", ownConf).Err(); e != nil {
			return e.Msg + e.Details
		}
		return ""
	})
}

// TestStatusTellsTheTruth: 50 with the reason until OVSDB is there and the
// bridge works, 0 from then on, 50 again when it goes.
func TestStatusTellsTheTruth(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.OVS.KillVswitchd()
	n.OVS.KillServer()
	a := n.Agent()
	e := call(n, "STATUS").MustCode(50)
	require.Contains(t, e.Details, "OVSDB")
	status, body, err := a.Get("/readyz")
	require.NoError(t, err)
	require.Equal(t, 503, status)
	require.Contains(t, body, "OVSDB")
	require.Contains(t, exitsWith(t, n, 1, "status"), "✗ ovsdb")
	p := n.NewPod("p")
	e = p.CNI("ADD", ownConf).MustCode(11)
	require.Contains(t, e.Msg+e.Details, "OVSDB")
	p.CNI("DEL", ownConf).Must()

	n.OVS.StartServer() // the database alone: a bridge that nobody runs
	eventually(t, func() string {
		if e := call(n, "STATUS").Err(); e == nil || !strings.Contains(e.Details, "ovs-vswitchd") {
			return "STATUS does not name ovs-vswitchd"
		}
		return ""
	})
	call(n, "STATUS").MustCode(50)
	n.OVS.StartVswitchd()
	becomesReady(t, n)
	p.CNI("ADD", ownConf).Must()
	a.WaitReady()
	for _, c := range asked[agent.Status](t, n, "status").Conditions {
		require.True(t, c.OK, "%+v", c)
	}

	n.OVS.KillVswitchd() // the database goes on saying that all is well
	require.Contains(t, call(n, "STATUS").MustCode(50).Details, "ovs-vswitchd does not")
	status, body, err = a.Get("/readyz")
	require.NoError(t, err)
	require.Equal(t, 503, status)
	require.Contains(t, body, "ovs-vswitchd")
	require.Contains(t, exitsWith(t, n, 1, "status"), "✗ bridge")
	n.OVS.StartVswitchd()
	becomesReady(t, n)

	n.OVS.KillServer()
	eventually(t, func() string {
		if call(n, "STATUS").Err() == nil {
			return "ready without a database"
		}
		return ""
	})
	call(n, "STATUS").MustCode(50)
	n.OVS.StartServer()
	becomesReady(t, n)
	passesCheck(t, p) // ready is for the next pod: p's flows went with ovs-vswitchd
}

// TestLostBridgeComesBack: somebody deletes br-int; the agent makes it again
// with all ports on it.
func TestLostBridgeComesBack(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p, pa := attached(n, "p")
	q, _ := attached(n, "q")
	reaches(t, q, pa...)
	n.OVS.Vsctl("del-br", "br-int")
	passesCheck(t, p)
	passesCheck(t, q)
	becomesReady(t, n)
	reaches(t, q, append(pa, "10.16.0.1")...)
}

// TestPluginAlone: what each command says when no agent is there, and that a
// DEL left behind is carried out by the next agent.
func TestPluginAlone(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	awaitGateways(t, n)
	p := n.NewPod("p")
	before := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	a.Stop()

	require.Contains(t, n.NewPod("q").CNI("ADD", ownConf).MustCode(11).Msg, cni.DefaultSocket)
	p.CNI("CHECK", ownConf).MustCode(11)
	n.CNI(cni.Request{Command: "GC", Config: []byte(strings.TrimSuffix(ownConf, "}") + `,"cni.dev/valid-attachments":[]}`)}).MustCode(11)
	call(n, "STATUS").MustCode(50)
	call(n, "VERSION").Must()
	require.Contains(t, exitsWith(t, n, 4, "get", "pods"), "next:")
	for range 2 {
		p.CNI("DEL", ownConf).Must()
	}
	require.NotEmpty(t, n.Run("ls", "/run/fairlead/intents"))

	n.Agent().WaitReady()
	awaitNoIntents(t, n)
	require.Empty(t, asked[agent.PodList](t, n, "get", "pods").Items)
	q := n.NewPod("q2")
	q.CNI("ADD", ownConf).Must()
	q.CNI("DEL", ownConf).Must()
	for _, name := range n.NetnsNames() {
		if !strings.Contains(name, p.ContainerID[:6]) {
			n.Run("ip", "netns", "del", name)
		}
	}
	n.RequireNoLeaks(before)
}

// TestIntentThatIsJunk is set aside and holds up nobody.
func TestIntentThatIsJunk(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	n.Run("sh", "-c", `cd /run/fairlead/intents; echo junk > a.tmp; mv a.tmp a
		echo '{"command":"ADD","containerID":"x","ifName":"eth0"}' > .b; mv .b b
		echo '{"command":"DEL","containerID":"../x","ifName":"eth0"}' > .c; mv .c c`)
	awaitNoIntents(t, n)
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
}
