package leases_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/agent/leases"
	"github.com/fairlead/fairlead/internal/core"
	netlease "github.com/fairlead/fairlead/internal/network/lease"
	cluster "github.com/fairlead/fairlead/internal/source/cluster/lease"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// ranged is a sandbox that gets one of the addresses 10.9.x.1 and following, n of them.
func ranged(name, uid, sandbox string, n int) core.Spec {
	s := pod(name, uid, sandbox, 0)
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}) }
	s.Claims = []core.Claim{{Domain: "db", Pool: &core.Pool{Label: "range db", Bits: 16, Ranges: []core.AddrRange{{From: at(1), To: at(n)}}}}}
	return s
}

// chosen is an ADD that gets an address.
func (a *agent) chosen(s core.Spec) string {
	a.t.Helper()
	require.NoError(a.t, a.add(a.t.Context(), s))
	return a.has(s.Key.Container)
}

// has is the address that a sandbox has.
func (a *agent) has(sandbox string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.records[sandbox].Specs[0].Claims[0].Addr.String()
}

// TestChosen: the lowest address of which there is no lease comes first, then the one that is
// free for the longest time; one that is reserved or held is nobody else's, until its node is
// proved dead.
func TestChosen(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1, n2 := newAgent(t, c, "n1", "boot-1"), newAgent(t, c, "n2", "boot-2")
	fixed := pod("fixed", "u0", "s0", 2)
	fixed.Claims = fixed.Claims[:1]
	require.NoError(t, n2.add(t.Context(), fixed))
	n2.del("s0")
	eventually(t, "Reserved   1", func() string { return lease(t, c, "db.10.9.0.2") })

	require.Equal(t, "10.9.0.1", n1.chosen(ranged("a", "u1", "s1", 4)))
	require.Equal(t, "Bound s1 n1 1", lease(t, c, "db.10.9.0.1"))
	eventually(t, "10.9.0.3", func() string { return n2.chosen(ranged("b", "u2", "s2", 4)) })
	require.Equal(t, "10.9.0.4", n1.chosen(ranged("c", "u3", "s3", 4)))

	err := n2.add(t.Context(), ranged("d", "u4", "s4", 4))
	require.ErrorIs(t, err, core.ErrExhausted)
	require.Equal(t, core.CodeAddress, core.CodeOf(err))
	require.ErrorContains(t, err, "range db: no free address")
	require.Len(t, bound(t, c, "n1"), 2)

	n1.del("s3")
	eventually(t, "Releasing   1", func() string { return lease(t, c, "db.10.9.0.4") })
	n1.del("s1")
	eventually(t, "Releasing   1", func() string { return lease(t, c, "db.10.9.0.1") })
	longest := ranged("d", "u4", "s4", 4)
	require.Eventually(t, func() bool { return n2.add(t.Context(), longest) == nil }, patience, tick, "it is known to be free a moment later")
	require.Contains(t, []string{"10.9.0.4", "10.9.0.1"}, n2.has("s4"))
	require.Eventually(t, func() bool { return n2.add(t.Context(), ranged("e", "u5", "s5", 4)) == nil }, patience, tick)
	require.Equal(t, "Reserved   1", lease(t, c, "db.10.9.0.2"))

	f := ranged("f", "u6", "s6", 4)
	require.ErrorIs(t, n1.add(t.Context(), f), core.ErrExhausted)
	n1.mu.Lock()
	n1.undeclared = map[string]bool{"bank/fixed": true}
	n1.mu.Unlock()
	require.NoError(t, n1.add(t.Context(), f), "nobody declares it any more")
	require.Equal(t, "10.9.0.2", n1.has("s6"))

	g := ranged("g", "u7", "s7", 4)
	require.ErrorIs(t, n1.add(t.Context(), g), core.ErrExhausted, "a silent node proves nothing")
	c.Kubectl("delete", "node", "n2")
	require.Eventually(t, func() bool { return n1.add(t.Context(), g) == nil }, patience, tick)
	n2.stop()
}

// asking notes of which holders it was asked whether they are dead.
type asking struct {
	leases.Store
	mu  sync.Mutex
	all []netlease.Holder
}

func (s *asking) NodeOf(ctx context.Context, h netlease.Holder) (netlease.Node, error) {
	s.mu.Lock()
	s.all = append(s.all, h)
	s.mu.Unlock()
	return s.Store.NodeOf(ctx, h)
}

// TestFencedOfANode: where a node fences some of what its pods have, it is asked for as one that
// does, whichever of them comes first.
func TestFencedOfANode(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n2 := newAgent(t, c, "n2", "boot-2")
	n2.fences = func(s core.Spec) bool { return s.Pod.Name == "b" }
	for i, name := range []string{"a", "b", "c"} {
		s := ranged(name, "u"+name, "s"+name, 3)
		require.Equal(t, fmt.Sprintf("10.9.0.%d", i+1), n2.chosen(s))
	}
	n1 := newAgent(t, c, "n1", "boot-1")
	n1.stop()
	store := &asking{}
	n1.by = func(s leases.Store) leases.Store { store.Store = s; return store }
	n1.start()
	require.Eventually(t, func() bool {
		require.Error(t, n1.add(t.Context(), ranged("d", "ud", "sd", 3)))
		store.mu.Lock()
		defer store.mu.Unlock()
		return len(store.all) > 0
	}, patience, tick)
	require.True(t, store.all[0].SelfFence)
}

