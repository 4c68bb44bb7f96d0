package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// faultNode is a node with a talking pair of pods, one of them with two
// interfaces, QoS and a foreign chain.
type faultNode struct {
	*testbed.Node
	t      *testing.T
	agent  *testbed.Agent
	p, q   *testbed.Pod
	ip     string // of q
	before testbed.Inventory
}

func newFaultNode(t *testing.T) *faultNode {
	t.Helper()
	f := &faultNode{Node: testbed.New(t), t: t}
	f.WriteObjects("objects.yaml", sweepObjects())
	f.restart()
	warm := f.NewPod(fullPod)
	warm.CNI("ADD", ownConf).Must()
	warm.CNI("DEL", ownConf).Must()
	requireBare(t, warm)
	warm.Delete()
	f.before = f.Inventory()
	f.p, f.q = f.NewPod(fullPod), f.NewPod("q")
	f.p.CNI("ADD", ownConf).Must()
	f.ip = bare(f.q.CNI("ADD", ownConf).Must().IPs()[0])
	return f
}

func (f *faultNode) restart() {
	f.t.Helper()
	f.agent = f.Agent()
	f.agent.WaitReady()
}

// requireWhole: both pods, their gateways and the way between them are as they
// should be, and the switch takes another pod.
func (f *faultNode) requireWhole() {
	f.t.Helper()
	passesCheck(f.t, f.p) // the ports' flows come a moment after the ports
	passesCheck(f.t, f.q)
	require.NoError(f.t, f.p.Ping(f.ip))
	require.NoError(f.t, f.p.Ping("10.20.0.1"))
	require.NoError(f.t, f.q.Ping("10.16.0.1"))
	r := f.NewPod("r")
	r.CNI("ADD", ownConf).Must()
	require.NoError(f.t, r.Ping(f.ip))
	r.CNI("DEL", ownConf).Must()
	r.Delete()
}

// end takes the pods away: nothing else may be left.
func (f *faultNode) end() {
	f.t.Helper()
	for _, p := range []*testbed.Pod{f.p, f.q} {
		p.CNI("DEL", ownConf).Must()
		requireBare(f.t, p)
		p.Delete()
	}
	f.RequireNoLeaks(f.before)
}

// ports are those of the bridge, gateways included.
func (f *faultNode) ports() []string {
	out, err := f.Try("ovs-vsctl", "--timeout=5", "--no-wait", "list-ports", "br-int")
	if err != nil {
		return nil // no bridge, or no database
	}
	return strings.Fields(out)
}

// awaitPorts waits until the bridge has again what it had.
func (f *faultNode) awaitPorts(want []string) {
	f.t.Helper()
	eventually(f.t, func() string {
		if got := f.ports(); len(got) != len(want) {
			return fmt.Sprintf("ports %v, not %v", got, want)
		}
		return ""
	})
	require.ElementsMatch(f.t, want, f.ports())
}

// TestOVSDBServerKilled: the pods do not notice that ovsdb-server dies and comes
// back, and the agent goes on with it.
func TestOVSDBServerKilled(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	// Rarely enough that the sockets hold what the userspace datapath does not
	// forward while ovs-vswitchd waits for the database (testbed, KillServer).
	ping := f.p.StartPing(f.ip, 50*time.Millisecond)
	for range 2 {
		f.OVS.KillServer()
		f.OVS.StartServer()
		f.OVS.Barrier()
		ping.Answers(20)
	}
	_, lost := ping.Stop()
	require.Zero(t, lost)
	f.agent.WaitReady()
	f.requireWhole()
	f.end()
}

// connected is when the agent's replica of OVSDB was last in sync, by its log.
func (f *faultNode) connected() time.Time {
	f.t.Helper()
	log, err := os.ReadFile(f.agent.Log)
	require.NoError(f.t, err)
	found := regexp.MustCompile(`"time":"([^"]+)".*"msg":"OVSDB connected`).FindAllSubmatch(log, -1)
	require.NotEmpty(f.t, found)
	at, err := time.Parse(time.RFC3339Nano, string(found[len(found)-1][1]))
	require.NoError(f.t, err)
	return at
}

