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
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// ledger is what is seen from outside: who has which address, from the ADD that succeeded
// to the DEL that began.
type ledger struct {
	mu    sync.Mutex
	has   map[int]string // by address, the sandbox
	twice []string
	given int
}

func (l *ledger) take(n int, sandbox string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if by, ok := l.has[n]; ok {
		l.twice = append(l.twice, fmt.Sprintf("address %d: %s and %s", n, by, sandbox))
	}
	l.has[n] = sandbox
	l.given++
}

func (l *ledger) leave(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.has, n)
}

// TestRace: eight agents race for addresses, ADDs are cancelled half-way, and agents are
// killed and start again. At no moment two have one address: each is held by one pod from
// its ADD to its DEL. In the end nothing is held that no sandbox has.
func TestRace(t *testing.T) {
	t.Parallel()
	const agents = 8
	addresses := 200
	if os.Getenv("FAIRLEAD_SOAK") != "" {
		addresses = 1000
	}
	c := kube.Start(t, kube.Options{})
	l := &ledger{has: map[int]string{}}
	var all []*agent
	var wg sync.WaitGroup
	for i := range agents {
		a := newAgent(t, c, fmt.Sprint("n", i), fmt.Sprint("boot-", i))
		all = append(all, a)
		wg.Go(func() { race(t, a, l, addresses) })
	}
	wg.Wait()
	require.Empty(t, l.twice)
	require.Greater(t, l.given, addresses)
	t.Logf("%d addresses were given %d times", addresses, l.given)

	for _, a := range all { // what killed agents have left is seen twice, and goes
		require.Eventually(t, func() bool { a.Audit(); return len(bound(t, c, a.node)) == 0 }, patience, 10*tick, "leases of %s", a.node)
	}
	require.Empty(t, l.has)
}

// race has an agent run pods with random addresses: each comes, stays for a moment and goes.
func race(t *testing.T, a *agent, l *ledger, addresses int) {
	r := rand.New(rand.NewPCG(1, uint64(len(a.node)+int(a.node[1])))) //nolint:gosec // which address it tries
	for i := range 3 * addresses / 8 {
		if i%40 == 39 { // killed: what its journal has is there again
			a.stop()
			a.start()
		}
		n, sandbox := 1+r.IntN(addresses), fmt.Sprintf("%s-%d", a.node, i)
		s := pod(fmt.Sprint("p", n), sandbox, sandbox, n)
		ctx, stop := context.WithCancel(context.Background())
		if r.IntN(5) == 0 {
			time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, stop)
		}
		if a.add(ctx, s) == nil {
			l.take(n, sandbox)
			l.leave(n)
			a.del(sandbox)
		}
		stop()
	}
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
