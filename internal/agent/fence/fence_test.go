package fence

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/core"
)

// node is a machine whose clock, links and API server a test has in its hand.
type node struct {
	t     *testing.T
	file  string
	boot  string
	clock time.Duration

	mu      sync.Mutex
	away    error // the API server's answer to the heartbeat
	armed   int
	retired int
	up      map[string]bool
	theirs  map[string]string
	asked   error
	told    []string
	records []core.Record
}

func newNode(t *testing.T, names ...string) *node {
	n := &node{t: t, file: filepath.Join(t.TempDir(), "fence.json"), boot: "b1", clock: time.Hour, up: map[string]bool{}, theirs: map[string]string{}}
	for _, name := range names {
		n.made(name)
	}
	return n
}

func spec(name string) core.Spec {
	return core.Spec{
		Key: core.Key{Container: name, IfName: "net1"}, Pod: core.Pod{Namespace: "bank", Name: name},
		Claims: []core.Claim{{Domain: "lan", Addr: netip.MustParseAddr("10.9.0.3")}},
	}
}

func (n *node) made(name string) {
	n.records = append(n.records, core.Record{Key: spec(name).Key, Phase: core.Added, Specs: []core.Spec{spec(name)}})
	n.up[spec(name).Key.String()] = true
}

func (n *node) Renew(_ context.Context, _ string, arm func() error) error {
	if n.away != nil {
		return n.away
	}
	n.armed++
	return arm()
}

func (n *node) Retire(context.Context, string) error {
	if n.away == nil {
		n.retired++
	}
	return n.away
}

func (n *node) Look(core.Spec) (Saved, error) { return Saved{}, nil }

func (n *node) Down(s core.Spec, _ Saved) error {
	n.up[s.Key.String()] = false
	return nil
}

func (n *node) Up(s core.Spec, _ Saved) error {
	n.up[s.Key.String()] = true
	return nil
}

// agent is a process of the node's agent, which knows its file alone.
func (n *node) agent(on bool) *Guard {
	return New(Config{
		On: on, BootID: n.boot, File: n.file, Now: func() time.Duration { return n.clock }, Links: n,
		Heartbeat: func() Heartbeat { return n }, Records: func() []core.Record { return n.records },
		Reclaim: func(_ context.Context, s core.Spec) (string, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.theirs[s.Pod.Name], n.asked
		},
		Tell: func(p core.Pod, _ string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.told = append(n.told, p.Name)
		},
		Log: slog.New(slog.DiscardHandler),
	})
}

func (n *node) isUp(name string) bool { return n.up[spec(name).Key.String()] }

// TestFenceFalls: what is leased goes down 30 s after the last renewal was sent, not earlier,
// and comes back when it is the node's still.
func TestFenceFalls(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a", "b")
	g := n.agent(true)
	require.Equal(t, every, g.beat(t.Context()))
	n.away = errors.New("no route")
	n.clock += limit - 1
	require.Equal(t, again, g.beat(t.Context()))
	g.Enforce()
	require.True(t, n.isUp("a"))
	require.NoError(t, g.Fenced())

	n.clock++
	g.Enforce()
	require.False(t, n.isUp("a"))
	require.False(t, n.isUp("b"))
	require.Equal(t, core.ReasonFenced, core.ReasonOf(g.Fenced()))
	require.Equal(t, core.CodeTryAgain, core.CodeOf(g.Down(spec("a").Key)))
	require.ErrorContains(t, g.Healthy(), "no renewal")
	n.up[spec("a").Key.String()] = true // somebody puts it up
	g.Enforce()
	require.False(t, n.isUp("a"))
	g.reclaim(t.Context())
	require.False(t, n.isUp("a"), "nothing comes back while the node is fenced")

	n.away, n.theirs["b"] = nil, "pod other has it"
	g.beat(t.Context())
	require.NoError(t, g.Fenced())
	g.Enforce()
	require.False(t, n.isUp("a"), "whose it is has not been asked yet")
	g.reclaim(t.Context())
	g.Enforce()
	require.True(t, n.isUp("a"))
	require.False(t, n.isUp("b"))
	require.ErrorContains(t, g.Down(spec("b").Key), "pod other has it")
	require.NoError(t, g.Down(spec("a").Key))
	require.ElementsMatch(t, []string{"a", "b"}, n.told)

	n.theirs["b"] = ""
	g.reclaim(t.Context())
	require.True(t, n.isUp("b"))
	require.NoError(t, g.Healthy())
}

