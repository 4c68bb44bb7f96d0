package leases_test

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	netlease "github.com/fairlead/fairlead/internal/network/lease"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

const (
	patience = time.Minute
	tick     = 20 * time.Millisecond
)

// agent is the part of a node's agent that keeps leases, with what its journal has.
type agent struct {
	*leases.Keeper
	t          *testing.T
	c          *kube.Cluster
	node, boot string
	dir        string
	stop       func()

	mu        sync.Mutex
	records   map[string]core.Record // by sandbox
	alive     map[core.Pod]bool
	conflicts map[string]string               // by pod
	by        func(leases.Store) leases.Store // how its next start reaches the API server, nil: as it is
	// undeclared are pods of which nothing is declared any more; asked is called before anybody
	// hears that.
	undeclared map[string]bool
	asked      func()
	unnamed    atomic.Int32         // how often no API server is named yet
	fences     func(core.Spec) bool // what this node takes off the network by itself; nil: nothing
}

// newAgent registers a node that reports a boot, and starts its agent.
func newAgent(t *testing.T, c *kube.Cluster, node, boot string) *agent {
	t.Helper()
	c.RegisterNode(node)
	a := &agent{t: t, c: c, node: node, boot: boot, dir: t.TempDir(), records: map[string]core.Record{}, alive: map[core.Pod]bool{}, conflicts: map[string]string{}}
	c.ReportBoot(node, boot)
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

// start is the agent's start, with what the journal has.
func (a *agent) start() {
	as := login.New(login.Config{Kubeconfig: a.c.AdminKubeconfig(), Node: a.node, UserAgent: "fairlead/test"})
	store := leases.Store(&cluster.Store{Login: as.Current, Node: a.node, BootID: a.boot})
	if a.by != nil {
		store = a.by(store)
	}
	a.Keeper = leases.New(leases.Config{
		Node: a.node, BootID: a.boot, File: filepath.Join(a.dir, "leases.json"), Log: slog.New(slog.DiscardHandler),
		Store: func() leases.Store {
			if a.unnamed.Add(-1) >= 0 {
				return nil
			}
			return store
		},
		Seen:   cluster.NewFollower(as.Current),
		Fences: func(s core.Spec) bool { return a.fences != nil && a.fences(s) },
		Declared: func(_ context.Context, p core.Pod, c core.Claim) bool {
			a.mu.Lock()
			asked := a.asked
			a.mu.Unlock()
			if asked != nil {
				asked()
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			return !a.undeclared[p.String()]
		},
		Gone: func(p core.Pod) (bool, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return !a.alive[p], nil
		},
		Conflict: func(p core.Pod, text string) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.conflicts[p.String()] = text
		},
	})
	var all []core.Record
	for _, r := range a.records {
		all = append(all, r)
	}
	a.Restore(all)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { a.Run(ctx) })
	a.stop = func() { cancel(); wg.Wait() }
}

// pod is a sandbox that claims an address and a MAC.
func pod(name, uid, sandbox string, n int) core.Spec {
	return core.Spec{
		Pod: core.Pod{Namespace: "bank", Name: name, UID: uid}, Key: core.Key{Container: sandbox, IfName: "net1"},
		Claims: []core.Claim{
			{Domain: "db", Addr: netip.AddrFrom4([4]byte{10, 9, byte(n >> 8), byte(n)}), Declared: "PodNetwork bank/" + name},
			{Domain: "db", MAC: core.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)}, Declared: "PodNetwork bank/" + name},
		},
	}
}

// add is an ADD: it binds, and then the journal has it.
func (a *agent) add(ctx context.Context, s core.Spec) error {
	s.Netns.BootID = a.boot
	specs := []core.Spec{s}
	if err := a.Bind(ctx, specs); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records[s.Key.Container] = core.Record{Key: s.Key, Pod: s.Pod, Netns: s.Netns, Phase: core.Added, Specs: specs}
	a.alive[s.Pod] = true
	return nil
}

// del is a DEL: the journal has it no more, and it is given back.
func (a *agent) del(sandbox string) {
	a.mu.Lock()
	r := a.records[sandbox]
	delete(a.records, sandbox)
	delete(a.alive, r.Pod)
	a.mu.Unlock()
	a.Free(r.Specs)
}

