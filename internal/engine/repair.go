package engine

import (
	"context"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
)

// Repairs says what Repair looks at.
type Repairs struct {
	// May tells whether an interface may be looked at now.
	May func(rec core.Record, s core.Spec) bool
	// Told hears of each interface that was not as it should be; err is why it is
	// not put right.
	Told func(rec core.Record, s core.Spec, found, err error)
	// Fine hears of the others.
	Fine func(rec core.Record, s core.Spec)
}

// Repair puts right what was changed, outside of the pods, of what the journal
// says is attached: in these containers, in all for nil. It returns those that
// have an operation under way: what they have now is that one's affair, and is
// to be looked at again. The functions of how are called from several
// goroutines.
func (e *Engine) Repair(ctx context.Context, containers []string, how Repairs) (busy []string) {
	if e.fabricKnown() != nil {
		return nil // all is looked at when it comes
	}
	if containers == nil {
		seen := map[string]bool{}
		for _, h := range e.Journal.Heads() {
			if h.Phase == core.Added && !seen[h.Key.Container] {
				seen[h.Key.Container] = true
				containers = append(containers, h.Key.Container)
			}
		}
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		slots = make(chan struct{}, recoverWorkers)
	)
	for _, id := range containers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if e.repairContainer(ctx, id, how) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			busy = append(busy, id)
		})
	}
	wg.Wait()
	return busy
}

// repairContainer is false for a container that is busy.
func (e *Engine) repairContainer(ctx context.Context, id string, how Repairs) bool {
	unlock, ok := e.queue.TryLock(id)
	if !ok {
		return false
	}
	defer unlock()
	for _, rec := range e.Journal.Container(id) {
		if rec.Phase != core.Added || rec.Orphan || rec.Netns.BootID != e.BootID {
			continue
		}
		for _, s := range rec.Specs {
			d, ok := e.Drivers[s.Driver].(driver.Repairer)
			if !ok || ctx.Err() != nil || !how.May(rec, s) {
				continue
			}
			if found, err := d.Repair(ctx, s); found != nil || err != nil {
				how.Told(rec, s, found, err)
			} else {
				how.Fine(rec, s)
			}
		}
	}
	return true
}
