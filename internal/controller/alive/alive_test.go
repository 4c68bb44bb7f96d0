package alive

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// network answers for addresses, as a Line.
type network struct {
	mu    sync.Mutex
	heard func(netip.Addr)
	up    map[netip.Addr]bool
	err   error // of who opens a line
	nodes []Node

	changed func()
}

func (n *network) Close() {}

func (n *network) Ask(to netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.up[to] {
		n.heard(to)
	}
	return nil
}

func (n *network) open(_ context.Context, heard func(netip.Addr)) (Line, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = heard
	return n, n.err
}

func (n *network) follow(_ context.Context, changed func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changed = changed
	return nil
}

func (n *network) whom() []Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes
}

// is changes it.
func (n *network) is(err error, nodes ...Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err, n.nodes = err, nodes
	if n.changed != nil {
		n.changed()
	}
}

func (n *network) set(up bool, ips ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ip := range ips {
		n.up[ip] = up
	}
}

// bed is a Watch of nodes whose looks a test has made one by one.
type bed struct {
	*Watch
	*network
	changes atomic.Int32
}

// newBed has a Watch that has heard all of some nodes.
func newBed(nodes ...Node) *bed {
	b := &bed{network: &network{up: map[netip.Addr]bool{}, nodes: nodes}}
	b.Watch = New(Config{Whom: b.whom, Follow: b.follow, Open: b.open, Changed: func() { b.changes.Add(1) }, Log: slog.New(slog.DiscardHandler)})
	b.network.heard = b.hears
	for _, n := range nodes {
		b.set(true, n.Tunnel, n.Below)
	}
	b.list()
	b.looks(2)
	return b
}

// looks asks and looks so often.
func (b *bed) looks(times int) {
	for range times {
		for _, to := range b.next() {
			_ = b.Ask(to)
		}
		b.look()
	}
}

// node has both addresses, by its number.
func node(name string, i byte) Node {
	return Node{Name: name, Tunnel: netip.AddrFrom4([4]byte{100, 64, 0, i}), Below: netip.AddrFrom4([4]byte{192, 0, 2, i})}
}

// TestSilent: a node that misses four answers in a row is silent, none that misses fewer,
// and it is back when it has answered for five seconds.
func TestSilent(t *testing.T) {
	t.Parallel()
	n1, n2 := node("n1", 1), node("n2", 2)
	b := newBed(n1, n2)
	for range 3 {
		b.set(false, n1.Tunnel, n1.Below)
		b.looks(most - 1)
		b.set(true, n1.Tunnel, n1.Below)
		b.looks(1)
	}
	require.False(t, b.Silent("n1"))
	b.set(false, n1.Tunnel, n1.Below)
	b.looks(most)
	require.True(t, b.Silent("n1"))
	require.False(t, b.Silent("n2"))
	require.EqualValues(t, 1, b.changes.Load())
	b.set(true, n1.Tunnel, n1.Below)
	b.looks(steady - 1)
	require.True(t, b.Silent("n1"))
	b.set(false, n1.Tunnel)
	b.looks(1)
	b.set(true, n1.Tunnel)
	b.looks(steady - 1)
	require.True(t, b.Silent("n1"), "it was not steady")
	b.looks(1)
	require.False(t, b.Silent("n1"))
	require.EqualValues(t, 2, b.changes.Load())
	require.False(t, b.Blind())
}

// TestDataPath: a node whose tunnel leads nowhere is silent though it answers below; one
// that is silent below alone is not.
func TestDataPath(t *testing.T) {
	t.Parallel()
	n1, n2 := node("n1", 1), node("n2", 2)
	b := newBed(n1, n2)
	b.set(false, n1.Tunnel, n2.Below)
	b.looks(2 * most)
	require.True(t, b.Silent("n1"))
	require.False(t, b.Silent("n2"))
}

// TestNeverHeard: one that never answered is silent after five seconds, where others answer.
func TestNeverHeard(t *testing.T) {
	t.Parallel()
	n1, n2, n3 := node("n1", 1), node("n2", 2), node("n3", 3)
	b := newBed(n1, n2)
	b.is(nil, n1, n2, n3)
	b.list()
	b.looks(steady - 1)
	require.False(t, b.Silent("n3"))
	b.looks(1)
	require.True(t, b.Silent("n3"))
	b.set(true, n3.Below)
	b.looks(2 * steady)
	require.True(t, b.Silent("n3"), "its tunnel leads nowhere")
	b.set(true, n3.Tunnel)
	b.looks(steady)
	require.False(t, b.Silent("n3"))

	// Nobody at all was ever heard.
	b = newBed()
	b.is(nil, n1, n2)
	b.list()
	b.looks(2 * steady)
	require.True(t, b.Blind())
	require.Zero(t, b.changes.Load())
}