// lease is what the API server says of a lease: its phase, holder and epoch.
func lease(t *testing.T, c *kube.Cluster, name string) string {
	t.Helper()
	return c.Kubectl("get", "addressleases.net.fairlead.io", name, "--ignore-not-found", "-o", "jsonpath={.status.phase} {.spec.holder.sandbox} {.spec.holder.node} {.spec.holder.epoch}")
}

func eventually(t *testing.T, want string, have func() string) {
	t.Helper()
	last := ""
	require.Eventually(t, func() bool { last = have(); return last == want }, patience, tick, "want %q", want)
}

// TestOneHolder is the life of a declared address and its MAC: bound, refused to others
// with the holder's name, given back, bound by another node; a release that comes late
// leaves the next holder alone; and the node that is proved dead loses it.
func TestOneHolder(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	first, second := pod("mysql-0", "u1", "s1", 17), pod("mysql-0", "u2", "s2", 17)

	require.NoError(t, n1.add(t.Context(), first))
	require.Equal(t, "Bound s1 n1 1", lease(t, c, "db.10.9.0.17"))
	require.Equal(t, "Bound s1 n1 1", lease(t, c, "db.mac.020000000011"))
	refused := func(a *agent, s core.Spec, code uint, words ...string) {
		t.Helper()
		err := a.add(t.Context(), s)
		require.Error(t, err)
		require.Equal(t, code, core.CodeOf(err), err)
		for _, w := range words {
			require.ErrorContains(t, err, w)
		}
		require.Equal(t, "Bound s1 n1 1", lease(t, c, "db.10.9.0.17"), "nothing changes")
	}
	refused(n2, second, core.CodeTryAgain, "AddressHeld: address 10.9.0.17 in db is held by pod bank/mysql-0 on node n1 since 20")
	mac := pod("other", "u3", "s3", 99)
	mac.Claims[1].MAC = first.Claims[1].MAC
	refused(n2, mac, core.CodeAddress, "MACInUse: MAC 02:00:00:00:00:11 in db is held by pod bank/mysql-0 on node n1")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.99") }) // all or nothing

	n1.del("s1")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.17") })
	require.NoError(t, n2.add(t.Context(), second))
	require.Equal(t, "Bound s2 n2 2", lease(t, c, "db.10.9.0.17"))
	n1.Free([]core.Spec{first}) // DEL once more
	require.NoError(t, n1.add(t.Context(), pod("beside", "u4", "s4", 18)))
	require.Equal(t, "Bound s2 n2 2", lease(t, c, "db.10.9.0.17"))

	again := pod("mysql-0", "u5", "s5", 17)
	require.Error(t, n1.add(t.Context(), again), "n2 is silent, which proves nothing")
	for _, proof := range []struct{ does, undo func() }{
		{func() { c.Kubectl("taint", "node", "n2", "node.kubernetes.io/out-of-service=x:NoExecute") }, func() { c.Kubectl("taint", "node", "n2", "node.kubernetes.io/out-of-service-") }},
		{func() { c.ReportBoot("n2", "boot-3") }, func() { c.ReportBoot("n2", "boot-2") }},
		{func() { c.Kubectl("delete", "node", "n2") }, func() {}},
	} {
		proof.does()
		require.NoError(t, n1.add(t.Context(), again))
		proof.undo()
		n1.del("s5")
		eventually(t, "Reserved", func() string { return lease(t, c, "db.10.9.0.17")[:8] })
		if _, err := c.Client().CoreV1().Nodes().Get(t.Context(), "n2", metav1.GetOptions{}); err == nil {
			require.NoError(t, n2.add(t.Context(), second))
		}
	}
	require.ErrorContains(t, n2.add(t.Context(), second), "there is no Node n2")
}

// TestTwoOfOneName: of two machines that act as one node, the one that Kubernetes does not
// know binds nothing.
func TestTwoOfOneName(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	one := newAgent(t, c, "n1", "boot-1")
	require.NoError(t, one.add(t.Context(), pod("a", "u1", "s1", 17)))
	two := &agent{t: t, c: c, node: "n1", boot: "boot-2", dir: t.TempDir(), records: map[string]core.Record{}, alive: map[core.Pod]bool{}, conflicts: map[string]string{}}
	two.start()
	t.Cleanup(func() { two.stop() })
	for _, p := range []core.Spec{pod("a", "u1", "s9", 17), pod("b", "u2", "s8", 18)} {
		err := two.add(t.Context(), p)
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err))
		require.ErrorContains(t, err, "Node n1 reports boot boot-1")
	}
	require.Equal(t, "Bound s1 n1 1", lease(t, c, "db.10.9.0.17"))
	require.Empty(t, lease(t, c, "db.10.9.0.18"))
}