// said are the lines of the agent's log that have all of these words.
func (f *faultNode) said(words ...string) (lines []string) {
	f.t.Helper()
	log, err := os.ReadFile(f.agent.Log)
	require.NoError(f.t, err)
	for line := range strings.Lines(string(log)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestConfDBLost: ports of pods and gateways come back by themselves.
func TestConfDBLost(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	in := f.NewPod(internalPod)
	in.CNI("ADD", ownConf).Must()
	ports := f.ports()
	ping := f.p.StartPing(f.ip, 10*time.Millisecond)
	f.OVS.KillServer()
	require.NoError(t, os.Remove(filepath.Join(f.Dir, "disk/ovs/conf.db")))
	f.OVS.StartServer()
	f.awaitPorts(ports)
	t.Logf("%d ports are back %s after the agent was connected", len(ports), time.Since(f.connected()).Round(time.Millisecond))
	f.OVS.Barrier()
	ping.Answers(20)
	answered, lost := ping.Stop()
	t.Logf("%d pings answered, %d lost while there was no bridge", answered, lost)
	f.agent.WaitReady()
	f.requireWhole()
	require.NoError(t, in.Ping(f.ip))
	passesCheck(t, in)
	in.CNI("DEL", ownConf).Must()
	in.Delete()
	f.end()
}

// TestConfDBLostWithoutVswitchd: whoever comes last, the ports come back: here
// the agent and the empty database are there before ovs-vswitchd.
func TestConfDBLostWithoutVswitchd(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	ports := f.ports()
	f.agent.Kill()
	f.OVS.KillVswitchd()
	f.OVS.KillServer()
	require.NoError(t, os.Remove(filepath.Join(f.Dir, "disk/ovs/conf.db")))
	f.OVS.StartServer()
	f.agent = f.Agent() // serves: DEL and STATUS must work
	require.Error(t, f.p.Ping(f.ip))
	f.OVS.StartVswitchd()
	f.awaitPorts(ports)
	f.agent.WaitReady()
	f.requireWhole()
	f.end()
}

// TestVswitchdKilled: its devices go with it; they and the gateways come back.
func TestVswitchdKilled(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	in := f.NewPod(internalPod)
	in.CNI("ADD", ownConf).Must()
	ping := f.p.StartPing(f.ip, 10*time.Millisecond)
	f.OVS.KillVswitchd()
	f.OVS.StartVswitchd()
	ping.Answers(20)
	ping.Stop()
	f.agent.WaitReady()
	eventually(t, func() string {
		if err := in.Ping(f.ip); err != nil {
			return err.Error()
		}
		return ""
	})
	f.requireWhole()
	passesCheck(t, in)
	in.CNI("DEL", ownConf).Must()
	in.Delete()
	f.end()
}

// status is what the operator sees; the command fails while the node is not
// ready.
func (f *faultNode) status() string {
	out, err := f.TryFairlead("status")
	if err != nil {
		return err.Error()
	}
	return out
}

// TestWithoutOVSDB: every verb tells the truth, and what cannot be done now is
// done when OVSDB is back.
func TestWithoutOVSDB(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	gone, late := f.NewPod("gone"), f.NewPod("late")
	gone.CNI("ADD", ownConf).Must()
	f.OVS.KillServer()
	names := func(e *cni.Error) {
		t.Helper()
		require.Contains(t, e.Msg+" "+e.Details, "OVSDB")
	}
	names(f.CNI(cni.Request{Command: "STATUS", Config: []byte(ownConf)}).MustCode(50))
	names(late.CNI("ADD", ownConf).MustCode(11))
	e := f.q.CNI("CHECK", ownConf).Err()
	require.NotNil(t, e, "CHECK cannot know")
	names(e)
	e = f.q.CNI("DEL", ownConf).Err()
	require.NotNil(t, e, "its namespace lives and its port is there")
	names(e)
	gone.Delete()
	gone.CNI("DEL", ownConf).Must()
	late.CNI("DEL", ownConf).Must() // nothing was ever done for it
	require.Contains(t, f.status(), gone.ContainerID)

	// A restart does not forget it, nor take long to serve.
	f.agent.Kill()
	f.agent = f.Agent()
	names(late.CNI("ADD", ownConf).MustCode(11))
	require.Contains(t, f.status(), gone.ContainerID)
	gone.CNI("DEL", ownConf).Must()
	for i := range 3 { // after each change it is tried again at once, and fails
		f.WriteObjects("again.yaml", podObject(fmt.Sprintf("default/again%d", i), nil))
		eventually(t, func() string {
			if len(f.said("objects loaded")) < i+2 {
				return "the objects are not loaded"
			}
			return ""
		})
	}

	f.OVS.StartServer()
	eventually(t, func() string {
		if s := f.status(); strings.Contains(s, gone.ContainerID) {
			return s
		}
		return ""
	})
	f.agent.WaitReady()
	for _, part := range []string{`"part":"switch"`, `"part":"gateways"`} {
		require.Len(t, f.said("node not in order yet", part, "unavailable"), 1, "once when it goes, not at each attempt")
		require.NotEmpty(t, f.said("node in order again", part))
	}
	late.CNI("ADD", ownConf).Must()
	require.NoError(t, late.Ping("10.16.0.1"))
	late.CNI("DEL", ownConf).Must()
	late.Delete()
	f.end()
}

// TestSwitchComesLater: on a node that boots, an agent that is there before Open
// vSwitch serves, and an ADD that needs the switch waits for it.
func TestSwitchComesLater(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.OVS.KillVswitchd()
	n.OVS.KillServer()
	a := n.Agent()
	p := n.NewPod("p")
	p.CNI("DEL", ownConf).Must()
	added := make(chan testbed.Answer, 1)
	go func() { added <- p.CNI("ADD", ownConf) }()
	eventually(t, func() string {
		if _, body, err := a.Get("/metrics"); err != nil || !strings.Contains(body, "fairlead_cni_operations_in_flight 1") {
			return "no ADD is under way"
		}
		return ""
	})
	n.OVS.StartServer()
	n.OVS.StartVswitchd()
	answer := <-added
	answer.Must()
	require.NoError(t, p.Ping("10.16.0.1"))
	p.CNI("DEL", ownConf).Must()
}

// TestJournalLost: whatever happens to the journal's file, live pods are not
// disturbed and known again, dead ones are removed, and addresses stay unique.
func TestJournalLost(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"garbage":   "head -c 65536 /dev/urandom | dd of=agent.db conv=notrunc status=none",
		"truncated": "truncate -s 5000 agent.db",
		"empty":     "truncate -s 0 agent.db",
		"deleted":   "rm agent.db",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaultNode(t)
			dead := f.NewPod("dead")
			dead.CNI("ADD", ownConf).Must()
			ping := f.q.StartPing("10.16.0.1", 10*time.Millisecond)
			f.agent.Kill()
			f.Run("sh", "-c", "cd /var/lib/fairlead && "+damage)
			dead.Delete()
			// Twice dead: the agent dies while it reads OVSDB back.
			f.Crash("journal.begun")
			f.agent = f.StartAgent()
			require.Error(t, f.agent.Wait())
			require.True(t, f.agent.Killed())
			f.restart()
			f.requireWhole()
			// Only what OVSDB knows is known: a second ADD is refused.
			f.q.CNI("ADD", ownConf).MustCode(105)
			ping.Answers(20)
			_, lost := ping.Stop()
			require.Zero(t, lost)
			if name != "deleted" {
				require.NotEmpty(t, f.Run("sh", "-c", "ls /var/lib/fairlead/agent.db.corrupt-*"))
				f.Run("sh", "-c", "rm /var/lib/fairlead/agent.db.corrupt-*")
			}
			f.end()
		})
	}
}