// TestCannotLook: silence means nothing where nobody is heard, nor while those who
// were cut off come back one after another.
func TestCannotLook(t *testing.T) {
	t.Parallel()
	n1, n2, n3 := node("n1", 1), node("n2", 2), node("n3", 3)
	b := newBed(n1, n2, n3)
	all := []netip.Addr{n1.Tunnel, n2.Tunnel, n3.Tunnel, n1.Below, n2.Below, n3.Below}
	b.set(false, n1.Tunnel, n1.Below) // one answer less than the others
	b.looks(1)
	b.set(false, all...)
	b.looks(10 * most)
	require.True(t, b.Blind())
	b.set(true, n2.Tunnel)
	b.looks(most - 1)
	require.False(t, b.Blind())
	b.set(true, all...)
	b.looks(2)
	require.Zero(t, b.changes.Load())

	// This machine's own tunnels are gone: nobody is dead who is heard below.
	b.set(false, n1.Tunnel, n2.Tunnel, n3.Tunnel)
	b.looks(10 * most)
	require.Zero(t, b.changes.Load())
	require.False(t, b.Blind())
	b.set(false, n1.Below)
	b.looks(most)
	require.True(t, b.Silent("n1"))
	require.False(t, b.Silent("n2"))
}

// TestTwoNodes: of two nodes, of which one looks, a witness tells that the other is dead.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	n1, db := node("n1", 1), node("192.0.2.9", 9)
	db.Tunnel, db.Witness = netip.Addr{}, true
	b := newBed(n1, db)
	b.set(false, n1.Tunnel, n1.Below)
	b.looks(most)
	require.True(t, b.Silent("n1"))
	b.set(true, n1.Tunnel, n1.Below)
	b.looks(steady)
	require.False(t, b.Silent("n1"))
	b.set(false, n1.Tunnel, n1.Below, db.Below)
	b.looks(10 * most)
	require.False(t, b.Silent("n1"), "the witness is silent too")
	require.True(t, b.Blind())

	b = newBed(n1)
	b.set(false, n1.Tunnel, n1.Below)
	b.looks(10 * most)
	require.False(t, b.Silent("n1"), "there is no witness")
	require.True(t, b.Blind())
}

// TestRun: it asks while there is somebody to ask, 1 to 1.25 s after whose end Changed is
// called; where it cannot ask it says so, and tries again.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n1, n2 := node("n1", 1), node("n2", 2)
		b := newBed(n1, n2)
		b.is(errors.New("operation not permitted"), n1, n2)
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = b.Run(ctx) }()
		synctest.Wait()
		require.True(t, b.Blind())
		b.is(nil, n1, n2)
		time.Sleep(10*period + time.Millisecond)
		synctest.Wait()
		require.False(t, b.Blind())
		b.set(false, n1.Tunnel, n1.Below)
		time.Sleep(most * period)
		synctest.Wait()
		require.False(t, b.Silent("n1"))
		time.Sleep(period)
		synctest.Wait()
		require.True(t, b.Silent("n1"))
		require.EqualValues(t, 1, b.changes.Load())

		b.is(nil, Node{Name: "n1", Below: n1.Below, Witness: true})
		time.Sleep(period)
		synctest.Wait()
		require.False(t, b.Silent("n1"), "it is no gateway any more")
		stop()
	})
}

// TestSuspect: a node is suspect half a second before it is silent, and no more when it
// answers; each that comes to be is told. A witness is none, nor is anybody where nobody
// is heard.
func TestSuspect(t *testing.T) {
	t.Parallel()
	n1, n2, n3 := node("n1", 1), node("n2", 2), node("n3", 3)
	n3.Witness = true
	b := newBed(n1, n2, n3)
	told := 0
	b.Suspected = func() { told++ }
	b.set(false, n1.Tunnel, n1.Below, n3.Tunnel, n3.Below)
	b.looks(few - 1)
	require.False(t, b.Suspect("n1"))
	b.looks(1)
	require.True(t, b.Suspect("n1"))
	require.False(t, b.Silent("n1"))
	require.False(t, b.Suspect("n3"), "nobody wants to know")
	b.looks(most)
	require.True(t, b.Silent("n1"))
	require.True(t, b.Suspect("n1"))
	require.Equal(t, 1, told)
	b.set(true, n3.Tunnel, n3.Below)
	b.looks(1)
	b.set(false, n2.Tunnel, n2.Below)
	b.looks(few)
	require.True(t, b.Suspect("n2"))
	require.Equal(t, 2, told)
	b.set(true, n2.Tunnel, n2.Below)
	b.looks(1)
	require.False(t, b.Suspect("n2"))
	require.EqualValues(t, 1, b.changes.Load())

	b = newBed(n1, n2)
	b.set(false, n1.Tunnel, n1.Below, n2.Tunnel, n2.Below)
	b.looks(steady)
	require.False(t, b.Suspect("n1"))
}
