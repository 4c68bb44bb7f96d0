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
	log  *slog.Logger

	mu   sync.Mutex
	gone []netip.Addr
	wake chan struct{}
}

func newForgetter(next core.Notices, log *slog.Logger) *forgetter {
	return &forgetter{next: next, log: log, wake: make(chan struct{}, 1)}
}

// Attached implements core.Notices.
func (f *forgetter) Attached(r core.Record) {
	if f.next != nil {
		f.next.Attached(r)
	}
}

// Detached implements core.Notices. Only addresses that we gave are ours to
// tell of.
func (f *forgetter) Detached(r core.Record) {
	f.mu.Lock()
	for _, s := range r.Specs {
		if s.HostIf == "" {
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
		if err := hostport.Forget(nil, gone); err != nil {
			f.log.Warn("connections of pods that are gone not forgotten", "err", err)
		}
	}
}
