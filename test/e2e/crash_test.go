package e2e

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
)

// The pods whose life is cut at every crash point: one with an interface of
// each kind (eth0 and net1 on Open vSwitch, net1 with a port of the node, net2 and the default route from a chain of foreign
// plugins with a device; net3, where it is asked for, of a foreign plugin with our addresses), and one whose
// eth0 is an internal port of the switch.
const (
	fullPod     = "full"
	internalPod = "internal"
)

func sweepObjects(more ...string) string {
	return together(
		subnetObject("ovn-default", map[string]any{
			"default": true, "cidrBlock": "10.16.0.0/16,fd00:10:16::/112", "natOutgoing": true,
		}),
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/24", "provider": "storage.default.ovn"}),
		nadObject("default/storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.default.ovn","capabilities":{"portMappings":true}}`),
		nadOf("default/chain", nicResource, `{"cniVersion":"1.0.0","name":"chain","plugins":[
			{"type":"bridge","bridge":"br-chain","isGateway":true,"ipam":{"type":"host-local","subnet":"10.30.0.0/24"}},
			{"type":"portmap","capabilities":{"portMappings":true}}]}`),
		podObject("default/"+fullPod, map[string]string{
			networksKey: "[" + strings.Join(append([]string{`{"name":"storage","portMappings":[{"hostPort":8443,"containerPort":443,"protocol":"tcp"}]}`, `{"name":"chain","deviceID":"dev0","default-route":["10.30.0.1"],
				"portMappings":[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]}`}, more...), ",") + "]",
			"ovn.kubernetes.io/ingress_rate": "30",
			"ovn.kubernetes.io/egress_rate":  "10",
		}),
		podObject("default/"+internalPod, map[string]string{"ovn.kubernetes.io/pod_nic_type": "internal-port"}),
	)
}

// A cut is one run of the sweep: the agent dies at point of op on pod, and then
// how follows.
type cut struct {
	pod   string
	op    string // ADD, DEL, GC, CHECK, or the start after an ADD or a DEL that was cut
	point string
	how   string
}

func (c cut) String() string { return strings.Join([]string{c.pod, c.op, c.point, c.how}, " ") }

// What may follow a crash.
const (
	thenRetry   = "retry"   // the runtime calls again
	thenDel     = "DEL"     // the runtime gives up: DEL while the agent is down
	thenRestart = "restart" // nobody calls: the agent is on its own
	thenReboot  = "reboot"
)

// Starts are cut too: while a begun ADD is rolled back, and while a DEL that
// was left for the agent is carried out.
const (
	startAfterAdd = "start after ADD"
	startAfterDel = "start after DEL"
)

// TestCrashSweep kills the agent at every crash point of every operation and
// lets a retry, a DEL, a restart or a reboot follow: nothing may be left over
// and a retry must work. The points are found by tracing, so that a new one is
// swept as soon as something passes it; one that nothing passes is a failure.
func TestCrashSweep(t *testing.T) {
	t.Parallel()
	passed := discover(t)
	requireAllPassed(t, passed)
	var live, boots []cut
	for _, c := range cuts(passed) {
		if c.how == thenReboot {
			boots = append(boots, c)
		} else {
			live = append(live, c)
		}
	}
	const restarters = 3 // which end at about the time at which the one with reboots does
	restarts, reboots := queue(live), queue(boots)
	died := make(chan string, len(live)+len(boots))
	t.Run("cuts", func(t *testing.T) {
		for w := range restarters {
			t.Run(fmt.Sprintf("restart-%d", w), func(t *testing.T) {
				t.Parallel()
				newSweeper(t).restarts(restarts, died)
			})
		}
		t.Run("reboot", func(t *testing.T) {
			t.Parallel()
			newSweeper(t).reboots(reboots, died)
		})
	})
	close(died)
	cut := map[string]int{}
	for point := range died {
		cut[point]++
	}
	t.Logf("%d crash points, %d cuts followed by a restart, %d by a reboot; the agent died %v", len(points(passed)), len(live), len(boots), cut)
	require.Equal(t, points(passed), slices.Sorted(maps.Keys(cut)), "crash points, and those at which the agent died")
}

// queue has cuts taken by whichever sweeper is free.
func queue(all []cut) <-chan cut {
	out := make(chan cut, len(all))
	for _, c := range all {
		out <- c
	}
	close(out)
	return out
}

// trace is the points that op on pod passes.
type trace struct{ pod, op string }

// cuts are all runs of the sweep.
func cuts(passed map[trace][]string) (all []cut) {
	for tr, points := range passed {
		for i, p := range points {
			hows := tr.follows(slices.Contains(passed[trace{fullPod, tr.op}], p))
			if len(hows) > 1 && !soak() { // one of them: those of the neighbouring points are the others
				hows = hows[i%len(hows):][:1]
			}
			for _, how := range hows {
				all = append(all, cut{tr.pod, tr.op, p, how})
			}
		}
	}
	slices.SortFunc(all, func(a, b cut) int { return strings.Compare(a.String(), b.String()) })
	if soak() {
		return all
	}
	// Each point at least once, and of what else is cut every second.
	var some []cut
	seen := map[string]bool{}
	for i, c := range all {
		if !seen[c.point] || i%2 == 0 {
			some = append(some, c)
		}
		seen[c.point] = true
	}
	return some
}

// follows is what follows a cut of tr. At points that the full pod passes too,
// the other pod is cut less often unless there is time.
func (tr trace) follows(common bool) []string {
	if tr.pod != fullPod && common && !soak() {
		if tr.op == "ADD" || tr.op == "DEL" {
			return []string{thenRestart}
		}
		return nil
	}
	switch tr.op {
	case "CHECK":
		return []string{thenRetry}
	case startAfterAdd, startAfterDel:
		return []string{thenRestart, thenReboot}
	}
	return []string{thenRetry, thenDel, thenRestart, thenReboot}
}

// soak tells that the long run was asked for (make soak).
func soak() bool { return os.Getenv("FAIRLEAD_SOAK") != "" }

// sample is every third crash point; all of them in the long run.
func sample(points []string) (some []string) {
	for i, p := range points {
		if i%3 == 0 || soak() {
			some = append(some, p)
		}
	}
	return some
}

func points(passed map[trace][]string) []string {
	var all []string
	for _, p := range passed {
		all = append(all, p...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// discover runs every operation on every pod once and notes what it passes.
func discover(t *testing.T) map[trace][]string {
	t.Helper()
	s := newSweeper(t)
	passed := map[trace][]string{}
	note := func(pod, op string) {
		found := s.n.CrashTrace()
		slices.Sort(found)
		passed[trace{pod, op}] = slices.Compact(found)
	}
	for _, name := range []string{fullPod, internalPod} {
		p := s.n.NewPod(name)
		s.n.CrashTrace()
		p.CNI("ADD", ownConf).Must()
		note(name, "ADD")
		p.CNI("CHECK", ownConf).Must()
		note(name, "CHECK")
		p.CNI("DEL", ownConf).Must()
		note(name, "DEL")
		p.CNI("ADD", ownConf).Must()
		s.n.CrashTrace()
		eventually(t, func() string { // what an operation is under way for is left to it
			s.gc().Must()
			if strings.Contains(s.n.Run("ovs-vsctl", "list-ports", "br-int"), hostIf(p, "eth0")) {
				return "the port of " + name + " is left"
			}
			return ""
		})
		note(name, "GC")
		for _, op := range []string{startAfterAdd, startAfterDel} {
			s.cutStart(p, op)
			s.n.CrashTrace()
			s.restart()
			note(name, op)
		}
		p.Delete()
	}
	return passed
}

// requireAllPassed compares what was passed with what the source names.
func requireAllPassed(t *testing.T, passed map[trace][]string) {
	t.Helper()
	here := regexp.MustCompile(`fail\.Here\("([^"]+)"\)`)
	// TestHotPlugCrashSweep, TestRateChangeSurvivesACrash, the kills of TestImport, those of
	// provider networks in TestUplinkOfTheDefaultRoute, and of an import in TestKubeOVNsCluster;
	// `fairlead cri`, what it gives pods their networks with, the node's loop over
	// pods and the controller (TestControllerCrashSweep) are no agent and have their
	// own. A driver for tests is in no agent. VFs are a card's (TestKernelSRIOV, in the VM).
	// Devices of the machine have TestHostDeviceSurvives, VLANs of a master TestKernelVLANOfAMasterSurvives.
	// Leases need an API server (TestKube/leased), and so does the fence (TestKubeFenced).
	elsewhere := regexp.MustCompile(`^(plug|tune|import|rollback|uplink|kubeovn|sriov|hostdevice|vlanparent|lease|fence|heartbeat)\.|^journal\.(take|taken|move|moved|return|returned)$`)
	journal := regexp.MustCompile(`"(journal\.[a-z]+)", "(journal\.[a-z]+)"`)
	var named []string
	err := filepath.WalkDir("../../internal", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{"cri", "netplugin", "node", "drivertest", "controller"}, d.Name()) {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range here.FindAllStringSubmatch(string(text), -1) {
			if !elsewhere.MatchString(m[1]) {
				named = append(named, m[1])
			}
		}
		for _, m := range journal.FindAllStringSubmatch(string(text), -1) {
			if !elsewhere.MatchString(m[1]) {
				named = append(named, m[1:]...)
			}
		}
		return err
	})
	require.NoError(t, err)
	slices.Sort(named)
	require.Equal(t, slices.Compact(named), points(passed), "crash points in the source, and those that the sweep passes")
}

