package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// sink is a CNI plugin of a network of that name: its DEL waits for ever while
// there is a file "hang" beside it, and fails while there is a file "refuse".
type sink struct {
	t   *testing.T
	dir string
}

const sinkScript = `#!/bin/sh
dir=${0%/*}
[ -n "$(cat)" ] || exit 1
if [ "$CNI_COMMAND" = DEL ]; then
	echo $CNI_CONTAINERID >> "$dir/entered"
	while [ -e "$dir/hang" ]; do sleep 0.05; done
	if [ -e "$dir/refuse" ]; then
		echo '{"cniVersion":"1.0.0","code":999,"msg":"not now"}'
		exit 1
	fi
fi
echo '{"cniVersion":"1.0.0"}'
`

// sinkNode is a node whose pods sunk-0, sunk-1, ... have the sink's network too.
func sinkNode(t *testing.T, pods int) (*testbed.Node, *sink, *testbed.Agent) {
	t.Helper()
	n := testbed.New(t)
	s := &sink{t, filepath.Join(n.Dir, "sink")}
	require.NoError(t, os.Mkdir(s.dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sink"), []byte(sinkScript), 0o755))
	objects := []string{nadObject("default/sink", `{"cniVersion":"1.0.0","name":"sink","type":"sink"}`)}
	for i := range pods {
		objects = append(objects, podObject(fmt.Sprintf("default/sunk-%d", i), map[string]string{networksKey: "sink"}))
	}
	n.WriteObjects("objects.yaml", together(objects...))
	return n, s, s.agent(n)
}

func (s *sink) agent(n *testbed.Node) *testbed.Agent {
	s.t.Helper()
	a := n.Agent("--cni-bin-dir", testbed.PluginDir, "--cni-bin-dir", s.dir, "--compat-socket", kubeOVNSocket)
	a.WaitReady()
	return a
}

func (s *sink) set(name string) {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), nil, 0o600))
}
func (s *sink) unset(name string) { require.NoError(s.t, os.Remove(filepath.Join(s.dir, name))) }

// entered is how many DELs have begun.
func (s *sink) entered() int {
	b, _ := os.ReadFile(filepath.Join(s.dir, "entered"))
	return bytes.Count(b, []byte("\n"))
}

func (s *sink) awaitEntered(want int) {
	s.t.Helper()
	eventually(s.t, func() string {
		if got := s.entered(); got < want {
			return fmt.Sprintf("%d of %d DELs have begun", got, want)
		}
		return ""
	})
}

func awaitNoIntents(t *testing.T, n *testbed.Node) {
	t.Helper()
	eventually(t, func() string { return strings.TrimSpace(n.Run("ls", "/run/fairlead/intents")) })
}

