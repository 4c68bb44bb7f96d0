package nodeagent

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
	"github.com/fairlead/fairlead/internal/record"
)

// forgetTogether is how long the forgetter waits for more pods to go: a node
// that is drained would else read the whole table at each of them.
const forgetTogether = 200 * time.Millisecond

// lastGone bounds what may have gone within forgetTogether before an agent was
// killed, and a read of the table besides.
const lastGone = 1 << 10

// forgetter is a core.Notices before another: it has the kernel forget the
// connections of pods that are gone, all that went meanwhile at once, because
// the kernel's table must be read as a whole. An address that is given again
// before is forgotten before its pod hears of it.
type forgetter struct {
	next core.Notices // may be nil
	of   *hostport.Table
	log  *slog.Logger

	mu   sync.Mutex
	seq  uint64                // of the last address that went
	gone map[netip.Addr]uint64 // until the kernel has forgotten it
	wake chan struct{}
}

func newForgetter(next core.Notices, of *hostport.Table, log *slog.Logger) *forgetter {
	return &forgetter{next: next, of: of, log: log, gone: map[netip.Addr]uint64{}, wake: make(chan struct{}, 1)}
}

// Attached implements core.Notices.
func (f *forgetter) Attached(r core.Record) {
	if f.awaits(r) {
		f.forget()
	}
	if f.next != nil {
		f.next.Attached(r)
	}
}

// awaits tells that an address of r is about to be forgotten.
func (f *forgetter) awaits(r core.Record) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range r.Specs {
		for _, a := range s.Addrs {
			if _, waits := f.gone[a.Addr()]; waits {
				return true
			}
		}
	}
	return false
}

// Detached implements core.Notices. Only addresses that we gave are ours to
// tell of; those with host ports were forgotten with these.
func (f *forgetter) Detached(r core.Record) {
	done := map[core.Key]bool{}
	for _, s := range r.Specs {
		done[s.Key] = done[s.Key] || s.Driver == hostport.Name
	}
	var gone []netip.Addr
	for _, s := range r.Specs {
		if s.HostIf == "" || done[s.Key] {
			continue
		}
		for _, a := range s.Addrs {
			gone = append(gone, a.Addr())
		}
	}
	f.add(gone)
	if f.next != nil {
		f.next.Detached(r)
	}
}

// recall adds what an agent before this one may not have come to: the last
// addresses that were released, but for those that are in use.
func (f *forgetter) recall(released []core.Released, records []core.Record) {
	held := map[netip.Addr]bool{}
	for _, l := range record.Held(records) {
		for _, a := range l.IPs {
			held[a] = true
		}
	}
	var gone []netip.Addr
	for _, r := range released[max(0, len(released)-lastGone):] {
		for _, a := range r.IPs {
			if !held[a] {
				gone = append(gone, a)
			}
		}
	}
	f.add(gone)
}

func (f *forgetter) add(gone []netip.Addr) {
	if len(gone) == 0 {
		return
	}
	f.mu.Lock()
	for _, a := range gone {
		f.seq++
		f.gone[a] = f.seq
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Failed implements core.Notices.
func (f *forgetter) Failed(a core.Attempt) {
	if f.next != nil {
		f.next.Failed(a)
	}
}

// Run forgets until ctx ends, and then what is left.
func (f *forgetter) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-f.wake:
			select {
			case <-ctx.Done():
			case <-time.After(forgetTogether):
			}
		}
		f.forget()
	}
}

func (f *forgetter) forget() {
	f.mu.Lock()
	gone := maps.Clone(f.gone)
	f.mu.Unlock()
	err := f.of.Forget(slices.Collect(maps.Keys(gone)))
	f.mu.Lock()
	maps.DeleteFunc(f.gone, func(a netip.Addr, seq uint64) bool { return gone[a] == seq })
	f.mu.Unlock()
	if err != nil {
		f.log.Warn("connections of pods that are gone not forgotten", "err", err)
	}
}