// sweeper is a node on which cuts run one after the other.
type sweeper struct {
	t      *testing.T
	n      *testbed.Node
	agent  *testbed.Agent
	near   *testbed.Pod // a bystander that nothing may disturb; gone with the first reboot
	nearIP string
	before testbed.Inventory // what the node holds when no pod is under test
}

func newSweeper(t *testing.T) *sweeper {
	t.Helper()
	s := &sweeper{t: t, n: testbed.New(t)}
	s.n.WriteObjects("objects.yaml", sweepObjects(`{"name":"lan"}`))
	s.n.WriteObjects("lan.yaml", together(lan(), nadObject("default/lan", lanConf)))
	bond(s.n)
	s.restart()
	s.near = s.n.NewPod("near")
	s.nearIP = bare(s.near.CNI("ADD", ownConf).Must().IPs()[0])
	// What foreign plugins leave on purpose (a bridge, chains) is there from
	// the first pod on.
	p := s.n.NewPod(fullPod)
	p.CNI("ADD", ownConf).Must()
	s.remove(p)
	s.before = s.n.Inventory()
	return s
}

func (s *sweeper) restart() {
	s.t.Helper()
	describeDevice(s.t, s.n, nicResource, "dev0") // a reboot takes it away
	s.agent = s.n.Agent()
	s.agent.WaitReady()
}

