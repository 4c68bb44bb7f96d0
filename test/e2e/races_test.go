package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// tiny is a subnet with room for one pod: its address is free again exactly
// when the pod before is gone.
func tiny() string {
	return subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/30"})
}

// gate is a CNI plugin of a network of that name: its ADD waits until the test
// opens the gate.
type gate struct {
	t   *testing.T
	dir string
}

const gateScript = `#!/bin/sh
dir=${0%/*}
[ -n "$(cat)" ] || exit 1
if [ "$CNI_COMMAND" = ADD ]; then
	echo $CNI_CONTAINERID $$ >> "$dir/entered"
	while [ ! -e "$dir/open" ]; do sleep 0.02; done
fi
echo '{"cniVersion":"1.0.0"}'
`

// gated is how many pods there are that pass the gate.
const gated = 8

// gateNode is a node whose pods gated-0, gated-1, … pass a gate last.
func gateNode(t *testing.T) (*testbed.Node, *gate, *testbed.Agent) {
	t.Helper()
	n := testbed.New(t)
	g := &gate{t, filepath.Join(n.Dir, "gate")}
	require.NoError(t, os.Mkdir(g.dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, "gate"), []byte(gateScript), 0o755))
	objects := []string{nadObject("default/gate", `{"cniVersion":"1.0.0","name":"gate","type":"gate"}`)}
	for i := range gated {
		objects = append(objects, podObject(fmt.Sprintf("default/gated-%d", i), map[string]string{networksKey: "gate"}))
	}
	n.WriteObjects("objects.yaml", together(objects...))
	a := n.Agent(g.args()...)
	a.WaitReady()
	return n, g, a
}

func (g *gate) args() []string {
	return []string{"--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", g.dir}
}

func (g *gate) open() { require.NoError(g.t, os.WriteFile(filepath.Join(g.dir, "open"), nil, 0o600)) }

// awaitEntered waits until so many ADDs stand before the gate.
func (g *gate) awaitEntered(n int) {
	g.t.Helper()
	eventually(g.t, func() string {
		b, _ := os.ReadFile(filepath.Join(g.dir, "entered"))
		if got := bytes.Count(b, []byte("\n")); got < n {
			return fmt.Sprintf("%d of %d ADDs at the gate", got, n)
		}
		return ""
	})
}

// start calls the plugin and goes on.
func start(call func() testbed.Answer) <-chan testbed.Answer {
	out := make(chan testbed.Answer, 1)
	go func() { out <- call() }()
	return out
}

// request is the call that p.CNI makes.
func request(p *testbed.Pod, op, conf string) cni.Request {
	return cni.Request{Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0",
		Args: p.Args(), Path: testbed.PluginDir, Config: []byte(conf)}
}

// TestDelWithoutAgent: DELs that found no agent are carried out once there is one.
func TestDelWithoutAgent(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", tiny())
	a := n.Agent()
	a.WaitReady()
	old, next := n.NewPod("old"), n.NewPod("next")
	before := n.Inventory()
	old.CNI("ADD", ownConf).Must()
	next.CNI("ADD", ownConf).MustCode(103)
	a.Kill()
	old.CNI("DEL", ownConf).Must()
	old.CNI("DEL", ownConf).Must()
	n.Agent()
	eventually(t, func() string { // OVSDB may be younger than the socket, and the DEL than an ADD of somebody else
		if e := next.CNI("ADD", ownConf).Err(); e != nil {
			require.Contains(t, []uint{11, 103}, e.Code, e.Msg+e.Details)
			return e.Msg
		}
		return ""
	})

	// A running agent that a plugin could not reach: the file alone.
	intent, err := json.Marshal(request(next, "DEL", ownConf))
	require.NoError(t, err)
	dir := n.Path("/run/fairlead/intents") + "/"
	require.NoError(t, os.WriteFile(dir+".1.json", intent, 0o600))
	require.NoError(t, os.Rename(dir+".1.json", dir+"1.json"))
	awaitNoIntents(t, n)
	old.CNI("ADD", ownConf).Must()
	old.CNI("CHECK", ownConf).Must()
	old.CNI("DEL", ownConf).Must()

	// What is no intent is set aside and holds nothing up. What a plugin left
	// half done long ago goes.
	for _, name := range []string{"2.json", ".3.json", ".4.json"} {
		require.NoError(t, os.WriteFile(dir+name, []byte("{"), 0o600))
	}
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(dir+".3.json", long, long))
	next.CNI("ADD", ownConf).Must()
	next.CNI("DEL", ownConf).Must()
	require.Equal(t, ".4.json\n.bad-2.json\n", n.Run("ls", "-A", "/run/fairlead/intents"))
	require.NoError(t, errors.Join(os.Remove(dir+".bad-2.json"), os.Remove(dir+".4.json")))
	n.RequireNoLeaks(before)
}