// TestJournalLostWithoutOVSDB: nothing is swept before what OVSDB knows was
// read, whenever that is.
func TestJournalLostWithoutOVSDB(t *testing.T) {
	t.Parallel()
	f := newFaultNode(t)
	ping := f.q.StartPing("10.16.0.1", 50*time.Millisecond)
	f.agent.Kill()
	f.OVS.KillServer()
	f.Run("rm", "/var/lib/fairlead/agent.db")
	f.agent = f.Agent()
	late := f.NewPod("late")
	late.CNI("ADD", ownConf).MustCode(11)
	f.OVS.StartServer()
	f.OVS.Barrier()
	f.agent.WaitReady()
	f.requireWhole()
	ping.Answers(20)
	ping.Stop()
	late.CNI("ADD", ownConf).Must()
	late.CNI("DEL", ownConf).Must()
	late.Delete()
	f.end()
}

// TestFirstAddCut: an agent that dies in the first ADD of its life has an empty
// journal, which is not a lost one: the ADD is undone, not adopted.
func TestFirstAddCut(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	p := n.NewPod("p")
	before := n.Inventory()
	// The port is made while the intent is being written: at this point it is
	// there, and the record may not be.
	for _, point := range []string{"add.begun", "ovs.veth", "ovs.txn", "ovs.pod"} {
		n.Crash(point)
		require.NotNil(t, p.CNI("ADD", ownConf).Err())
		require.Error(t, a.Wait())
		a = n.Agent()
		a.WaitReady()
		p.CNI("CHECK", ownConf).MustCode(3)
		n.RequireNoLeaks(before)
		p.CNI("ADD", ownConf).Must()
		p.CNI("DEL", ownConf).Must()
	}
	n.RequireNoLeaks(before)
}