// gc is the runtime's GC: only the bystander is valid.
func (s *sweeper) gc() testbed.Answer {
	valid := []map[string]string{}
	if s.near != nil {
		valid = append(valid, map[string]string{"containerID": s.near.ContainerID, "ifname": "eth0"})
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "k8s-pod-network", "type": "fairlead", "cni.dev/valid-attachments": valid,
	})
	require.NoError(s.t, err)
	return s.n.CNI(cni.Request{Command: "GC", Config: conf})
}

// crash runs an operation that ends the agent at point. Some points are passed
// only when Open vSwitch is slower than the agent: where the operation ended
// without, it was a success, and the agent dies afterwards.
func (s *sweeper) crash(point string, op func() testbed.Answer) (answer testbed.Answer, died bool) {
	s.t.Helper()
	s.n.Crash(point)
	answer = op()
	if s.n.CrashPending() {
		s.n.Crash("")
		answer.Must()
		s.agent.Kill()
		return answer, false
	}
	require.Error(s.t, s.agent.Wait())
	require.True(s.t, s.agent.Killed())
	return answer, true
}

// cutStart leaves work for the next start: a begun ADD, or a DEL that found no
// agent.
func (s *sweeper) cutStart(p *testbed.Pod, op string) {
	s.t.Helper()
	if op == startAfterAdd {
		_, died := s.crash("add.attached", func() testbed.Answer { return p.CNI("ADD", ownConf) })
		require.True(s.t, died)
		return
	}
	p.CNI("ADD", ownConf).Must()
	s.agent.Kill()
	p.CNI("DEL", ownConf).Must()
}

// cut kills the agent as c says and leaves it dead. The answers that a runtime
// got on the way must be true.
func (s *sweeper) cut(c cut, p *testbed.Pod) (died bool) {
	s.t.Helper()
	op := func() testbed.Answer { return p.CNI(c.op, ownConf) }
	switch c.op {
	case "ADD":
	case "DEL", "CHECK":
		p.CNI("ADD", ownConf).Must()
	case "GC":
		p.CNI("ADD", ownConf).Must()
		op = s.gc
	default:
		return s.cutSecond(c, p)
	}
	answer, died := s.crash(c.point, op)
	if c.op == "DEL" {
		answer.Must() // it is left for the agent
	} else if died {
		require.NotNil(s.t, answer.Err(), "an operation that was cut is told as success")
	}
	return died
}

// cutSecond kills two agents, the second while it starts.
func (s *sweeper) cutSecond(c cut, p *testbed.Pod) (died bool) {
	s.t.Helper()
	s.cutStart(p, c.op)
	s.n.Crash(c.point)
	s.agent = s.n.StartAgent()
	eventually(s.t, func() string {
		if status, _, err := s.agent.Get("/readyz"); s.n.CrashPending() && (err != nil || status != http.StatusOK) {
			return "the agent neither serves nor dies"
		}
		return ""
	})
	if s.n.CrashPending() {
		s.n.Crash("")
		s.agent.Kill()
		return false
	}
	require.Error(s.t, s.agent.Wait())
	require.True(s.t, s.agent.Killed())
	return true
}

