package testbed

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
)

const conf = `{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"fairlead"}`

// TestAgentServesPods is the way that all tests of the whole product go: node,
// agent, plugin, traffic, DEL, nothing left.
func TestAgentServesPods(t *testing.T) {
	t.Parallel()
	n := New(t)
	a := n.Agent()
	a.WaitReady()
	p, q := n.NewPod("p"), n.NewPod("other/q")
	before := n.Inventory()

	ips := p.CNI("ADD", conf).Must().IPs()
	q.CNI("ADD", conf).Must()
	require.NotEmpty(t, ips)
	addr, _, _ := strings.Cut(ips[0], "/")
	require.NoError(t, q.Ping(addr))
	require.NotEmpty(t, before.Diff(n.Inventory()))

	p.CNI("DEL", conf).Must()
	q.CNI("DEL", conf).Must()
	n.RequireNoLeaks(before)

	status, body, err := a.Get("/metrics")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "fairlead_build_info")
	a.Stop()
	n.Agent().Kill()
}

// TestAgentDiesAtCrashPoint lets the agent kill itself at every point that one
// ADD passes: the order is carried out once, and the next agent lives.
func TestAgentDiesAtCrashPoint(t *testing.T) {
	t.Parallel()
	n := New(t)
	a := n.Agent()
	a.WaitReady()
	n.CrashTrace()
	p := n.NewPod("p")
	p.CNI("ADD", conf).Must()
	points := n.CrashTrace()
	require.NotEmpty(t, points, "the agent was built without crash points")
	p.CNI("DEL", conf).Must()

	n.Crash(points[0])
	require.NotNil(t, p.CNI("ADD", conf).Err())
	require.Error(t, a.Wait())
	require.True(t, a.Killed())
	require.False(t, n.CrashPending())

	n.Agent().WaitReady()
	p.CNI("ADD", conf).Must()
	p.CNI("DEL", conf).Must()
}

func TestPluginWithoutAgent(t *testing.T) {
	t.Parallel()
	n := Bare(t)
	p := n.NewPod("p")
	p.CNI("ADD", conf).MustCode(11)
	p.CNI("DEL", conf).Must()
	require.NotEmpty(t, n.Run("ls", "/run/fairlead/intents"))
	p.CNI("VERSION", conf).Must()
	require.NotZero(t, n.CNIType("no-such-plugin", cni.Request{Command: "VERSION"}).ExitCode)
}

func TestCNITool(t *testing.T) {
	t.Parallel()
	n := Bare(t)
	p := n.NewPod("p")
	n.Run("sh", "-c", `echo '{"cniVersion":"1.1.0","name":"lo","plugins":[{"type":"loopback"}]}' > /etc/cni/net.d/1.conflist`)
	n.CNITool("/etc/cni/net.d", nil, "add", "lo", p.Netns()).Must()
	n.CNITool("/etc/cni/net.d", nil, "check", "lo", p.Netns()).Must()
	n.CNITool("/etc/cni/net.d", nil, "del", "lo", p.Netns()).Must()
	require.NotNil(t, n.CNITool("/etc/cni/net.d", nil, "add", "none", p.Netns()).Err())
}
