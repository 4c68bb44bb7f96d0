package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/fail"
	"github.com/fairlead/fairlead/internal/record"
)

// Pace of the background worker. It sleeps while there is nothing to do; the
// audit only reads memory unless something is unfinished.
const (
	auditEvery     = 10 * time.Second
	recoverWorkers = 8
)

// Recover brings the journal and the world together after a start: delegates
// of the dead agent are killed, begun ADDs rolled back, begun DELs rolled
// forward, records of an older boot removed in full, strays swept. What cannot
// be done now (no OVSDB yet) is left to Run. Call it before serving.
func (e *Engine) Recover(ctx context.Context) {
	e.restoreLeases()
	records := e.Journal.Records()
	for i := range records {
		e.killDelegates(&records[i])
	}
	fail.Here("recover.killed")
	e.finish(ctx)
	fail.Here("recover.finished")
	if err := e.Sweep(ctx); err != nil {
		e.Log.Error("switch and journal do not agree yet", "err", err)
	}
}

// restoreLeases makes IPAM hold what the journal says.
func (e *Engine) restoreLeases() {
	records := e.Journal.Records()
	// A lease of a live attachment comes before one that is being removed.
	slices.SortStableFunc(records, func(a, b core.Record) int { return cmp.Compare(rank(a), rank(b)) })
	var leases []core.Lease
	for _, r := range records {
		leases = append(leases, record.AllLeases(r)...)
	}
	if err := e.IPAM.Restore(leases, e.Journal.Released()); err != nil {
		e.Log.Error("two attachments claim one address", "err", err)
	}
}

func rank(r core.Record) int {
	if r.Phase == core.Added {
		return 0
	}
	return 1
}

// Run finishes in the background what an operation or Recover could not. It
// returns when ctx ends.
func (e *Engine) Run(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			e.finish(ctx)
		case <-e.retry:
			e.finish(ctx)
		}
	}
}

// each runs fn for every record that pick chooses, several containers at a
// time, under the container's turn and with the record read afresh. Busy
// containers are left to their own operation.
func (e *Engine) each(pick func(core.Record) bool, fn func(core.Record)) {
	picked := map[string][]core.Key{} // of one container one after the other
	for _, r := range e.Journal.Records() {
		if pick(r) {
			picked[r.Key.Container] = append(picked[r.Key.Container], r.Key)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, recoverWorkers)
	for id, keys := range picked {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			unlock, ok := e.queue.TryLock(id)
			if !ok {
				return
			}
			defer unlock()
			for _, key := range keys {
				if r, ok := e.Journal.Get(key); ok && pick(r) {
					fn(r)
				}
			}
		})
	}
	wg.Wait()
}

// finish undoes every record that is not whole, and every part of one that is.
func (e *Engine) finish(ctx context.Context) {
	unwanted := func(r core.Record) bool { return r.Phase != core.Added || r.Netns.BootID != e.BootID }
	unfinished := func(r core.Record) bool { return unwanted(r) || len(r.Parts) > 0 }
	e.each(unfinished, func(r core.Record) {
		if e.fabricKnown() != nil && record.UsesFabric(r) {
			return
		}
		if !unwanted(r) {
			if err := e.dropParts(ctx, &r); err != nil {
				e.Log.Warn("network of a running pod not removed yet", "container", r.Key.Container, "err", err)
			}
			return
		}
		err := e.undo(ctx, &r)
		if err != nil && !r.Orphan && !alive(r.Netns) {
			err = e.orphan(ctx, &r, err)
		}
		if err != nil {
			e.Log.Warn("unfinished attachment not removed yet", "container", r.Key.Container, "ifname", r.Key.IfName, "err", err)
		}
	})
}
