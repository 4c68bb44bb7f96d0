package fence_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/agent/fence"
	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

const (
	patience = time.Minute
	tick     = 50 * time.Millisecond
)

// machine is a node's keeper of leases and its fence, with a wire to the API server that can
// be cut and clocks that a test turns.
type machine struct {
	*leases.Keeper
	*fence.Guard
	t    *testing.T
	name string
	wire *wire
	// now is the clock of the fence, seen that of what it observes of others.
	now, seen atomic.Int64

	mu        sync.Mutex
	up        map[string]bool
	records   []core.Record
	conflicts map[string]string
}

// wire leads to the API server.
type wire struct {
	to   string
	cut  atomic.Bool
	mu   sync.Mutex
	open []net.Conn
}

func (w *wire) serve(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.to) //nolint:noctx // it ends with the test
		if err != nil || w.cut.Load() {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.open = append(w.open, from, to)
		w.mu.Unlock()
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
	}
}

func (w *wire) sever(cut bool) {
	w.cut.Store(cut)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

func newMachine(t *testing.T, c *kube.Cluster, name string) *machine {
	t.Helper()
	c.RegisterNode(name)
	boot := "boot-" + name
	c.ReportBoot(name, boot)
	server, err := url.Parse(c.URL())
	require.NoError(t, err)
	m := &machine{t: t, name: name, wire: &wire{to: server.Host}, up: map[string]bool{}, conflicts: map[string]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(); m.wire.sever(true) })
	go m.wire.serve(l)
	as := c.Admin()
	as.Host = "https://" + l.Addr().String()
	from := login.New(login.Config{Kubeconfig: c.Kubeconfig(as), Node: name, UserAgent: "fairlead/test"})
	m.now.Store(int64(time.Hour))
	store := &lease.Store{Login: from.Current, Node: name, BootID: boot, Namespace: "default", Clock: func() time.Duration { return time.Duration(m.seen.Load()) }}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	m.Keeper = leases.New(leases.Config{
		Node: name, BootID: boot, File: filepath.Join(dir, "leases.json"), Log: log, Store: func() leases.Store { return store },
		Seen: lease.NewFollower(from.Current), Fences: func(core.Spec) bool { return true }, Gone: func(core.Pod) (bool, error) { return false, nil },
		Conflict: func(p core.Pod, text string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.conflicts[p.Name] = text
		},
	})
	m.Guard = fence.New(fence.Config{
		On: true, BootID: boot, File: filepath.Join(dir, "fence.json"), Now: func() time.Duration { return time.Duration(m.now.Load()) }, Links: m, Reclaim: m.Reclaim, Log: log,
		Heartbeat: func() fence.Heartbeat { return store }, Tell: func(core.Pod, string) {},
		Records: func() []core.Record {
			m.mu.Lock()
			defer m.mu.Unlock()
			return append([]core.Record{}, m.records...)
		},
	})
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { m.Keeper.Run(ctx) })
	wg.Go(func() { m.Guard.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	return m
}

// Look implements fence.Links.
func (m *machine) Look(core.Spec) (fence.Saved, error) { return fence.Saved{}, nil }

// Down implements fence.Links.
func (m *machine) Down(s core.Spec, _ fence.Saved) error { return m.set(s, false) }

// Up implements fence.Links.
func (m *machine) Up(s core.Spec, _ fence.Saved) error { return m.set(s, true) }

func (m *machine) set(s core.Spec, up bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up[s.Pod.Name] = up
	return nil
}

func (m *machine) isUp(pod string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up[pod]
}

func (m *machine) add(pod, sandbox, addr string) error {
	s := core.Spec{
		Pod: core.Pod{Namespace: "bank", Name: pod, UID: sandbox}, Key: core.Key{Container: sandbox, IfName: "net1"}, Netns: core.Netns{BootID: "boot-" + m.name},
		Claims: []core.Claim{{Domain: "db", Addr: netip.MustParseAddr(addr), Declared: "PodNetwork bank/" + pod}},
	}
	specs := []core.Spec{s}
	if err := m.Fenced(); err != nil {
		return err
	}
	if err := m.Bind(m.t.Context(), specs); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, core.Record{Key: s.Key, Pod: s.Pod, Netns: s.Netns, Phase: core.Added, Specs: specs})
	m.up[pod] = true
	return nil
}