// TestServerAway: while nobody answers, an ADD works where this node had the lease, and a
// DEL always; what it could not tell is told later, also by the agent's next process.
func TestServerAway(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	require.NoError(t, n1.add(t.Context(), pod("a", "u1", "s1", 17)))
	require.NoError(t, n1.add(t.Context(), pod("b", "u2", "s2", 18)))
	c.Stop()
	n1.del("s1")
	n1.del("s2")
	err := n1.add(t.Context(), pod("c", "u3", "s3", 19))
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err), err)
	err = n1.add(t.Context(), pod("c", "u3", "s3", 17))
	require.Equal(t, core.CodeTryAgain, core.CodeOf(err), "another pod: %v", err)
	require.NoError(t, n1.add(t.Context(), pod("a", "u1", "s4", 17)), "this node had it")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(n1.dir, "leases.json"))
		return err == nil
	}, patience, tick, "it is written once the API server has not answered")
	n1.stop()
	n1.alive[pod("b", "u2", "s2", 18).Pod] = true // it runs on, without that interface
	n1.unnamed.Store(8)
	n1.start()
	require.Eventually(t, func() bool { return n1.unnamed.Load() < 0 }, patience, tick)
	n1.del("s4")
	require.NoError(t, n1.add(t.Context(), pod("a", "u1", "s5", 17)), "the next process knows it, too")
	c.Restart()
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.18") })
	eventually(t, "Bound s5 n1 2", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.17") })
	require.Empty(t, lease(t, c, "db.10.9.0.19"))
}

// deaf is an API server that hears everything, and whose answers do not arrive.
type deaf struct{ leases.Store }

func (d deaf) NodeNow(ctx context.Context, name string) (netlease.Node, error) {
	_, _ = d.Store.NodeNow(ctx, name)
	return netlease.Node{}, core.ErrUnavailable
}

func (d deaf) Bind(context.Context, netlease.Holder, core.Claim, func(netlease.Holder) bool, func() error) (int64, error) {
	return 0, core.ErrUnavailable // it is written no more than it was
}

func (d deaf) Release(ctx context.Context, name string, ours func(netlease.Holder) bool, conflict string) error {
	_ = d.Store.Release(ctx, name, ours, conflict)
	return core.ErrUnavailable
}

// TestAnswerLost: a lease was given back, and the answer did not arrive. Another node has it
// then: that this one had it counts no more, in its next process either.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	require.NoError(t, n1.add(t.Context(), pod("a", "u1", "s1", 17)))
	n1.stop()
	n1.by = func(s leases.Store) leases.Store { return deaf{s} }
	n1.start()
	n1.del("s1")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.17") })
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.mac.020000000011") })
	require.NoError(t, n2.add(t.Context(), pod("a", "u2", "s2", 17)))
	for range 2 {
		err := n1.add(t.Context(), pod("a", "u1", "s3", 17))
		require.Equal(t, core.CodeTryAgain, core.CodeOf(err), err)
		n1.stop()
		n1.start()
	}
	require.Equal(t, "Bound s2 n2 2", lease(t, c, "db.10.9.0.17"))
}