// TestSlowRenewalCounts: the time runs from before the request was sent.
func TestSlowRenewalCounts(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a")
	g := n.agent(true)
	slow := heartbeat{renew: func(arm func() error) error {
		n.clock += 3 * time.Second
		return arm()
	}}
	g.Heartbeat = func() Heartbeat { return slow }
	g.beat(t.Context())
	n.clock += limit - 3*time.Second
	require.Error(t, g.Fenced())
}

type heartbeat struct{ renew func(arm func() error) error }

func (h heartbeat) Renew(_ context.Context, _ string, arm func() error) error { return h.renew(arm) }
func (h heartbeat) Retire(context.Context, string) error                      { return nil }

// TestRestartKeepsTheFence: an agent that comes late fences first; one that comes in time does
// not; what it had down it asks for.
func TestRestartKeepsTheFence(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a")
	n.agent(true).beat(t.Context())
	n.clock += limit - 1
	n.agent(true).Enforce()
	require.True(t, n.isUp("a"))
	n.clock++
	n.agent(true).Enforce()
	require.False(t, n.isUp("a"))

	g := n.agent(true)
	n.up[spec("a").Key.String()] = true
	n.asked = core.ErrUnavailable
	g.beat(t.Context())
	require.False(t, g.reclaim(t.Context()))
	g = n.agent(true) // killed after it has renewed, and before it knows
	g.Enforce()
	require.False(t, n.isUp("a"), "it is not known whose it is")
	n.asked = nil
	require.True(t, g.reclaim(t.Context()))
	require.True(t, n.isUp("a"))

	n.boot = "b2" // its pods are gone
	n.records = nil
	n.clock = time.Minute
	g = n.agent(true)
	require.NoError(t, g.Fenced())
	require.Equal(t, "b1", g.former)
}

// TestNoClusterNoFence: a node whose heartbeat was never seen is not fenced; one whose first
// write has no answer is.
func TestNoClusterNoFence(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a")
	n.away = errors.New("no route")
	g := n.agent(true)
	g.beat(t.Context())
	n.clock += time.Hour
	require.NoError(t, g.Fenced())

	lost := heartbeat{renew: func(arm func() error) error { return errors.Join(arm(), errors.New("no answer")) }}
	g.Heartbeat = func() Heartbeat { return lost }
	g.beat(t.Context())
	require.NoError(t, g.Fenced())
	n.clock += limit
	require.Error(t, g.Fenced())
	require.Error(t, n.agent(true).Fenced(), "the next process knows it too")
}

// TestFlagWithoutCluster: who asked for the fence is told that there is none without a cluster.
func TestFlagWithoutCluster(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{true, false} {
		g := newNode(t).agent(on)
		require.NoError(t, g.Healthy())
		g.Heartbeat = func() Heartbeat { return nil }
		if on {
			require.ErrorContains(t, g.Healthy(), "the node does not fence itself")
		} else {
			require.NoError(t, g.Healthy())
		}
	}
}

// TestTurnedOff: without the flag the heartbeat goes first, and the fence stands until it has.
func TestTurnedOff(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a")
	n.agent(true).beat(t.Context())
	n.away = errors.New("no route")
	g := n.agent(false)
	g.beat(t.Context())
	n.clock += limit
	g.Enforce()
	require.False(t, n.isUp("a"))
	n.away = nil
	g.beat(t.Context())
	require.Equal(t, 1, n.retired)
	g.reclaim(t.Context())
	require.True(t, n.isUp("a"))
	n.clock += time.Hour
	require.NoError(t, g.Fenced())
	require.False(t, g.active())
	require.NoFileExists(t, n.file)
}