// successor makes a sandbox at the path of another whose namespace a runtime
// removed, and gives it networks.
func successor(t *testing.T, n *testbed.Node, old *testbed.Pod) *testbed.Pod {
	t.Helper()
	name := path.Base(old.Netns())
	n.Run("ip", "netns", "del", name)
	n.Run("ip", "netns", "add", name)
	p := *old // its commands run at the same path
	p.ContainerID = randomID()
	p.Run("ip", "link", "set", "lo", "up")
	p.CNI("ADD", ownConf).Must()
	return &p
}

// TestLateDelOfReusedPath: a DEL that comes when the path of its namespace
// leads to another pod touches that pod in nothing.
func TestLateDelOfReusedPath(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", sweepObjects())
	a := n.Agent()
	a.WaitReady()
	peer := n.NewPod("peer")
	ip := bare(peer.CNI("ADD", ownConf).Must().IPs()[0])
	requireIntact := func(p *testbed.Pod) {
		t.Helper()
		p.CNI("CHECK", ownConf).Must()
		require.NoError(t, p.Ping(ip))
		require.NoError(t, p.Ping("10.30.0.1"))
	}
	stranger := func(p *testbed.Pod) testbed.Answer { // a container that no journal knows
		r := request(p, "DEL", ownConf)
		r.ContainerID = strings.Repeat("7", 64)
		return n.CNI(r)
	}

	// The agent runs.
	old := n.NewPod(fullPod)
	old.CNI("ADD", ownConf).Must()
	late := *old
	next := successor(t, n, old)
	late.CNI("DEL", ownConf).Must()
	requireIntact(next)
	stranger(next).Must()
	requireIntact(next)

	// It does not: the DEL is an intent when it starts.
	late, next = *next, successor(t, n, next)
	a.Kill()
	late.CNI("DEL", ownConf).Must()
	stranger(next).Must()
	a = n.Agent()
	a.WaitReady()
	requireIntact(next)
	late.CNI("CHECK", ownConf).MustCode(3)

	// GC looks at the namespace too.
	late, next = *next, successor(t, n, next)
	n.Fairlead("gc")
	late.CNI("CHECK", ownConf).MustCode(3)
	requireIntact(next)
	next.CNI("DEL", ownConf).Must()
	requireBare(t, next)
	require.Empty(t, n.Run("sh", "-c", "ls /var/lib/cni/networks/chain | grep -v -e lock -e last || true"))
}

