package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/record"
)

// Pace of the background worker. It sleeps while there is nothing to do; the
// audit only reads memory unless something unfinished is due. What fails is tried
// again after pauses that grow from auditEvery to longestPause: a plugin that
// refuses today rarely obeys ten seconds later, and each try is a process.
const (
	auditEvery     = 10 * time.Second
	longestPause   = 5 * time.Minute
	recoverWorkers = 8
)

// Recover brings the journal and the world together after a start: delegates
// of the dead agent are killed, begun ADDs rolled back, begun DELs rolled
// forward, records of an older boot removed in full, strays swept. It waits for
// nobody: the DELs of foreign plugins, and what cannot be done now (no OVSDB
// yet), are left to Run and Sweep; it tells whether the node holds already what
// the journal says. Call it before serving.
//
// records are all of the journal's. Of a full node's most are whole: they are
// decoded once, by Open.
func (e *Engine) Recover(ctx context.Context, records []core.Record) (swept bool) {
	e.restore(records)
	// What is to be undone is closed by its DEL.
	if err := e.Drivers.Restore(ctx, specsOf(record.ByAge(records), record.Begun)); err != nil {
		e.Log.Error("attachments not restored yet", "err", err)
	}
	for i := range records {
		e.killDelegates(&records[i])
	}
	fail.Here("recover.killed")
	if e.finishOwn(ctx) > 0 {
		records = e.Journal.Records()
		e.wake()
	}
	fail.Here("recover.finished")
	s := sweeping{e: e, records: records}
	if err := s.all(ctx); err != nil {
		e.Log.Error("node not compared with the journal: what nobody has a record of stays until the next try", "err", err)
		return false
	}
	return s.unswept == nil
}

// restore makes IPAM hold what records, which are all of the journal, say.
func (e *Engine) restore(records []core.Record) {
	if err := e.IPAM.Restore(record.Held(records), e.Journal.Released()); err != nil {
		e.Log.Error("two attachments claim one address: the first keeps it", "err", err)
	}
}

// Run finishes in the background what an operation or Recover could not. It
// returns when ctx ends. What is our own waits for no foreign plugin.
func (e *Engine) Run(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	foreign := make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-foreign:
				e.finish(ctx)
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.retry:
		}
		e.finishOwn(ctx)
		select {
		case foreign <- struct{}{}:
		default:
		}
	}
}

// each runs fn for every record that pick chooses, several containers at a
// time, under the container's turn and with the record read afresh, and tells
// how many it chose. Busy containers are left to their own operation.
func (e *Engine) each(pick func(journal.Head) bool, fn func(core.Record)) int {
	picked, count := map[string][]core.Key{}, 0 // of one container one after the other
	for _, h := range e.Journal.Heads() {
		if pick(h) {
			picked[h.Key.Container] = append(picked[h.Key.Container], h.Key)
			count++
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
				if h, ok := e.Journal.Head(key); !ok || !pick(h) {
					continue
				}
				if r, ok := e.Journal.Get(key); ok {
					fn(r)
				}
			}
		})
	}
	wg.Wait()
	return count
}

// unwanted tells a record that is to be undone.
func (e *Engine) unwanted(phase core.Phase, n core.Netns) bool {
	return phase != core.Added || n.BootID != e.BootID
}

// unfinished tells a record that is not whole, or has parts that are not, and
// that does not rest from a failure.
func (e *Engine) unfinished(h journal.Head) bool {
	return (e.unwanted(h.Phase, h.Netns) || h.Parts > 0) && e.pauses.Due(h.Key, time.Now())
}

// finishOwn undoes of every unfinished record what is our own, and tells how many
// it found.
func (e *Engine) finishOwn(ctx context.Context) int {
	return e.each(e.unfinished, func(r core.Record) {
		switch {
		case e.unreachable(r) || record.OnlyForeign(r):
		case e.unwanted(r.Phase, r.Netns):
			e.finished(ctx, &r, e.undoOwn(ctx, nil, &r))
		case record.OwnParts(r):
			e.finishParts(ctx, &r)
		}
	})
}

// finish undoes every unfinished record.
func (e *Engine) finish(ctx context.Context) {
	e.finishRemains(ctx, func(k core.Key) bool { return e.pauses.Due(k, time.Now()) })
	e.each(e.unfinished, func(r core.Record) {
		if ctx.Err() != nil || e.unreachable(r) {
			return
		}
		if e.unwanted(r.Phase, r.Netns) {
			e.finished(ctx, &r, e.undo(ctx, nil, &r))
		} else {
			e.finishParts(ctx, &r)
		}
	})
}

func (e *Engine) finishParts(ctx context.Context, r *core.Record) {
	if err := e.dropParts(ctx, r); err != nil {
		e.Log.Warn("network of a running pod not removed yet", "container", r.Key.Container,
			"again_in", e.pauses.Failed(r.Key, time.Now()), "err", err)
		return
	}
	e.pauses.Forget(r.Key)
}

// unreachable tells a record of which a driver cannot remove its part now, nor be
// told of it.
func (e *Engine) unreachable(r core.Record) bool {
	return slices.ContainsFunc(record.AllSpecs(r), func(s core.Spec) bool {
		_, depends := e.Drivers[s.Driver].(driver.Dependent)
		return depends && e.reachable(s.Driver) != nil
	})
}

// finished says what could not be undone. Where nobody will send a DEL any more,
// because the namespace is gone, that is an orphan.
func (e *Engine) finished(ctx context.Context, r *core.Record, err error) {
	if err == nil {
		return
	}
	if isGone, _ := gone(r.Netns); isGone && !r.Orphan {
		err = e.orphan(ctx, r, err)
	}
	if err != nil {
		e.Log.Warn("unfinished attachment not removed yet", "container", r.Key.Container, "ifname", r.Key.IfName,
			"again_in", e.pauses.Failed(r.Key, time.Now()), "err", err)
	}
}

// finishRemains discards what is left of those ADDs without a record whose
// container, in a key without interface, pick chooses. A busy container's own
// operation does.
func (e *Engine) finishRemains(ctx context.Context, pick func(core.Key) bool) {
	for _, id := range e.remains.Containers() {
		key := core.Key{Container: id}
		if !pick(key) {
			continue
		}
		unlock, ok := e.queue.TryLock(id)
		if !ok {
			continue
		}
		err := e.settle(ctx, nil, id)
		unlock()
		if err != nil {
			e.Log.Warn("ADD without a record not undone yet", "container", id, "again_in", e.pauses.Failed(key, time.Now()), "err", err)
			continue
		}
		e.pauses.Forget(key)
	}
}
