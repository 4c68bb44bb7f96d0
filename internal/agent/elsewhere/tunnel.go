package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/icmp"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

// Grace is how long nobody answers through a tunnel before that counts: a node whose
// switch went tells so itself within it.
const Grace = time.Minute

const (
	echoLimit = time.Second
	echoAgain = 3 // requests, before somebody counts as silent
)

// Answers asks more than once, out of a device, "" for any: one packet may be lost.
func Answers(ctx context.Context, device string, to netip.Addr) (err error) {
	for range echoAgain {
		err = icmp.Echo(ctx, device, to, echoLimit)
		if err == nil || ctx.Err() != nil || !errors.Is(err, core.ErrUnavailable) {
			return err
		}
	}
	return err
}

// ErrTunnel is why a node reaches no other one, whose own network is well.
var ErrTunnel = errors.New("no other node answers through a tunnel: is the tunnels' port open between nodes (geneve 6081/udp), is genev_sys_6081 up?")

// Tunnel tells whether the tunnels of OVN lead to other nodes. The node's gateway does
// not: its own flows answer for it. Another node's port in the Subnet join does, and
// one that is silent proves nothing: it may be down, be made anew, or answer no echo.
// So each look asks another node, and where it is silent two more, the one that
// answered last among them. Where all are, those count as cut off that answer an echo
// in the network below, that the API server has as Ready, and that say their own
// network is well. With two nodes both say so then: which of them it is nobody can tell.
type Tunnel struct {
	// Echo has an answer of an address, asked by a device, "" for any.
	Echo  func(ctx context.Context, device string, to netip.Addr) error
	State func(ctx context.Context, node string) (well bool, err error) // see Well
	Grace time.Duration

	turn   int
	last   string    // who answered last
	silent time.Time // since when nobody answers, though some are there; zero for somebody does
	proved time.Time // when that was proved last
	names  []string  // of those who were there
}

// NewTunnel makes one of this namespace; from says what the API server has of others.
func NewTunnel(from Login) Tunnel {
	return Tunnel{
		Echo: Answers, Grace: Grace,
		State: func(ctx context.Context, node string) (bool, error) { return Well(ctx, from, node) },
	}
}

// Look is nil unless nobody answers for as long as Grace; then it wraps ErrTunnel.
func (t *Tunnel) Look(ctx context.Context, peers []share.Peer) error {
	some := t.some(peers)
	if at := slices.IndexFunc(some, func(p share.Peer) bool { return t.Echo(ctx, standalone.JoinPort, p.Join) == nil }); at >= 0 || len(some) == 0 {
		t.silent, t.proved = time.Time{}, time.Time{}
		if at >= 0 {
			t.last = some[at].Name
		}
		return nil
	}
	now := time.Now()
	if t.silent.IsZero() || now.Sub(t.proved) >= t.Grace {
		t.proved = now
		if t.names = t.there(ctx, some); len(t.names) == 0 {
			t.silent = time.Time{}
			return nil
		}
	}
	if t.silent.IsZero() {
		t.silent = now
	}
	if now.Sub(t.silent) < t.Grace {
		return nil
	}
	return fmt.Errorf("%w (there and well: %s)", ErrTunnel, strings.Join(t.names, ", "))
}

// some are those whom this look asks, one after another until one answers.
func (t *Tunnel) some(peers []share.Peer) (out []share.Peer) {
	if len(peers) == 0 {
		return nil
	}
	t.turn = (t.turn + 1) % len(peers)
	out = append(out, peers[t.turn])
	if at := slices.IndexFunc(peers, func(p share.Peer) bool { return p.Name == t.last }); at >= 0 && at != t.turn {
		out = append(out, peers[at])
	}
	if p := peers[(t.turn+len(peers)/2)%len(peers)]; !slices.Contains(out, p) {
		out = append(out, p)
	}
	return out
}

// there are the names of those that are reached below the tunnels and well.
func (t *Tunnel) there(ctx context.Context, some []share.Peer) (names []string) {
	well := make([]bool, len(some))
	var wg sync.WaitGroup
	for i, p := range some {
		wg.Go(func() {
			if t.Echo(ctx, "", p.Below) == nil {
				known, err := t.State(ctx, p.Name)
				well[i] = known && err == nil
			}
		})
	}
	wg.Wait()
	for i, p := range some {
		if well[i] {
			names = append(names, p.Name)
		}
	}
	return names
}
