package leases_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// seen is a holder: its node, and the lease's epoch.
type seen struct {
	node  string
	epoch int64
}

// ledger is what is seen from outside: who has which address, from the ADD that succeeded
// to the DEL that began.
type ledger struct {
	mu    sync.Mutex
	has   map[int]string // by address, the sandbox
	last  map[int]seen   // by address, its last holder
	wrong []string
	given int
}

// take enters a holder. Of two holders of an address the later has the higher epoch, so that
// the order that is seen is the one in which the API server has written them; a node that
// nobody answered goes on with what it has.
func (l *ledger) take(n int, sandbox string, h seen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by, ok := l.has[n]; ok {
		l.wrong = append(l.wrong, fmt.Sprintf("address %d: %s and %s", n, by, sandbox))
	}
	if last := l.last[n]; h.epoch < last.epoch || h.epoch == last.epoch && h.node != last.node {
		l.wrong = append(l.wrong, fmt.Sprintf("address %d: %s has epoch %d after %+v", n, sandbox, h.epoch, last))
	}
	l.has[n], l.last[n] = sandbox, h
	l.given++
}

func (l *ledger) leave(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.has, n)
}

// TestRace: eight agents race for addresses, ADDs are cancelled half-way, and agents are
// killed at random, in an ADD too, and start again while their pods run. At no moment two have
// one address: each is held by one pod from its ADD to its DEL. In the end nothing is held
// that no sandbox has.
func TestRace(t *testing.T) {
	t.Parallel()
	const agents = 8
	addresses, steps := 200, 100
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		addresses, steps = 1000, 1500
	}
	c := kube.Start(t, kube.Options{})
	l := &ledger{has: map[int]string{}, last: map[int]seen{}}
	var all []*racer
	var wg sync.WaitGroup
	for i := range agents {
		r := &racer{
			agent: newAgent(t, c, fmt.Sprint("n", i), fmt.Sprint("boot-", i)), ledger: l, addresses: addresses,
			Rand: rand.New(rand.NewPCG(1, uint64(i))), //nolint:gosec // which address it tries
		}
		all = append(all, r)
		wg.Go(func() { r.run(steps) })
	}
	wg.Wait()
	require.Empty(t, l.wrong)
	require.Greater(t, l.given, addresses)
	require.Empty(t, l.has)
	kills := 0
	for _, a := range all { // what killed agents have left is seen twice, and goes
		kills += a.kills
		require.Eventually(t, func() bool { a.Audit(); return len(bound(t, c, a.node)) == 0 }, patience, 10*tick, "leases of %s", a.node)
	}
	require.Positive(t, kills)
	t.Logf("%d addresses were given %d times; agents were killed %d times", addresses, l.given, kills)
}

// racer is an agent with pods that come and go.
type racer struct {
	*agent
	*rand.Rand
	*ledger

	addresses int
	running   []core.Spec
	serial    int
	kills     int
}

// residents is how many pods a racer has at most.
const residents = 8

// run takes so many steps, each an ADD or a DEL, and removes all pods in the end.
func (r *racer) run(steps int) {
	for range steps {
		switch {
		case r.IntN(40) == 0:
			r.kill()
		case len(r.running) == residents || len(r.running) > 0 && r.IntN(2) == 0:
			r.end(r.IntN(len(r.running)))
		default:
			r.begin()
		}
	}
	for len(r.running) > 0 {
		r.end(0)
	}
}

// next is a pod that claims an address at random, and the time that its ADD has.
func (r *racer) next(often int) (s core.Spec, ctx context.Context, stop func(), address int) {
	r.serial++
	address = 1 + r.IntN(r.addresses)
	sandbox := fmt.Sprintf("%s-%d", r.node, r.serial)
	ctx, stop = context.WithCancel(context.Background())
	if r.IntN(often) == 0 {
		time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, stop)
	}
	return pod(fmt.Sprint("p", address), sandbox, sandbox, address), ctx, stop, address
}

func (r *racer) begin() {
	s, ctx, stop, address := r.next(5)
	defer stop()
	if r.add(ctx, s) != nil {
		return
	}
	made := r.records[s.Key.Container].Specs[0]
	r.take(address, s.Key.Container, seen{r.node, made.Claims[0].Epoch})
	r.running = append(r.running, s)
}

func (r *racer) end(at int) {
	s := r.running[at]
	r.running = append(r.running[:at:at], r.running[at+1:]...)
	ip := s.Claims[0].Addr.As4()
	r.leave(int(ip[2])<<8 | int(ip[3]))
	r.del(s.Key.Container)
}

// kill ends the agent in an ADD: what that has bound stands in no journal, and nobody of the
// dead agent gives it back. The next one has what the journal has.
func (r *racer) kill() {
	r.stop()
	s, ctx, stop, _ := r.next(2)
	s.Netns.BootID = r.boot
	_ = r.Bind(ctx, []core.Spec{s}) // whether it came so far nobody knows
	stop()
	r.start()
	r.kills++
}

// bound are the leases of a node.
func bound(t *testing.T, c *kube.Cluster, node string) (out []string) {
	t.Helper()
	list, err := c.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("addressleases")).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.holder.node=" + node})
	require.NoError(t, err)
	for i := range list.Items {
		out = append(out, list.Items[i].GetName())
	}
	return out
}
