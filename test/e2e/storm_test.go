package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

const stormWidth = 32 // calls of the runtime at the same time

// testStorm: many pods start at once on one node and the agent is killed again
// and again. Runtimes try again until each pod has its two networks. Then every
// pod has what its status says, no address is given twice, and when all is
// taken away, with kills again, nothing is left.
func testStorm(n *kubeNode) {
	count, kills := 120, 6
	if soak() {
		count, kills = 500, 20
	}
	warm := n.makePod("warm", map[string]string{networksKey: "default/foreign"})
	warm.cni("ADD").Must()
	warm.end()
	before := n.Inventory()

	since := n.c.Mark()
	pods := n.makePods(count, stormNotes)
	s := &kubeStorm{n: n, t: n.t, failures: map[string]int{}}
	s.during(count, kills, func(i int) { s.start(pods[i], retries[i%len(retries)]) })
	n.agent.WaitReady()
	require.Empty(n.t, s.wrong)
	s.report("ADD", count)
	s.requireRunning(pods)
	n.t.Logf("requests of the agent: %v", tally(n.requests(since, "")))

	s.during(count, kills/3, func(i int) { s.stop(pods[i]) })
	require.Empty(n.t, s.wrong)
	s.report("DEL", count)
	for _, p := range pods {
		p.Delete()
	}
	n.RequireNoLeaks(before)
}

// stormNotes gives every pod two networks, some of them one of a foreign
// plugin, and some a rate.
func stormNotes(i int) map[string]string {
	notes := map[string]string{networksKey: "default/storage"}
	if i%8 == 3 {
		notes[networksKey] = "default/foreign"
	}
	if i%4 == 2 {
		notes["ovn.kubernetes.io/ingress_rate"] = "30"
	}
	return notes
}

// What runtimes do after a failed ADD.
type retry struct{ del, renew bool }

var retries = []retry{
	{del: true, renew: true}, // containerd, CRI-O: a new sandbox, after DEL of the old one
	{del: true},              // DEL, and the same container again
	{},                       // nothing but ADD again
}

