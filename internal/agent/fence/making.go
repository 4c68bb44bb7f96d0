package fence

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/record"
)

// making is an ADD under way.
type making struct {
	cancel context.CancelCauseFunc
	fell   error // the fence, meanwhile
}

// Within is ctx for as long as what specs claim may be on the network. It is for who makes
// them: end is called when the journal says that they are made, and is why they are to be
// unmade, be it that the fence is up again by then: it may not have seen them.
func (g *Guard) Within(ctx context.Context, specs []core.Spec) (within context.Context, end func() error) {
	if !record.Claims(specs) {
		return ctx, func() error { return nil }
	}
	within, cancel := context.WithCancelCause(ctx)
	m := &making{cancel: cancel}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.making[m] = struct{}{}
	if err := g.fenced(); err != nil {
		m.fall(err)
	}
	return within, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.making, m)
		if err := g.fenced(); err != nil {
			m.fall(err)
		}
		cancel(nil)
		return m.fell
	}
}

func (m *making) fall(err error) {
	if m.fell == nil {
		m.fell = err
		m.cancel(err)
	}
}
