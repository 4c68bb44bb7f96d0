package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// What a change of rules does to who is asked about.
const (
	isCut  = false
	passes = true
)

// While rules change each question is asked this often, by a connection of its own,
// whose first packet is the only one in the time in which it may be answered.
const (
	pace     = 20 * time.Millisecond
	inTime   = 300 * time.Millisecond
	agreeing = 15 // answers after which it is taken for settled
)

// followBound is how soon after the API server's answer the data path must follow. The
// promise is a second; beside other tests the machine takes longer.
func followBound() time.Duration {
	if soak() {
		return time.Second
	}
	return 10 * time.Second
}

// between are the questions of a row without any rules.
func (m *matrixBed) between(from, to string) []question {
	m.t.Helper()
	i := slices.IndexFunc(m.rows, func(p pair) bool { return p.from == from && p.to == to })
	require.GreaterOrEqual(m.t, i, 0, "%s to %s", from, to)
	return m.asked(m.rows[i], open)
}

// drops are a Subnet's acls that drop what a pod sends.
func (m *matrixBed) drops(who string) (acls []any) {
	for i, family := range []string{"ip4", "ip6"} {
		acls = append(acls, map[string]any{"direction": "to-lport", "priority": 2000, "action": "drop", "match": family + ".src == " + m.pods[who].ips[i]})
	}
	return acls
}

// attempt is one time that a question is asked.
type attempt struct {
	at             time.Time
	ended, reached bool
}

// watch asks a question again and again.
type watch struct {
	question
	mu   sync.Mutex
	log  []*attempt
	stop chan struct{}
	wg   sync.WaitGroup
}

func startWatch(q question) *watch {
	w := &watch{question: q, stop: make(chan struct{})}
	w.wg.Go(func() {
		each := time.NewTicker(pace)
		defer each.Stop()
		for {
			w.wg.Go(w.ask)
			select {
			case <-w.stop:
				return
			case <-each.C:
			}
		}
	})
	return w
}

func (w *watch) ask() {
	a := &attempt{at: time.Now()}
	w.mu.Lock()
	w.log = append(w.log, a)
	w.mu.Unlock()
	reached := w.answered(inTime)
	w.mu.Lock()
	defer w.mu.Unlock()
	a.ended, a.reached = true, reached
}

// settled tells whether the last that ended agree, of those since a time.
func (w *watch) settled(reached bool, since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	agree := 0
	for _, a := range w.log {
		switch {
		case !a.ended || a.at.Before(since):
		case a.reached == reached:
			agree++
		default:
			agree = 0
		}
	}
	return agree >= agreeing
}

// took is how long after a time the first packet passed, or the last one, of a watch that
// has ended.
func (w *watch) took(reached bool, since time.Time) (d time.Duration) {
	for _, a := range w.log {
		if !a.reached {
			continue
		}
		d = max(0, a.at.Sub(since))
		if reached {
			break
		}
	}
	return d
}

// follows makes a change of rules while the questions are asked, of which none was
// answered before, or each, and measures how long after the API server's answer the
// first packet passes, or the last one.
func (m *matrixBed) follows(what string, reached bool, questions []question, write func()) {
	t := m.t
	t.Helper()
	watches := m.watch(questions)
	m.settled(what+": before", watches, !reached, time.Time{})
	dropped := m.forgets()
	write()
	since := time.Now()
	m.settled(what, watches, reached, since)
	var latest time.Duration
	for _, w := range watches {
		close(w.stop)
		w.wg.Wait()
		latest = max(latest, w.took(reached, since))
	}
	t.Logf("%s: the data path follows %s after the API server's answer (%d questions, one each %s)", what, latest.Round(time.Millisecond), len(questions), pace)
	if now := m.forgets(); reached && now != dropped {
		t.Logf("%s: the switch kept a flow of former rules (see forgotten): %s, before %s", what, now, dropped)
	} else {
		require.Less(t, latest, followBound(), what)
	}
	m.o.central.Sync()
}

func (m *matrixBed) watch(questions []question) (all []*watch) {
	for _, q := range questions {
		all = append(all, startWatch(q))
	}
	return all
}

// settled waits until all are answered, or none is.
func (m *matrixBed) settled(what string, watches []*watch, reached bool, since time.Time) {
	m.t.Helper()
	eventually(m.t, func() string {
		for _, w := range watches {
			if !w.settled(reached, since) {
				return fmt.Sprintf("%s: %s: answered must be %t", what, w.question, reached)
			}
		}
		return ""
	})
}

// forgets counts, per node, packets that the switch dropped by a flow of former rules. A switch
// that has just crashed, as Debian's does at times, is started anew and asked again.
func (m *matrixBed) forgets() string {
	m.t.Helper()
	var all []string
	for _, n := range m.o.nodes {
		eventually(m.t, func() string {
			out, err := n.Try("ovs-appctl", "-t", "/run/openvswitch/ovs-vswitchd.ctl", "coverage/read-counter", "datapath_drop_upcall_error")
			if err != nil {
				return err.Error()
			}
			all = append(all, strings.TrimSpace(out))
			return ""
		})
	}
	return strings.Join(all, " ")
}
