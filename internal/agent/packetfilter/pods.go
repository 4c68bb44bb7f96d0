package packetfilter

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/internal/core"
)

// Pods is a core.Notices before another: the packet filter knows the node's own pods, a
// moment after each ADD and DEL.
type Pods struct {
	core.Notices
	keep func() error
	log  *slog.Logger
	poke chan struct{}
}

// NewPods has keep called, by Run, when a pod came or went.
func NewPods(next core.Notices, keep func() error, log *slog.Logger) *Pods {
	return &Pods{Notices: next, keep: keep, log: log, poke: make(chan struct{}, 1)}
}

// Attached implements core.Notices.
func (p *Pods) Attached(r core.Record) { p.Poke(); p.Notices.Attached(r) }

// Detached implements core.Notices.
func (p *Pods) Detached(r core.Record) { p.Poke(); p.Notices.Detached(r) }

// Poke has keep called soon. It does not block.
func (p *Pods) Poke() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. What fails the next audit finds.
func (p *Pods) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.poke:
		}
		if err := p.keep(); err != nil {
			p.log.Warn("set of the node's own pods not written: the next audit does it", "err", err)
		}
	}
}