// TestSelfFence: a node that is cut off from the API server takes what it leases off the network
// before another node has it, which it has when it has seen the heartbeat unchanged for
// long enough. Back again, the node puts up what is its own still, and nothing else.
func TestSelfFence(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	a, b := newMachine(t, c, "a"), newMachine(t, c, "b")
	pass := func(d time.Duration) { // of b's own fence no time passes: it renews by timers
		a.now.Add(int64(d))
		b.seen.Add(int64(d))
	}
	beats := func(node string) string {
		return c.Kubectl("-n", "default", "get", "lease", "fairlead-node-"+node, "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity} {.spec.leaseDurationSeconds}")
	}
	for _, n := range []string{"a", "b"} {
		require.Eventually(t, func() bool { return beats(n) == "boot-"+n+" 40" }, patience, tick)
	}
	require.NoError(t, a.add("mysql", "s1", "10.9.0.3"))
	require.NoError(t, a.add("redis", "s2", "10.9.0.4"))
	require.Equal(t, "true", c.Kubectl("get", "nal", "db.10.9.0.3", "-o", "jsonpath={.spec.holder.selfFence}"))

	a.wire.sever(true)
	require.ErrorContains(t, b.add("mysql", "s3", "10.9.0.3"), "AddressHeld")
	require.True(t, a.isUp("mysql"))
	pass(lease.Proof - time.Second)
	require.Eventually(t, func() bool { return !a.isUp("mysql") && !a.isUp("redis") }, patience, tick)
	require.ErrorContains(t, b.add("mysql", "s3", "10.9.0.3"), "AddressHeld", "the heartbeat may be renewed yet")
	require.ErrorContains(t, a.add("late", "s4", "10.9.0.5"), "NodeFenced")
	pass(time.Second)
	require.NoError(t, b.add("mysql", "s3", "10.9.0.3"))
	require.False(t, a.isUp("mysql"))

	a.wire.sever(false)
	require.Eventually(t, func() bool { return a.isUp("redis") }, patience, tick)
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.conflicts["mysql"] != ""
	}, patience, tick)
	require.False(t, a.isUp("mysql"))
	require.True(t, b.isUp("mysql"))
	require.Equal(t, "b Conflict", c.Kubectl("get", "nal", "db.10.9.0.3", "-o", "jsonpath={.spec.holder.node} {.status.phase}"))
}

// TestHeartbeatGoesWithItsNode: Kubernetes deletes the heartbeat of a node that was removed. One
// that lives, and has a Node again, has a heartbeat again.
func TestHeartbeatGoesWithItsNode(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{Control: true})
	newMachine(t, c, "living")
	removed := newMachine(t, c, "removed")
	owner := func(node string) string {
		return c.Kubectl("-n", "default", "get", "lease", "fairlead-node-"+node, "--ignore-not-found", "-o", "jsonpath={.metadata.ownerReferences[0].uid}")
	}
	node := func(name string) string { return c.Kubectl("get", "node", name, "-o", "jsonpath={.metadata.uid}") }
	for _, n := range []string{"living", "removed"} {
		require.Eventually(t, func() bool { return owner(n) == node(n) }, patience, tick)
	}
	former := node("living")
	removed.wire.sever(true)
	c.Kubectl("delete", "node", "living", "removed")
	c.RegisterNode("living")
	require.NotEqual(t, former, node("living"))
	require.Eventually(t, func() bool { return owner("living") == node("living") }, 2*patience, tick)
	require.Eventually(t, func() bool { return owner("removed") == "" }, patience, tick)
}

// TestHeartbeatWithoutNode: a heartbeat is written also where its Node cannot be looked at.
func TestHeartbeatWithoutNode(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	c.Kubectl("create", "role", "leases", "-n", "default", "--resource=leases.coordination.k8s.io", "--verb=get,create,update")
	c.Kubectl("create", "rolebinding", "leases", "-n", "default", "--role=leases", "--user=leaser")
	from := login.New(login.Config{Kubeconfig: c.Kubeconfig(c.User("leaser")), Node: "a", UserAgent: "fairlead/test"})
	store := &lease.Store{Login: from.Current, Node: "a", BootID: "boot-a", Namespace: "default"}
	require.Eventually(t, func() bool { _, err := from.Current(); return err == nil }, patience, tick)
	_, err := store.NodeNow(t.Context(), "a")
	require.ErrorContains(t, err, "forbidden")
	require.Eventually(t, func() bool { return store.Renew(t.Context(), "", func() error { return nil }) == nil }, patience, tick) // rights take effect a little later
	require.Equal(t, "boot-a", c.Kubectl("-n", "default", "get", "lease", "fairlead-node-a", "-o", "jsonpath={.spec.holderIdentity}"))
}
