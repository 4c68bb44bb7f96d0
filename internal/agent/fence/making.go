package fence

import (
	"context"
	"slices"

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
// unmade, be it that the fence is up again by then: it may not have seen them. What was
// known of interfaces of their names that were down is forgotten: they are others.
func (g *Guard) Within(ctx context.Context, specs []core.Spec) (within context.Context, end func() error) {
	if !record.Claims(specs) {
		return ctx, func() error { return nil }
	}
	g.replaced(specs)
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

// replaced forgets interfaces that are down and in whose place others are made. While the
// fence is fallen none are.
func (g *Guard) replaced(specs []core.Spec) {
	is := func(s core.Spec) bool { _, down := g.known(s.Key.String()); return down }
	if !slices.ContainsFunc(specs, is) {
		return
	}
	g.links.Lock() // nobody is about to take down, or put up, what it found by the name
	defer g.links.Unlock()
	g.mu.Lock()
	fallen := g.fenced() != nil
	for _, s := range specs {
		if !fallen {
			g.forget(s.Key.String())
		}
	}
	g.mu.Unlock()
	_ = g.save() // it says so itself
}

// forget is for an interface that is not down any more. The caller holds mu.
func (g *Guard) forget(k string) {
	delete(g.state.Down, k)
	delete(g.theirs, k)
	delete(g.failed, k)
}

func (m *making) fall(err error) {
	if m.fell == nil {
		m.fell = err
		m.cancel(err)
	}
}