// TestOldSnapshot: the database is what it was before an address was leased. The journal of
// the node that has it has the API server know again; where another node was faster, that
// is told, and nothing is taken from anybody.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	rollBack := c.Snapshot()
	require.NoError(t, n1.add(t.Context(), pod("a", "u1", "s1", 17)))
	require.NoError(t, n1.add(t.Context(), pod("b", "u2", "s2", 18)))
	rollBack()
	require.NoError(t, n2.add(t.Context(), pod("b", "u3", "s3", 18)), "nobody but n1 knows better")
	eventually(t, "Bound s1 n1 2", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.17") })
	told := func() string {
		n1.mu.Lock()
		defer n1.mu.Unlock()
		return n1.conflicts["bank/b"]
	}
	require.Eventually(t, func() bool { n1.Audit(); return told() != "" }, patience, tick)
	require.Contains(t, told(), "is held by pod bank/b on node n2")
	eventually(t, "Conflict s3 n2 1", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.18") })
	require.Equal(t, "AddressConflict: pod bank/b on node n1 has it too, as the journal there says", conflict(c, "db.10.9.0.18"))
	n1.stop()
	n1.start()
	require.Len(t, n1.Conflicts(), 2, "of the address and the MAC, of the process before")
	n2.del("s3")
	eventually(t, "", func() string { n1.Audit(); return told() })
	require.Equal(t, "Bound s2 n1 2", lease(t, c, "db.10.9.0.18"))
	require.Equal(t, ": ", conflict(c, "db.10.9.0.18"))

	rollBack() // and once more, until the pod goes that the API server does not know
	require.NoError(t, n2.add(t.Context(), pod("b", "u3", "s3", 18)))
	eventually(t, "Conflict s3 n2 1", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.18") })
	require.NotEmpty(t, told())
	n1.del("s2")
	eventually(t, "Bound s3 n2 1", func() string { return lease(t, c, "db.10.9.0.18") })
	require.Equal(t, ": ", conflict(c, "db.10.9.0.18"))
	eventually(t, "", told) // the pod may run on without that interface
	require.Eventually(t, func() bool { return len(n1.Conflicts()) == 0 }, patience, tick)
	n1.stop()
	require.NoFileExists(t, filepath.Join(n1.dir, "leases.json"))
}

// conflict is what a lease says of one.
func conflict(c *kube.Cluster, name string) string {
	return c.Kubectl("get", "addressleases.net.fairlead.io", name, "-o", "jsonpath={.status.reason}: {.status.message}")
}

// counted counts the rounds of an agent.
type counted struct {
	leases.Store

	rounds *atomic.Int32
}

func (c counted) Mine(ctx context.Context) ([]cluster.Record, error) {
	c.rounds.Add(1)
	return c.Store.Mine(ctx)
}

// TestAnsweredOnTheWire: a lease that the wire kept from its holder says so, with the MAC that
// answered, until somebody has the address or the pod is gone.
func TestAnsweredOnTheWire(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	s := pod("a", "u1", "s1", 17)
	s.Netns.BootID = n1.boot
	n1.mu.Lock()
	n1.alive[s.Pod] = true
	n1.mu.Unlock()
	refused := func(sandbox string) { // an ADD that comes to its probe
		t.Helper()
		specs := []core.Spec{s}
		specs[0].Key.Container = sandbox
		require.NoError(t, n1.Bind(t.Context(), specs))
		n1.Unusable(specs[0], core.Reasoned(core.CodeTryAgain, core.ReasonAddressConflict, "%w", &core.WireConflict{Addr: s.Claims[0].Addr, MAC: "02:00:00:00:00:99", IfName: "net1"}))
		n1.Free(specs)
		eventually(t, "Conflict", func() string { return strings.Fields(lease(t, c, "db.10.9.0.17"))[0] })
		require.Equal(t, "AddressConflictOnWire: pod bank/a on node n1 was refused: MAC 02:00:00:00:00:99 answers for address 10.9.0.17, which interface net1 is to have to itself",
			conflict(c, "db.10.9.0.17"))
		eventually(t, "Reserved", func() string { return strings.Fields(lease(t, c, "db.mac.020000000011"))[0] }) // nobody asked for the MAC
	}
	refused("s1")
	require.NoError(t, n1.add(t.Context(), pod("a", "u1", "s2", 17)))
	require.Equal(t, "Bound s2 n1 2", lease(t, c, "db.10.9.0.17"))
	require.Equal(t, ": ", conflict(c, "db.10.9.0.17"))
	n1.del("s2")
	eventually(t, "Reserved   2", func() string { return lease(t, c, "db.10.9.0.17") })

	n1.mu.Lock()
	n1.alive[s.Pod] = true
	n1.mu.Unlock()
	refused("s3")
	n1.stop()
	n1.start() // another process of the agent knows it, too
	require.Equal(t, "Conflict   3", lease(t, c, "db.10.9.0.17"))
	n1.mu.Lock()
	delete(n1.alive, s.Pod)
	n1.mu.Unlock()
	eventually(t, "Reserved   3", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.17") })
	require.Equal(t, ": ", conflict(c, "db.10.9.0.17"))

	// Rounds go on while a lease is given back.
	n1.stop()
	rounds, once := &atomic.Int32{}, sync.Once{}
	n1.by = func(s leases.Store) leases.Store { return counted{s, rounds} }
	n1.start()
	n1.mu.Lock()
	n1.alive[s.Pod] = true
	n1.asked = func() {
		once.Do(func() {
			for until := rounds.Load() + 2; rounds.Load() < until; time.Sleep(tick) {
				n1.Audit()
			}
		})
	}
	n1.mu.Unlock()
	refused("s6")
	require.Eventually(t, func() bool { return rounds.Load() >= 2 }, patience, tick)
	n1.mu.Lock()
	delete(n1.alive, s.Pod)
	n1.mu.Unlock()
	eventually(t, "Reserved   4", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.17") })
}

// TestStrays: a lease that no sandbox of the node has, because the agent was killed between
// the claim and its journal, goes in the second round, unless its pod is still there. So does one
// of a pod that is, whose interface has the same address in another domain.
func TestStrays(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	for _, s := range []core.Spec{pod("a", "u1", "s1", 17), pod("b", "u2", "s2", 18)} {
		require.NoError(t, n1.add(t.Context(), s))
		delete(n1.records, s.Key.Container)
	}
	moving := pod("c", "u3", "s4", 19)
	require.NoError(t, n1.add(t.Context(), moving))
	moving.Netns.BootID, moving.Claims = n1.boot, []core.Claim{{Domain: "db.vlan9", Addr: moving.Claims[0].Addr, Declared: "PodNetwork bank/c"}}
	require.NoError(t, n1.Bind(t.Context(), []core.Spec{moving}))
	n1.stop()
	delete(n1.alive, pod("a", "u1", "", 0).Pod)
	n1.start()
	eventually(t, "Reserved   1", func() string { n1.Audit(); return lease(t, c, "db.10.9.0.17") })
	require.Equal(t, "Bound s2 n1 1", lease(t, c, "db.10.9.0.18"))
	eventually(t, "Reserved   1", func() string { n1.Audit(); return lease(t, c, "db.vlan9.10.9.0.19") })
	require.Equal(t, "Bound s4 n1 1", lease(t, c, "db.10.9.0.19"))
	require.NoError(t, n1.add(t.Context(), pod("b", "u2", "s3", 18)), "its pod's next sandbox has it")
	require.Equal(t, "Bound s3 n1 2", lease(t, c, "db.10.9.0.18"))
}

// TestForever: what is retained for ever stays its pod's when nobody declares it any more: no
// other pod is given it, by declaration or from a range, until the lease is deleted.
func TestForever(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	s := pod("a", "u1", "s1", 1)
	for i := range s.Claims {
		s.Claims[i].Forever = true
	}
	require.NoError(t, n1.add(t.Context(), s))
	n1.mu.Lock()
	n1.undeclared = map[string]bool{"bank/a": true}
	n1.mu.Unlock()
	n1.del("s1")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.1") })
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.mac.020000000001") })

	other := pod("b", "u2", "s2", 1)
	err := n2.add(t.Context(), other)
	require.Contains(t, []string{core.ReasonAddressHeld, core.ReasonMACInUse}, core.ReasonOf(err))
	require.ErrorContains(t, err, "is kept for pod bank/a (AddressLease db.")
	other.Claims = other.Claims[:1]
	err = n2.add(t.Context(), other)
	require.Equal(t, []any{core.CodeTryAgain, core.ReasonAddressHeld}, []any{core.CodeOf(err), core.ReasonOf(err)})
	require.ErrorIs(t, n1.add(t.Context(), ranged("c", "u3", "s3", 1)), core.ErrExhausted)
	require.Equal(t, "Reserved   1", lease(t, c, "db.10.9.0.1"))

	s.Key.Container = "s4"
	require.NoError(t, n2.add(t.Context(), s), "its own pod has it, wherever it is")
	c.Kubectl("delete", "node", "n2")
	err = n1.add(t.Context(), other)
	require.ErrorContains(t, err, "is kept for pod bank/a", "also when its node is proved dead")
	require.Equal(t, core.ReasonAddressHeld, core.ReasonOf(err))
	s.Key.Container = "s5"
	require.NoError(t, n1.add(t.Context(), s))
	n1.del("s5")
	eventually(t, "Reserved   3", func() string { return lease(t, c, "db.10.9.0.1") })
	c.Kubectl("delete", "addressleases.net.fairlead.io", "db.10.9.0.1")
	require.NoError(t, n1.add(t.Context(), other))
	n2.stop()
}
