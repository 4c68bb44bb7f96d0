package nodeagent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/hostport"
)

// forgetter is a core.Notices before another: it has the kernel forget the
// connections of pods that are gone, all that went meanwhile at once, because
// the kernel's table must be read as a whole.
type forgetter struct {
	next core.Notices // may be nil
	of   *hostport.Table
	log  *slog.Logger

	mu   sync.Mutex
	gone []netip.Addr
	wake chan struct{}
}

func newForgetter(next core.Notices, of *hostport.Table, log *slog.Logger) *forgetter {
	return &forgetter{next: next, of: of, log: log, wake: make(chan struct{}, 1)}
}

// Attached implements core.Notices.
func (f *forgetter) Attached(r core.Record) {
	if f.next != nil {
		f.next.Attached(r)
	}
}

// Detached implements core.Notices. Only addresses that we gave are ours to
// tell of; those with host ports were forgotten with these.
func (f *forgetter) Detached(r core.Record) {
	done := map[core.Key]bool{}
	for _, s := range r.Specs {
		done[s.Key] = done[s.Key] || s.Driver == hostport.Name
	}
	f.mu.Lock()
	for _, s := range r.Specs {
		if s.HostIf == "" || done[s.Key] {
			continue
		}
		for _, a := range s.Addrs {
			f.gone = append(f.gone, a.Addr())
		}
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	if f.next != nil {
		f.next.Detached(r)
	}
}

// Failed implements core.Notices.
func (f *forgetter) Failed(a core.Attempt) {
	if f.next != nil {
		f.next.Failed(a)
	}
}

// Run forgets until ctx ends.
func (f *forgetter) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.mu.Lock()
		gone := f.gone
		f.gone = nil
		f.mu.Unlock()
		if err := f.of.Forget(gone); err != nil {
			f.log.Warn("connections of pods that are gone not forgotten", "err", err)
		}
	}
}