// TestIntentThatHangsHoldsNobody: more DELs hang than are carried out at once,
// and ADDs of other containers are answered meanwhile, on either wire. An ADD of
// a container whose DEL hangs waits for that.
func TestIntentThatHangsHoldsNobody(t *testing.T) {
	t.Parallel()
	const drainers = 16
	n, s, a := sinkNode(t, drainers+1)
	other, legacy := n.NewPod("other"), n.NewPod("legacy")
	before := n.Inventory()
	var pods []*testbed.Pod
	for i := range drainers + 1 {
		p := n.NewPod(fmt.Sprintf("sunk-%d", i))
		p.CNI("ADD", ownConf).Must()
		pods = append(pods, p)
	}
	a.Kill()
	s.set("hang")
	var left sync.WaitGroup
	for _, p := range pods {
		left.Go(func() { p.CNI("DEL", ownConf) })
	}
	left.Wait()
	s.agent(n)
	s.awaitEntered(drainers)

	other.CNI("ADD", ownConf).Must()
	addKubeOVN(t, n, kubeOVNRequest(legacy, nil))
	require.Equal(t, drainers, s.entered(), "no DEL has come to an end: the next one would have begun")

	again := start(func() testbed.Answer { return pods[0].CNI("ADD", ownConf) })
	other.CNI("CHECK", ownConf).Must()
	select {
	case answer := <-again:
		t.Fatalf("an ADD went before the DEL of its own container: %s", answer.Stdout)
	default:
	}
	s.unset("hang")
	(<-again).Must()
	pods[0].CNI("CHECK", ownConf).Must()
	awaitNoIntents(t, n)
	pods[0].CNI("CHECK", ownConf).Must()

	for _, p := range []*testbed.Pod{pods[0], other, legacy} {
		p.CNI("DEL", ownConf).Must()
	}
	for _, p := range pods {
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// TestIntentIsTriedAgain: a DEL that failed is carried out later, though nothing
// calls the agent.
func TestIntentIsTriedAgain(t *testing.T) {
	t.Parallel()
	n, s, a := sinkNode(t, 1)
	p := n.NewPod("sunk-0")
	p.CNI("ADD", ownConf).Must()
	a.Kill()
	s.set("refuse")
	p.CNI("DEL", ownConf).Must()
	s.agent(n)
	s.awaitEntered(1)
	s.unset("refuse")
	awaitNoIntents(t, n)
	requireBare(t, p)
}

// TestLateIntent: a DEL that was left before the attachment of its name was made
// is dropped, whatever the clocks on the wall say; one that was left after it is
// carried out.
func TestLateIntent(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	const past, future = -time.Hour, time.Hour
	for name, c := range map[string]struct {
		boot  string
		since time.Duration // of the boot's clock, from now on; 0: it is not told
		file  time.Duration // of the file's time, from now on
		stays bool
	}{
		"earlier":                              {n.BootID(), past, past, true},
		"earlier, and the clock was set back":  {n.BootID(), past, future, true},
		"later, and the clock was set forward": {n.BootID(), time.Millisecond, past, false},
		"of another boot":                      {"11111111-2222-3333-4444-555555555555", future, future, true},
		"earlier, of an older plugin":          {"", 0, past, true},
		"later, of an older plugin":            {"", 0, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := n.NewPod("late")
			p.CNI("ADD", ownConf).Must()
			r := request(p, "DEL", ownConf)
			if r.BootID = c.boot; c.since != 0 {
				r.Boottime = max(boottime(t)+int64(c.since), 1)
			}
			leave(t, n, r, time.Now().Add(c.file))
			awaitNoIntents(t, n)
			if c.stays {
				p.CNI("CHECK", ownConf).Must()
				p.CNI("DEL", ownConf).Must()
			}
			requireBare(t, p)
		})
	}
}

// boottime is the kernel's CLOCK_BOOTTIME in ns.
func boottime(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	require.NoError(t, unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts))
	return ts.Nano()
}

// leave writes an intent as a plugin does, with a time of its file.
func leave(t *testing.T, n *testbed.Node, r cni.Request, when time.Time) {
	t.Helper()
	body, err := json.Marshal(r)
	require.NoError(t, err)
	dir := n.Path("/run/fairlead/intents")
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".left.json"), body, 0o600))
	require.NoError(t, os.Chtimes(filepath.Join(dir, ".left.json"), when, when))
	require.NoError(t, os.Rename(filepath.Join(dir, ".left.json"), filepath.Join(dir, "left.json")))
}

// TestStartWaitsForNoDelegate: a node that boots has the records of 120 pods whose
// plugin hangs. What is our own of them is gone before the agent serves; it serves
// at once, and no other pod waits for a plugin, of which only a few run at a time.
func TestStartWaitsForNoDelegate(t *testing.T) {
	t.Parallel()
	const count = 120
	n, s, _ := sinkNode(t, count)
	slots := make(chan struct{}, 4)
	answers := make([]testbed.Answer, count)
	var added sync.WaitGroup
	for i := range count {
		p := n.NewPod(fmt.Sprintf("sunk-%d", i))
		slots <- struct{}{}
		added.Go(func() {
			defer func() { <-slots }()
			answers[i] = p.CNI("ADD", ownConf)
		})
	}
	added.Wait()
	for _, answer := range answers {
		answer.Must()
	}
	s.set("hang")
	n.Reboot()
	s.agent(n)
	s.awaitEntered(1)
	ours := n.OVS.Vsctl("--bare", "--columns=name", "find", "Interface", "external_ids:vendor=kube-ovn", "external_ids:container_id!=''")
	require.Empty(t, ours, "ports of the pods of before")
	other := n.NewPod("other")
	n.CNI(cni.Request{Command: "STATUS", Config: []byte(ownConf)}).Must()
	other.CNI("ADD", ownConf).Must()
	other.CNI("CHECK", ownConf).Must()
	other.CNI("DEL", ownConf).Must()
	require.Less(t, s.entered(), count, "the recovery of plugins has not been waited for")
	require.Contains(t, n.Fairlead("get", "pods", "--node-local", "-o", "json"), "sunk-")

	s.unset("hang")
	eventually(t, func() string {
		if out := n.Fairlead("get", "pods", "--node-local", "-o", "json"); strings.Contains(out, "sunk-") {
			return fmt.Sprintf("%d records are left", strings.Count(out, `"container"`))
		}
		return ""
	})
}