func (s *sweeper) restarts(list <-chan cut, died chan<- string) {
	for c := range list {
		s.during(c, func(p *testbed.Pod) {
			if s.cut(c, p) {
				died <- c.point
				s.follow(c, p)
			} else {
				s.restart()
			}
			s.remove(p)
			s.n.RequireNoLeaks(s.before)
		})
	}
	s.near.CNI("CHECK", ownConf).Must()
}

// during says which cut it was, should the test fail in it.
func (s *sweeper) during(c cut, f func(p *testbed.Pod)) {
	done := false
	defer func() {
		if !done {
			s.t.Logf("in the cut: %s", c)
		}
	}()
	f(s.n.NewPod(c.pod))
	done = true
}

// follow does what follows a crash, without a reboot.
func (s *sweeper) follow(c cut, p *testbed.Pod) {
	s.t.Helper()
	if c.how == thenDel {
		p.CNI("DEL", ownConf).Must() // left for the agent
		s.restart()
		s.requireEmpty(p)
		return
	}
	s.restart()
	if c.how == thenRetry {
		s.retry(c, p)
		return
	}
	// The runtime was told nothing of an ADD that was complete when the agent
	// died, and a GC may not have come to this pod: then it is whole.
	if e := p.CNI("CHECK", ownConf).Err(); e == nil {
		s.requireTraffic(p)
		return
	}
	s.requireEmpty(p)
}

func (s *sweeper) retry(c cut, p *testbed.Pod) {
	s.t.Helper()
	switch c.op {
	case "ADD":
		p.CNI("ADD", ownConf).Must()
		s.requireTraffic(p)
	case "CHECK":
		p.CNI("CHECK", ownConf).Must()
		s.requireTraffic(p)
	case "GC":
		s.gc().Must()
		s.requireEmpty(p)
	case "DEL":
		p.CNI("DEL", ownConf).Must()
		s.requireEmpty(p)
		p.CNI("ADD", ownConf).Must() // all names are free again
		s.requireTraffic(p)
	}
}

func (s *sweeper) requireTraffic(p *testbed.Pod) {
	s.t.Helper()
	p.CNI("CHECK", ownConf).Must()
	require.NoError(s.t, p.Ping(s.nearIP))
	if p.Name == fullPod {
		require.NoError(s.t, p.Ping("10.20.0.1"))
		require.NoError(s.t, p.Ping("10.30.0.1"))
	}
}

// requireEmpty: the pod's namespace is as a runtime made it, and its record is
// gone.
func (s *sweeper) requireEmpty(p *testbed.Pod) {
	s.t.Helper()
	p.CNI("CHECK", ownConf).MustCode(3)
	requireBare(s.t, p)
}

// remove ends a sandbox as a runtime does: DEL, then the namespace.
func (s *sweeper) remove(p *testbed.Pod) {
	s.t.Helper()
	p.CNI("DEL", ownConf).Must()
	p.CNI("DEL", ownConf).Must()
	requireBare(s.t, p)
	p.Delete()
}

// requireBare waits until nothing but lo is in the pod; tombstones go a little
// after the DEL.
func requireBare(t *testing.T, p *testbed.Pod) {
	t.Helper()
	eventually(t, func() string {
		if names := linkNames(t, p); len(names) != 1 {
			return fmt.Sprintf("the pod still has %v", names)
		}
		return ""
	})
}

// awaitReaper waits until the agent has deleted the links that it put aside.
func awaitReaper(t *testing.T, n *testbed.Node) {
	t.Helper()
	eventually(t, func() string { return n.Run("sh", "-c", "ip -o link | grep fltomb || true") })
}

// reboots runs cuts after which the machine restarts. A runtime makes new
// sandboxes then and does not ask for the old ones any more.
func (s *sweeper) reboots(list <-chan cut, died chan<- string) {
	s.reboot()
	s.before = s.n.Inventory()
	for c := range list {
		s.during(c, func(p *testbed.Pod) {
			if s.cut(c, p) {
				died <- c.point
			}
			s.reboot()
			s.n.RequireNoLeaks(s.before)
		})
	}
}

func (s *sweeper) reboot() {
	s.t.Helper()
	s.n.Reboot()
	bond(s.n)
	s.near = nil
	s.restart()
}