// digits make one failure of many that differ in a name.
var digits = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f]*`)

// kubeStorm is a storm and what it saw.
type kubeStorm struct {
	n    *kubeNode
	t    *testing.T
	done atomic.Int64 // pods that are through

	mu       sync.Mutex
	took     []time.Duration // of each call that succeeded
	failures map[string]int
	wrong    []string
}

// during runs do for all pods and kills the agent meanwhile, at moments that
// are random but spread over the whole work, some while it starts.
func (s *kubeStorm) during(count, kills int, do func(i int)) {
	s.done.Store(0)
	over := make(chan struct{})
	go func() {
		defer close(over)
		atOnce(stormWidth, count, func(i int) { do(i); s.done.Add(1) })
	}()
	for k := range kills {
		at := int64(k*count/kills + mathrand.N(count/kills))
		for s.done.Load() < at {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(mathrand.N(50 * time.Millisecond))
		s.n.agent.Kill()
		s.n.agent = s.n.StartAgent(s.n.args...)
		if k%3 == 2 {
			time.Sleep(mathrand.N(300 * time.Millisecond))
			s.n.agent.Kill()
			s.n.agent = s.n.StartAgent(s.n.args...)
		}
	}
	<-over
}

// persist calls op until it succeeds, as a runtime does, with after following
// each failure.
func (s *kubeStorm) persist(what string, op func() testbed.Answer, after func()) bool {
	for end := time.Now().Add(2 * time.Minute); ; {
		start := time.Now()
		e := op().Err()
		took := time.Since(start)
		s.mu.Lock()
		if e == nil {
			s.took = append(s.took, took)
			s.mu.Unlock()
			return true
		}
		why, _, _ := strings.Cut(e.Details, ";")
		s.failures[digits.ReplaceAllString(fmt.Sprintf("code %d: %s: %s", e.Code, e.Msg, why), "N")]++
		if time.Now().After(end) {
			s.wrong = append(s.wrong, fmt.Sprintf("%s: code %d: %s: %s", what, e.Code, e.Msg, e.Details))
			s.mu.Unlock()
			return false
		}
		s.mu.Unlock()
		time.Sleep(50*time.Millisecond + mathrand.N(150*time.Millisecond)) // runtimes back off, by far longer
		after()
	}
}

func (s *kubeStorm) start(p *kubePod, r retry) {
	s.persist("ADD "+p.Name, func() testbed.Answer { return p.cni("ADD") }, func() {
		if r.del {
			s.stop(p)
		}
		if r.renew {
			p.ContainerID = randomID()
		}
	})
}

func (s *kubeStorm) stop(p *kubePod) {
	s.persist("DEL "+p.Name, func() testbed.Answer { return p.cni("DEL") }, func() {})
}

// report logs how long calls took, and how they failed on the way.
func (s *kubeStorm) report(op string, count int) {
	slices.Sort(s.took)
	s.t.Logf("%s of %d pods, %d at once: p50 %s, p99 %s, longest %s", op, count, stormWidth,
		quantile(s.took, 50), quantile(s.took, 99), quantile(s.took, 100))
	for _, f := range slices.Sorted(maps.Keys(s.failures)) {
		s.t.Logf("failed on the way, %d times: %s", s.failures[f], f)
	}
	s.took, s.failures = nil, map[string]int{}
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100].Round(100 * time.Microsecond)
}

// tally counts requests by what they are.
func tally(all []kube.Request) map[string]int {
	out := map[string]int{}
	for _, r := range all {
		out[strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")]++
	}
	return out
}

// requireRunning: what makes a pod Running, seen from outside.
func (s *kubeStorm) requireRunning(pods []*kubePod) {
	s.t.Helper()
	nics := s.n.nics()
	s.requireUnique(pods, nics)
	s.requirePorts(pods)
	s.requireRecords(pods)
	eventually(s.t, func() string {
		told, err := s.n.statuses()
		if err != nil {
			return err.Error()
		}
		for _, p := range pods {
			if why := differsFrom(told[p.Name], nics[p.Netns()]); why != "" {
				return p.Name + ": " + why
			}
		}
		return ""
	})
	checks := make(chan string, len(pods))
	atOnce(8, len(pods), func(i int) {
		if e := pods[i].cni("CHECK").Err(); e != nil {
			checks <- fmt.Sprintf("%s: CHECK: code %d: %s: %s", pods[i].Name, e.Code, e.Msg, e.Details)
		}
	})
	close(checks)
	require.Empty(s.t, <-checks)
}

// requireUnique: every pod has two interfaces with an address, and no two of a
// network have the same one.
func (s *kubeStorm) requireUnique(pods []*kubePod, nics map[string]map[string]podNIC) {
	s.t.Helper()
	taken := map[string]string{}
	for i, p := range pods {
		have := nics[p.Netns()]
		require.Equal(s.t, []string{"eth0", "net1"}, slices.Sorted(maps.Keys(have)), p.Name)
		for name, one := range have {
			require.True(s.t, one.up, "%s %s", p.Name, name)
			require.NotEmpty(s.t, one.ip, "%s %s", p.Name, name)
			network := ""
			if name == "net1" {
				network = stormNotes(i)[networksKey]
			}
			for _, id := range []string{network + " " + one.ip, network + " " + one.mac} {
				require.Empty(s.t, taken[id], "%s has %s, and so has", p.Name, id)
				taken[id] = p.Name
			}
		}
	}
}

// requirePorts: ovs-vswitchd has a port for each of our interfaces, and none
// beyond.
func (s *kubeStorm) requirePorts(pods []*kubePod) {
	s.t.Helper()
	want := []string{}
	for i, p := range pods {
		want = append(want, hostIf(p.Pod, "eth0"))
		if !strings.HasSuffix(stormNotes(i)[networksKey], "foreign") {
			want = append(want, hostIf(p.Pod, "net1"))
		}
	}
	slices.Sort(want)
	eventually(s.t, func() string {
		var rows struct{ Data [][]any }
		text := s.n.OVS.Vsctl("--format=json", "--columns=name,ofport,error", "list", "Interface")
		require.NoError(s.t, json.Unmarshal([]byte(text), &rows))
		var have []string
		for _, r := range rows.Data {
			name, _ := r[0].(string)
			if port, ok := r[1].(float64); !ok || port < 1 {
				return fmt.Sprintf("port %s has ofport %v, error %v", name, r[1], r[2])
			}
			if strings.HasSuffix(name, "_h") {
				have = append(have, name)
			}
		}
		slices.Sort(have)
		return unequal(want, have)
	})
}

// unequal says how many of what is wanted are missing, and what is too much.
func unequal(want, have []string) string {
	if slices.Equal(want, have) {
		return ""
	}
	var missing, more []string
	for _, w := range want {
		if !slices.Contains(have, w) {
			missing = append(missing, w)
		}
	}
	for _, h := range have {
		if !slices.Contains(want, h) {
			more = append(more, h)
		}
	}
	return fmt.Sprintf("missing %v, too much %v", missing, more)
}

// requireRecords: the journal has each pod once, whole.
func (s *kubeStorm) requireRecords(pods []*kubePod) {
	s.t.Helper()
	var list agent.PodList
	require.NoError(s.t, json.Unmarshal([]byte(s.n.Fairlead("get", "pods", "-o", "json")), &list))
	have := map[string]string{}
	for _, p := range list.Items {
		require.Len(s.t, p.Attachments, 1, p.Name)
		a := p.Attachments[0]
		require.Equal(s.t, agent.Added, a.Phase, p.Name)
		have[p.Name] = a.Container
	}
	for _, p := range pods {
		require.Equal(s.t, p.ContainerID, have[p.Name], p.Name)
	}
	require.Len(s.t, have, len(pods))
}

// differsFrom compares a status with the interfaces that are there.
func differsFrom(told []agent.NetworkStatus, have map[string]podNIC) string {
	if len(told) != len(have) {
		return fmt.Sprintf("status of %d networks, and %d interfaces", len(told), len(have))
	}
	for _, s := range told {
		if one := have[s.Interface]; len(s.IPs) != 1 || s.IPs[0] != one.ip || s.MAC != one.mac || s.Default != (s.Interface == "eth0") {
			return fmt.Sprintf("the status says %+v, and there is %+v", s, one)
		}
	}
	return ""
}