// TestChosenTwice: a pod whose agent was killed after the claim has the same address with its
// next sandbox, as long as nobody has given it back.
func TestChosenTwice(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	s := ranged("a", "u1", "s1", 1)
	require.Equal(t, "10.9.0.1", n1.chosen(s))
	n1.stop()
	delete(n1.records, "s1")
	n1.start()
	other := s
	other.Key.IfName = "net2"
	require.ErrorIs(t, n1.add(t.Context(), other), core.ErrExhausted, "its other interface has not")
	require.Equal(t, "10.9.0.1", n1.chosen(ranged("a", "u1", "s2", 1)))
	require.Equal(t, "Bound s2 n1 2", lease(t, c, "db.10.9.0.1"))
}

// TestAllOrNothing: where one of two pools has no address left, nothing of the other is kept.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n1 := newAgent(t, c, "n1", "boot-1")
	require.Equal(t, "10.9.0.1", n1.chosen(ranged("a", "u1", "s1", 1)))
	s := ranged("b", "u2", "s2", 4)
	s.Claims = append(s.Claims, ranged("", "", "", 1).Claims...)
	require.ErrorIs(t, n1.add(t.Context(), s), core.ErrExhausted)
	eventually(t, "Releasing   1", func() string { return lease(t, c, "db.10.9.0.2") })
}

// TestIdle: whoever looks knows the chosen addresses that nobody has any more, also those that
// the wire kept from their last holder, and none that is held or declared.
func TestIdle(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	for i, of := range []string{
		`{phase: Releasing}`, `{phase: Conflict, reason: AddressConflictOnWire}`, `{phase: Reserved}`, `{phase: Bound}`, `{phase: Conflict, reason: AddressConflict}`,
	} {
		spec, holder := fmt.Sprintf("{domain: db, address: 10.9.0.%d, owner: {namespace: bank, pod: a, interface: net1}", i), "{epoch: 1}"
		switch i {
		case 2:
			spec += ", declaredBy: PodNetwork bank/a"
		case 3, 4:
			holder = "{podUID: u, sandbox: s, node: n1, bootID: b, epoch: 1}"
		}
		spec += ", holder: " + holder
		c.Apply(fmt.Sprintf("{apiVersion: net.fairlead.io/v1alpha1, kind: AddressLease, metadata: {name: db.10.9.0.%d}, spec: %s}, status: {since: 2026-01-01T00:00:00Z, %s}", i, spec, of[1:]))
	}
	f := cluster.NewFollower(func() (login.Login, error) { return login.Login{REST: c.Admin()}, nil })
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	require.NoError(t, f.Known(t.Context()))
	require.ElementsMatch(t, []string{"db.10.9.0.0", "db.10.9.0.1"}, f.Idle(time.Now()))
}

// TestChosenAlone: without a cluster the journal is the book.
func TestChosenAlone(t *testing.T) {
	t.Parallel()
	k := leases.New(leases.Config{Node: "n1", BootID: "b", File: filepath.Join(t.TempDir(), "leases.json"), Log: slog.New(slog.DiscardHandler)})
	add := func(sandbox string) (core.Spec, error) {
		s := ranged(sandbox, sandbox, sandbox, 2)
		all := []core.Spec{s}
		err := k.Bind(t.Context(), all)
		return all[0], err
	}
	one, err := add("s1")
	require.NoError(t, err)
	_, err = add("s2")
	require.NoError(t, err)
	_, err = add("s3")
	require.ErrorIs(t, err, core.ErrExhausted)
	k.Free([]core.Spec{one})
	again, err := add("s3")
	require.NoError(t, err)
	require.Equal(t, "10.9.0.1", again.Claims[0].Addr.String())
}

// TestPool: pods of eight agents get all addresses of a pool that has just as many, at once,
// each one of its own.
func TestPool(t *testing.T) {
	t.Parallel()
	const agents, pods, turns = 8, 5, 5
	const each = pods * turns
	c := kube.Start(t, kube.Options{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	has := map[string][]string{}
	began := time.Now()
	for i := range agents {
		a := newAgent(t, c, fmt.Sprint("n", i), fmt.Sprint("boot-", i))
		for first := range pods {
			wg.Go(func() {
				for turn := range turns {
					sandbox := fmt.Sprintf("%s-%d", a.node, first*turns+turn)
					s := ranged(sandbox, sandbox, sandbox, agents*each)
					served := assert.Eventually(t, func() bool { return a.add(t.Context(), s) == nil }, patience, tick, "a busy server may not answer in time: kubelet asks again")
					if !served {
						return
					}
					mu.Lock()
					has[a.has(sandbox)] = append(has[a.has(sandbox)], sandbox)
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, has, agents*each, "each has one of its own")
	t.Logf("%d addresses in %s", len(has), time.Since(began))
	list, err := c.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("addressleases")).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, agents*each)
}
