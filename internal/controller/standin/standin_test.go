package standin_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/gateway"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/controller/standin"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// bed is a Keeper that does not lead, beside a leader and a database in memory. The one
// Subnet leaves by n2, or by n1.
type bed struct {
	*standin.Keeper
	mu      sync.Mutex
	alive   bool // the leader answers at once
	stands  bool // a question does
	asked   int
	routes  map[string]ovn.Policy
	changes int
	away    error
	leads   bool
	suspect map[string]bool
	silent  map[string]bool
}

const route = "subnet/web/29000/ip4.src == 10.0.0.0/24"

func by(node string) map[string]ovn.Policy {
	ip := "100.64.0." + node[1:]
	return map[string]ovn.Policy{route: {Match: "ip4.src == 10.0.0.0/24", Action: v1.RouteReroute, Nexthops: []string{ip}, ExternalIDs: map[string]string{node: ip}}}
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{alive: true, routes: by("n2"), suspect: map[string]bool{}, silent: map[string]bool{}}
	nodes := objecttest.Shelf[object.Node]{}
	for _, name := range []string{"n1", "n2"} {
		nodes["/"+name] = object.Node{Name: name, Annotations: map[string]string{v1.AnnChassis: name}}
	}
	web := &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1.SubnetSpec{GatewayType: v1.GatewayCentralized, GatewayNode: "n2,n1"}}
	of := func(is map[string]bool) func(string) bool {
		return func(node string) bool { b.mu.Lock(); defer b.mu.Unlock(); return is[node] }
	}
	b.Keeper = standin.New(standin.Config{
		From: object.Readers{Nodes: nodes, Subnets: objecttest.Shelf[*v1.Subnet]{"/web": web}}, DB: b, ID: "b", Log: slog.New(slog.DiscardHandler), Done: func() {},
		Leads: func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.leads }, Silent: of(b.silent), Suspect: of(b.suspect),
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return b
}

func (b *bed) Routes(string) (map[string]ovn.Policy, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.routes, b.away
}

func (b *bed) Ports() ([]ovn.Port, error) {
	return []ovn.Port{{Name: core.NodePort("n1"), IPs: []netip.Addr{netip.MustParseAddr("100.64.0.1")}}, {Name: core.NodePort("n2"), IPs: []netip.Addr{netip.MustParseAddr("100.64.0.2")}}}, nil
}

func (b *bed) Ask(context.Context, string) (ovn.Question, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	b.stands = !b.alive
	return ovn.Question{}, b.away
}

func (b *bed) Stands(ovn.Question) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stands {
		return ovn.ErrAnswered
	}
	return b.away
}

func (b *bed) StandIn(_ context.Context, _ ovn.Question, owner string, _, now map[string]ovn.Policy) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stands || owner != gateway.Owner {
		return ovn.ErrAnswered
	}
	b.stands, b.routes = false, now
	b.changes++
	return nil
}

// set changes the bed, and pokes the Keeper, which has the time.
func (b *bed) set(change func(), wait time.Duration) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	b.Poke()
	pass(wait)
}

// pass lets time pass until the Keeper waits again, so that the bed may be read.
func pass(wait time.Duration) {
	time.Sleep(wait)
	synctest.Wait()
}

// dies has a node miss answers, and then be silent, as package alive tells it.
func (b *bed) dies(node string) {
	b.set(func() { b.suspect[node] = true }, 500*time.Millisecond)
	b.set(func() { b.silent[node] = true }, time.Millisecond)
}

func (b *bed) back(node string) {
	b.set(func() { delete(b.suspect, node); delete(b.silent, node) }, 20*time.Second)
}

// TestNoLeader: a node that dies with the leader is replaced as soon as it is silent, and
// not before; once.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.set(func() { b.alive, b.suspect["n2"] = false, true }, 10*time.Second)
		require.Equal(t, 1, b.asked)
		require.Zero(t, b.changes, "it is not silent")
		b.back("n2")
		b.dies("n2")
		require.Equal(t, 1, b.changes)
		require.Equal(t, by("n1"), b.routes)
		pass(time.Minute)
		require.Equal(t, 2, b.asked)

		// The leader comes back and sees it otherwise: it is not overruled again.
		b.set(func() { b.routes = by("n2") }, time.Minute)
		require.Equal(t, 1, b.changes)
		b.back("n2")
		b.dies("n2")
		require.Equal(t, 2, b.changes)
	})
}

// TestLivingLeader: a leader that answers is not overruled, however long a node is silent
// from here, and asked more and more rarely; when it answers no more it is.
func TestLivingLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.dies("n2")
		pass(5 * time.Minute)
		require.Zero(t, b.changes)
		require.Less(t, b.asked, 30)
		b.set(func() { b.alive = false }, 17*time.Second)
		require.Equal(t, 1, b.changes)
	})
}

// TestNobodyAsks: a leader does not ask itself; nor is it asked about nodes to which no
// route leads, or where nobody else could be gateway.
func TestNobodyAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.set(func() { b.alive = false }, 0)
		b.dies("n1")
		require.Zero(t, b.asked)
		b.dies("n2")
		pass(time.Minute)
		require.Zero(t, b.changes, "nobody answers")
		require.Equal(t, by("n2"), b.routes)
		b.back("n1")
		require.Equal(t, 1, b.changes, "n1 answers again")
		b.set(func() { b.leads, b.asked, b.routes = true, 0, by("n2") }, 0)
		b.back("n2")
		b.dies("n2")
		require.Zero(t, b.asked)
	})
}

// TestDatabaseAway: what cannot be asked or written is tried again.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.set(func() { b.alive, b.away = false, errors.New("away") }, 0)
		b.dies("n2")
		pass(time.Minute)
		require.Zero(t, b.changes)
		b.set(func() { b.away = nil }, time.Second)
		require.Equal(t, 1, b.changes)
	})
}
