package e2e

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// TestRandomKills ends the agent by SIGKILL at random instants, also while it
// starts, in a storm of ADDs and DELs by runtimes that try again. At no time do
// two pods have one address or MAC, whatever was told to be attached answers,
// and at the end nothing is left.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	kills := 30
	if soak() {
		kills = 500
	}
	n := testbed.New(t)
	n.WriteObjects("objects.yaml", together(sweepObjects(),
		podObject("default/two", map[string]string{networksKey: "storage"})))
	a := n.Agent()
	a.WaitReady()
	st := &storm{n: n, t: t, anchor: n.NewPod("anchor"), held: map[string]string{}, stop: make(chan struct{})}
	st.anchor.CNI("ADD", ownConf).Must()
	warm := n.NewPod(fullPod)
	warm.CNI("ADD", ownConf).Must()
	warm.CNI("DEL", ownConf).Must()
	requireBare(t, warm)
	warm.Delete()
	before := n.Inventory()

	var sandboxes []*testbed.Pod
	for _, name := range []string{"a", "b", "c", "d", "two", "e/two", fullPod, internalPod} {
		sandboxes = append(sandboxes, n.NewPod(name))
	}
	for i, p := range sandboxes {
		st.wg.Go(func() { st.runtime(p, i%2 == 0) })
	}
	for range kills {
		longest := time.Second
		if mathrand.N(3) == 0 { // while it starts
			longest /= 10
		}
		time.Sleep(mathrand.N(longest)) // the instant is what is random
		a.Kill()
		a = n.StartAgent()
	}
	a.WaitReady()
	close(st.stop)
	st.wg.Wait()
	for _, p := range sandboxes {
		requireBare(t, p)
		p.Delete()
	}
	st.anchor.CNI("CHECK", ownConf).Must()
	n.RequireNoLeaks(before)
	t.Logf("%d kills; of %d ADDs %d succeeded, %d were pinged", kills, st.tried, st.added, st.pinged)
	require.Empty(t, st.wrong)
	require.NotZero(t, st.pinged)
}

// storm is what runtimes do on a node, and what must hold meanwhile.
type storm struct {
	n      *testbed.Node
	t      *testing.T
	anchor *testbed.Pod
	stop   chan struct{}
	wg     sync.WaitGroup

	mu                   sync.Mutex
	held                 map[string]string // address or MAC -> live container
	wrong                []string
	tried, added, pinged int
}

// runtime attaches and detaches one sandbox until the storm is over. After a
// failed ADD it calls DEL, as runtimes do, and tries again, with the same
// container or with a new one.
func (s *storm) runtime(sandbox *testbed.Pod, renew bool) {
	p := *sandbox
	for s.goesOn() {
		if renew {
			p.ContainerID = randomID()
		}
		s.mu.Lock()
		s.tried++
		s.mu.Unlock()
		answer := p.CNI("ADD", ownConf)
		if answer.Err() == nil {
			s.live(&p, answer)
			time.Sleep(mathrand.N(50 * time.Millisecond))
			s.dead(&p)
		} else {
			time.Sleep(mathrand.N(200 * time.Millisecond)) // runtimes back off, by far longer
		}
		s.del(&p)
	}
}

func (s *storm) goesOn() bool {
	select {
	case <-s.stop:
		return false
	default:
		return true
	}
}

// del calls DEL until it succeeds.
func (s *storm) del(p *testbed.Pod) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		e := p.CNI("DEL", ownConf).Err()
		if e == nil {
			return
		}
		if time.Now().After(end) {
			s.note("DEL %s: code %d: %s: %s", p.ContainerID, e.Code, e.Msg, e.Details)
			return
		}
	}
}

func (s *storm) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// identities are the addresses and MACs of a result.
func identities(answer testbed.Answer) (ids, ips []string, err error) {
	var r struct {
		Interfaces []struct{ Mac, Sandbox string }
		IPs        []struct{ Address string }
	}
	if err := json.Unmarshal(answer.Stdout, &r); err != nil {
		return nil, nil, err
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			ids = append(ids, i.Mac)
		}
	}
	for _, ip := range r.IPs {
		ips = append(ips, bare(ip.Address))
	}
	return append(ids, ips...), ips, nil
}

// live notes what a pod has now and, for some, that it answers.
func (s *storm) live(p *testbed.Pod, answer testbed.Answer) {
	ids, ips, err := identities(answer)
	if err != nil || len(ips) == 0 {
		s.note("ADD %s: %v: %s", p.ContainerID, err, answer.Stdout)
		return
	}
	s.mu.Lock()
	s.added++
	ping := s.added%3 == 0
	for _, id := range ids {
		if other, taken := s.held[id]; taken {
			s.wrong = append(s.wrong, fmt.Sprintf("%s is of %s and of %s", id, other, p.ContainerID))
		}
		s.held[id] = p.ContainerID
	}
	s.mu.Unlock()
	if !ping {
		return
	}
	if err := s.anchor.Ping(ips[0]); err != nil {
		s.note("%s (%s) was attached and does not answer: %v", p.ContainerID, p.Name, err)
		return
	}
	s.mu.Lock()
	s.pinged++
	s.mu.Unlock()
}

// dead forgets a pod; the runtime's DEL comes after it.
func (s *storm) dead(p *testbed.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, container := range s.held {
		if container == p.ContainerID {
			delete(s.held, id)
		}
	}
}

func randomID() string {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// TestAgentKilledWhilePodsTalk: the agent is not on the packets' way.
func TestAgentKilledWhilePodsTalk(t *testing.T) {
	t.Parallel()
	n := testbed.New(t)
	a := n.Agent()
	a.WaitReady()
	p, q := n.NewPod("p"), n.NewPod("q")
	ip := bare(p.CNI("ADD", ownConf).Must().IPs()[0])
	q.CNI("ADD", ownConf).Must()
	ping := q.StartPing(ip, 10*time.Millisecond)
	for range 3 {
		ping.Answers(20)
		a.Kill()
		ping.Answers(20)
		a = n.Agent()
		a.WaitReady()
	}
	a.Stop()
	ping.Answers(20)
	n.Agent().WaitReady()
	ping.Answers(20)
	answered, lost := ping.Stop()
	t.Logf("%d answered", answered)
	require.Zero(t, lost)
}