// TestDelInAnyOrder: DEL twice, before ADD, without namespace, arguments and
// keys, and after the namespace.
func TestDelInAnyOrder(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", sweepObjects())
	n.Agent().WaitReady()
	warm := n.NewPod(fullPod)
	warm.CNI("ADD", ownConf).Must()
	warm.CNI("DEL", ownConf).Must()
	requireBare(t, warm)
	warm.Delete()
	before := n.Inventory()

	p := n.NewPod(fullPod)
	p.CNI("DEL", ownConf).Must()
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	requireBare(t, p)

	// A DEL that tells nothing but the key.
	for _, conf := range []string{`{"cniVersion":"1.1.0","name":"k8s-pod-network","type":"fairlead"}`, `{"type":"fairlead"}`} {
		p.CNI("ADD", ownConf).Must()
		n.CNI(cni.Request{Command: "DEL", ContainerID: p.ContainerID, IfName: "eth0", Config: []byte(conf)}).Must()
		requireBare(t, p)
	}

	// The namespace goes first.
	p.CNI("ADD", ownConf).Must()
	p.Delete()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// TestDelDuringAdd: the DEL ends the ADD and leaves nothing of it.
func TestDelDuringAdd(t *testing.T) {
	t.Parallel()
	n, g, _ := gateNode(t)
	p := n.NewPod("gated-0")
	before := n.Inventory()
	add := start(func() testbed.Answer { return p.CNI("ADD", ownConf) })
	g.awaitEntered(1)
	p.CNI("DEL", ownConf).Must()
	(<-add).MustCode(11)
	requireBare(t, p)
	n.RequireNoLeaks(before)
	require.Empty(t, gateProcesses(n, g))

	// Both sides go on as if nothing had been.
	g.open()
	p.CNI("ADD", ownConf).Must()
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// gateProcesses lists what still runs of a gate.
func gateProcesses(n *testbed.Node, g *gate) string {
	out, _ := n.Try("pgrep", "-f", filepath.Join(g.dir, "gate")) // none is an error
	return out
}

// TestRule5_DuplicateAdd is refused and leaves the first attachment as it is, also
// after a restart of the agent.
func TestRule5_DuplicateAdd(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	p := n.NewPod("p")
	empty := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	before := n.Inventory()
	p.CNI("ADD", ownConf).MustCode(105)
	n.RequireNoLeaks(before)
	a.Stop()
	n.Agent().WaitReady()
	p.CNI("ADD", ownConf).MustCode(105)
	n.RequireNoLeaks(before)
	p.CNI("CHECK", ownConf).Must()

	// A second attachment of the same container stands beside the first.
	p.CNIInterface("ADD", "eth1", ownConf).Must()
	p.CNIInterface("DEL", "eth1", ownConf).Must()
	n.RequireNoLeaks(before)
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(empty)
}

// TestAgentKilledDuringDelegate: a foreign plugin that was running when the
// agent died is ended before its work is undone.
func TestAgentKilledDuringDelegate(t *testing.T) {
	t.Parallel()
	n, g, a := gateNode(t)
	p := n.NewPod("gated-0")
	before := n.Inventory()
	add := start(func() testbed.Answer { return p.CNI("ADD", ownConf) })
	g.awaitEntered(1)
	a.Kill()
	(<-add).MustCode(11)
	require.NotEmpty(t, gateProcesses(n, g))
	a = n.Agent(g.args()...)
	eventually(t, func() string { return gateProcesses(n, g) }) // it serves meanwhile
	a.WaitReady()
	n.RequireNoLeaks(before)
	g.open()
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// TestCallerVanishes: the runtime kills a plugin that waits for its ADD.
func TestCallerVanishes(t *testing.T) {
	t.Parallel()
	n, g, _ := gateNode(t)
	p := n.NewPod("gated-0")
	before := n.Inventory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := request(p, "ADD", ownConf)
	plugin := n.Cmd(ctx, testbed.PluginDir+"/fairlead")
	plugin.Stdin = bytes.NewReader(r.Config)
	plugin.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+r.ContainerID, "CNI_NETNS="+r.Netns,
		"CNI_IFNAME=eth0", "CNI_ARGS="+r.Args, "CNI_PATH="+r.Path)
	require.NoError(t, plugin.Start())
	g.awaitEntered(1)
	cancel()
	require.Error(t, plugin.Wait())
	n.RequireNoLeaks(before) // nobody asked for it
	require.Empty(t, gateProcesses(n, g))
	g.open()
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// unacknowledged makes a call as the plugin does and hangs up when the answer
// is there.
func unacknowledged(t *testing.T, n *testbed.Node, r cni.Request) {
	t.Helper()
	body, err := json.Marshal(r)
	require.NoError(t, err)
	c, err := net.Dial("unix", n.Path(cni.DefaultSocket))
	require.NoError(t, err)
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	resp, err := client.Post("http://agent"+cni.PathCNI, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close()) // with it the connection
	var got cni.Response
	require.NoError(t, json.Unmarshal(answer, &got), "%s", answer)
	require.False(t, got.Failed, "%s", got.Output)
}

// TestUndelivered: an answer that nobody acknowledged is undone and redone by
// the next ADD, whether the agent lives or not; a DEL ends it as any other.
func TestUndelivered(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", tiny())
	a := n.Agent()
	a.WaitReady()
	p := n.NewPod("p")
	before := n.Inventory()
	for _, restarted := range []bool{false, true} {
		unacknowledged(t, n, request(p, "ADD", ownConf))
		if restarted {
			a.Kill()
			a = n.Agent()
			a.WaitReady()
		}
		p.CNI("ADD", ownConf).Must()
		p.CNI("ADD", ownConf).MustCode(105)
		p.CNI("CHECK", ownConf).Must()
		p.CNI("DEL", ownConf).Must()
		n.RequireNoLeaks(before)
	}
	unacknowledged(t, n, request(p, "ADD", ownConf))
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}

// TestStopDuringAdds: an agent that is told to stop finishes what it began and
// delivers the answers; pods keep their networks.
func TestStopDuringAdds(t *testing.T) {
	t.Parallel()
	n, g, a := gateNode(t)
	peer := n.NewPod("peer")
	ip := bare(peer.CNI("ADD", ownConf).Must().IPs()[0])
	before := n.Inventory()
	var pods []*testbed.Pod
	var adds []<-chan testbed.Answer
	for i := range gated {
		p := n.NewPod(fmt.Sprintf("gated-%d", i))
		pods = append(pods, p)
		adds = append(adds, start(func() testbed.Answer { return p.CNI("ADD", ownConf) }))
	}
	g.awaitEntered(gated)
	var wg sync.WaitGroup
	wg.Go(a.Stop)
	eventually(t, func() string { // it has heard the signal
		c, err := net.Dial("unix", n.Path(cni.DefaultSocket))
		if err != nil {
			return ""
		}
		_ = c.Close()
		return "the agent still accepts calls"
	})
	g.open()
	for _, add := range adds {
		(<-add).Must()
	}
	wg.Wait()
	for _, p := range pods {
		require.NoError(t, p.Ping(ip))
	}
	n.Agent(g.args()...).WaitReady()
	for _, p := range pods {
		p.CNI("CHECK", ownConf).Must()
		p.CNI("ADD", ownConf).MustCode(105) // it was delivered
		p.CNI("DEL", ownConf).Must()
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestSocketRemoved: an agent whose socket was removed, alone or with its
// folder, makes it again.
func TestSocketRemoved(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	p := n.NewPod("p")
	before := n.Inventory()
	n.Run("rm", cni.DefaultSocket)
	eventually(t, func() string {
		if _, err := os.Stat(n.Path(cni.DefaultSocket)); err != nil {
			return err.Error()
		}
		return ""
	})
	p.CNI("ADD", ownConf).Must()
	require.Equal(t, "600 srw-------\n", n.Run("stat", "-c", "%a %A", cni.DefaultSocket))

	n.Run("sh", "-c", "mv /run/fairlead /run/gone && rm -r /run/gone")
	status, body, err := a.Get("/livez") // a probe finds it and has it repaired
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, body)
	require.Equal(t, "700\n", n.Run("stat", "-c", "%a", filepath.Dir(cni.DefaultSocket)))
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(before)
}