// TestDiskFull: ADD is refused with everything undone, DEL works, and with room
// again so does ADD.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", sweepObjects())
	n.Run("mount", "-t", "tmpfs", "-o", "size=4m", "full", "/var/lib/fairlead")
	a := n.Agent()
	a.WaitReady()
	warm := n.NewPod(fullPod)
	warm.CNI("ADD", ownConf).Must()
	warm.CNI("DEL", ownConf).Must()
	requireBare(t, warm)
	p, q := n.NewPod(fullPod), n.NewPod("q")
	empty := n.Inventory()
	p.CNI("ADD", ownConf).Must()
	a.Kill()
	n.Run("sh", "-c", "cd /var/lib/fairlead && rm ballast && dd if=/dev/zero of=fill bs=4k status=none || true")
	a = n.Agent()
	before := n.Inventory()
	q.CNI("ADD", ownConf).MustCode(5)
	n.RequireNoLeaks(before)
	e := n.CNI(cni.Request{Command: "STATUS", Config: []byte(ownConf)}).MustCode(50)
	require.Contains(t, e.Details, "disk is full")
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	requireBare(t, p)
	n.Run("rm", "/var/lib/fairlead/fill")
	a.WaitReady()
	q.CNI("ADD", ownConf).Must()
	q.CNI("DEL", ownConf).Must()
	n.RequireNoLeaks(empty)
	a.Stop()
	n.Run("umount", "/var/lib/fairlead")
}

// TestSecondAgent refuses to share a state folder, and says with whom.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	second := n.StartAgent("--socket", "/run/second/agent.sock", "--http", "127.0.0.1:10461")
	require.Error(t, second.Wait())
	require.False(t, second.Killed())
	log, err := os.ReadFile(second.Log)
	require.NoError(t, err)
	require.Contains(t, string(log), "another agent holds the journal")
	require.Contains(t, string(log), fmt.Sprintf("process %d", a.PID()))
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
}

// TestSecondAgentOnTheBridge: one with a journal and a socket of its own knows
// nothing of the first one's pods and subnets, and must not come to sweep them.
func TestSecondAgentOnTheBridge(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", sweepObjects())
	n.Agent().WaitReady()
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	before := n.Inventory()
	n.Run("mkdir", "/run/empty")
	for _, c := range []struct{ why, socket, bridge string }{
		{"another agent keeps it", "/run/second/agent.sock", "br-int"},
		{"another process serves it", "/run/fairlead/agent.sock", "br-other"},
	} {
		second := n.StartAgent("--socket", c.socket, "--http", "127.0.0.1:10461", "--state-dir", "/run/second/state",
			"--objects", "/run/empty", "--bridge", c.bridge)
		require.Error(t, second.Wait())
		log, err := os.ReadFile(second.Log)
		require.NoError(t, err)
		require.Contains(t, string(log), c.why)
	}
	require.Empty(t, before.Diff(n.Inventory()))
	p.CNI("CHECK", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
}

// TestReboot: all of the old boot goes, and pods get their addresses back by
// their names.
func TestReboot(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	fixed := map[string]string{"ovn.kubernetes.io/ip_address": "10.16.0.77", "ovn.kubernetes.io/mac_address": "02:16:00:00:00:77"}
	n.WriteObjects("objects.yaml", together(sweepObjects(), podObject("default/fixed", fixed)))
	n.Agent().WaitReady()
	names := []string{"a", "b", fullPod, "fixed"}
	had := map[string][]string{}
	for _, name := range names {
		p := n.NewPod(name)
		had[name] = p.CNI("ADD", ownConf).Must().IPs()
		if name == "a" { // it ended long before
			p.CNI("DEL", ownConf).Must()
		}
	}
	n.Reboot()
	n.Agent().WaitReady()
	require.Empty(t, n.Run("sh", "-c", "ip -o link show type veth"))
	eventually(t, func() string { // delegates are undone beside serving
		return n.Run("sh", "-c", "ls /var/lib/cni/networks/chain | grep -v -e lock -e last || true")
	})
	require.NotContains(t, n.OVS.Vsctl("list", "Interface"), "container_id")
	n.NewPod("stranger").CNI("ADD", ownConf).Must()
	// Not in the order in which they came first.
	for _, name := range []string{"fixed", fullPod, "b", "a"} {
		p := n.NewPod(name)
		require.Equal(t, had[name], p.CNI("ADD", ownConf).Must().IPs(), name)
		p.CNI("CHECK", ownConf).Must()
	}
	require.Equal(t, "10.16.0.77/16", had["fixed"][0])
}