// TestDamagedFile: who does not know whether others may take the node for dead takes it so.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a")
	require.NoError(t, os.WriteFile(n.file, []byte("{"), 0o600))
	g := n.agent(true)
	g.Enforce()
	require.False(t, n.isUp("a"))
	g.beat(t.Context())
	g.reclaim(t.Context())
	require.True(t, n.isUp("a"))
}

// TestAddMeetsTheFence: an ADD under way ends with the fence, also when the fence is up again
// before the ADD looks; one without leases goes on.
func TestAddMeetsTheFence(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	g := n.agent(true)
	g.beat(t.Context())
	within, end := g.Within(t.Context(), []core.Spec{spec("a")})
	free, endFree := g.Within(t.Context(), []core.Spec{{}})
	_, late := g.Within(t.Context(), []core.Spec{spec("b")})
	require.NoError(t, within.Err())
	n.clock += limit
	require.Error(t, late(), "by the clock, before anybody has looked")
	g.Enforce()
	require.ErrorIs(t, within.Err(), context.Canceled)
	g.beat(t.Context())
	require.NoError(t, g.Fenced())
	require.Equal(t, core.ReasonFenced, core.ReasonOf(end()))
	require.NoError(t, free.Err())
	require.NoError(t, endFree())
}

// TestReplaced: an interface that is made in the place, and by the name, of one that is down is
// not down, also for the next process; one that is not made, as the node is fenced, leaves the
// other what it was.
func TestReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a", "b")
	g := n.agent(true)
	g.beat(t.Context())
	n.clock += limit
	g.Enforce()
	_, end := g.Within(t.Context(), []core.Spec{spec("a")})
	require.Error(t, end())
	n.theirs["a"], n.theirs["b"] = "another has it", "another has it"
	g.beat(t.Context())
	require.True(t, g.reclaim(t.Context()))
	_, down := g.Count()
	require.Equal(t, 2, down)
	require.ErrorContains(t, g.Down(spec("a").Key), "another has it")

	_, end = g.Within(t.Context(), []core.Spec{spec("a")})
	n.up[spec("a").Key.String()] = true
	require.NoError(t, end())
	require.NoError(t, g.Down(spec("a").Key))
	for _, g := range []*Guard{g, n.agent(true)} {
		g.Enforce()
		require.True(t, n.isUp("a"))
		require.False(t, n.isUp("b"))
	}
}

// TestGoneIsForgotten: an interface that is no more is not waited for.
func TestGoneIsForgotten(t *testing.T) {
	t.Parallel()
	n := newNode(t, "a")
	g := n.agent(true)
	g.beat(t.Context())
	n.clock += limit
	g.Enforce()
	n.records = nil
	g.Enforce()
	_, down := g.Count()
	require.Zero(t, down)
}

// killed are links at which the agent dies: before or after the effect.
type killed struct {
	*node
	op    string
	after bool
}

func (k killed) Down(s core.Spec, before Saved) error {
	return k.at("down", func() { _ = k.node.Down(s, before) })
}

func (k killed) Up(s core.Spec, v Saved) error { return k.at("up", func() { _ = k.node.Up(s, v) }) }

func (k killed) at(op string, do func()) error {
	if op != k.op {
		do()
		return nil
	}
	if k.after {
		do()
	}
	panic("killed")
}

// TestKilledAtALink: an agent that dies while it takes links down, or puts them back, is
// followed by one that ends what it had begun.
func TestKilledAtALink(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		n := newNode(t, "a")
		g := n.agent(true)
		g.beat(t.Context())
		n.clock += limit
		g.Links = killed{n, "down", after}
		require.Panics(t, g.Enforce)
		g = n.agent(true)
		g.Enforce()
		require.False(t, n.isUp("a"))

		g.Links = killed{n, "up", after}
		g.beat(t.Context())
		require.Panics(t, func() { _ = g.raise(spec("a").Key.String(), spec("a")) })
		g = n.agent(true)
		g.Enforce()
		require.False(t, n.isUp("a"), "whose it is has to be asked again")
		require.True(t, g.reclaim(t.Context()))
		require.True(t, n.isUp("a"))
	}
}
