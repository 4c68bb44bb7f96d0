package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/agent/callback"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/record"
)

// How long an undoing may take: each spec, all of our own, all of foreign
// plugins, and the whole with what is written. The whole is below delDeadline.
const (
	specDeadline    = 10 * time.Second
	ownDeadline     = 15 * time.Second
	foreignDeadline = 25 * time.Second
	leastForeign    = 10 * time.Second // where a DEL has waited for its turn
	undoDeadline    = 48 * time.Second
)

// patience is how long one spec may take: its share of what all have together.
type patience struct{ until time.Time }

func (p patience) share(left int) time.Duration {
	return max(min(specDeadline, time.Until(p.until)/time.Duration(left)), time.Second)
}

// foreignPatience is what the plugins of an operation get that ctx is for.
func foreignPatience(ctx context.Context) patience {
	d := foreignDeadline
	if end, ok := ctx.Deadline(); ok {
		d = max(min(d, time.Until(end)), leastForeign)
	}
	return patience{time.Now().Add(d)}
}

// undo detaches whatever a record's specs may have made and forgets the record:
// our own first, which wait for nobody, then the foreign plugins; each group in
// reverse. Each spec is undone by itself and has a deadline of its own: a Detach
// that fails or hangs stops no other, and keeps only its own part of the record,
// Deleting; what is detached is gone with its lease. undo may be called again.
// The context that began the work may be over.
func (e *Engine) undo(ctx context.Context, t driver.Timer, rec *core.Record) error {
	r, err := e.undoWhole(ctx, t, rec)
	if err != nil {
		return err
	}
	return r.err()
}

// undoWhole is undo that tells by spec what could not be undone. The error says
// that the journal could not be written.
func (e *Engine) undoWhole(ctx context.Context, t driver.Timer, rec *core.Record) (*removal, error) {
	foreign := foreignPatience(ctx)
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoDeadline)
	defer stop()
	r, err := e.beginUndo(ctx, t, rec)
	if err != nil {
		return r, err
	}
	r.detach(ctx, record.Own, patience{time.Now().Add(ownDeadline)})
	r.detach(ctx, record.Foreign, foreign)
	err = r.close(ctx)
	return r, err
}

// undoOwn is undo without the foreign plugins.
func (e *Engine) undoOwn(ctx context.Context, t driver.Timer, rec *core.Record) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoDeadline)
	defer stop()
	r, err := e.beginUndo(ctx, t, rec)
	if err != nil {
		return err
	}
	r.detach(ctx, record.Own, patience{time.Now().Add(ownDeadline)})
	return errors.Join(r.close(ctx), r.err())
}

// beginUndo records that the record is to go.
func (e *Engine) beginUndo(ctx context.Context, t driver.Timer, rec *core.Record) (*removal, error) {
	done := t.Step("journal.delete")
	err := e.markDeleting(ctx, rec)
	done(err)
	if err != nil && rec.Delivered {
		return nil, err
	}
	// An undelivered ADD is undone also when the disk is full: what stands in
	// the journal leads to the same end.
	fail.Here("undo.recorded")
	return e.removal(t, rec, rec.Specs[:min(rec.Begun, len(rec.Specs))]), nil
}

// removal is the undoing of some specs of a record.
type removal struct {
	e     *Engine
	time  driver.Timer
	rec   *core.Record
	specs []core.Spec
	done  []bool // by spec
	errs  []error
}

func (e *Engine) removal(t driver.Timer, rec *core.Record, specs []core.Spec) *removal {
	return &removal{e: e, time: t, rec: rec, specs: specs, done: make([]bool, len(specs)), errs: make([]error, len(specs))}
}

// detach removes what those specs that pick chooses may have made, the last one
// first.
func (r *removal) detach(ctx context.Context, pick func(core.Spec) bool, p patience) {
	todo := 0
	for i, s := range r.specs {
		if !r.done[i] && pick(s) {
			todo++
		}
	}
	if todo == 0 {
		return
	}
	run, end := r.e.invite(r.time, &callback.Host{Rec: r.rec}, r.runs)
	defer end()
	for i, s := range slices.Backward(r.specs) {
		if r.done[i] || !pick(s) {
			continue
		}
		limit := p.share(todo)
		todo--
		one, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit.Round(time.Second)))
		r.errs[i] = r.e.detachOne(one, run, s)
		stop()
		r.done[i] = r.errs[i] == nil
		fail.Here("undo.one")
	}
}

// runs journals the process of a plugin before it is fed.
func (r *removal) runs(ctx context.Context, p core.Proc) error {
	if p == (core.Proc{}) {
		return nil // it ends with the agent
	}
	r.rec.Procs = append(r.rec.Procs, p)
	return r.e.Journal.Save(ctx, *r.rec)
}

func (e *Engine) detachOne(ctx context.Context, run driver.Run, s core.Spec) error {
	d, err := e.driver(s)
	if err != nil {
		return err
	}
	done := run.Time.Step("detach." + s.Driver)
	err = d.Detach(ctx, run, s)
	done(err)
	return err
}

// left are the specs that are still to be undone, in their order.
func (r *removal) left() []core.Spec {
	var out []core.Spec
	for i, s := range r.specs {
		if !r.done[i] {
			out = append(out, s)
		}
	}
	return out
}

// err is why some could not be undone, the last spec's first: as it went.
func (r *removal) err() error {
	errs := slices.Clone(r.errs)
	slices.Reverse(errs)
	return errors.Join(errs...)
}

// close makes durable what was undone: the record goes, or what is left of it
// stays. Nothing is written where nothing has changed.
func (r *removal) close(ctx context.Context) error {
	left := r.left()
	if len(left) == 0 {
		fail.Here("undo.detached")
		done := r.time.Step("journal.forget")
		err := r.e.forget(ctx, r.rec)
		done(err)
		fail.Here("undo.forgotten")
		return err
	}
	rest, free := record.Remain(*r.rec, left)
	if err := r.err(); err != nil {
		rest.Error = err.Error()
	}
	if len(left) == len(r.rec.Specs) && len(free)+len(r.rec.Procs) == 0 && rest.Error == r.rec.Error {
		return nil
	}
	err := r.e.shed(ctx, r.rec, rest, free)
	fail.Here("undo.shed")
	return err
}

// shed puts rest in the place of a record and frees the leases that it has not
// any more: first in the journal, then in memory, as forget does.
func (e *Engine) shed(ctx context.Context, rec *core.Record, rest core.Record, free []core.Lease) error {
	var released []core.Released
	for _, l := range free {
		released = append(released, e.IPAM.Retire(l))
	}
	if err := e.Journal.Shed(ctx, rest, released); err != nil {
		return err
	}
	for _, l := range free {
		e.IPAM.Release(l)
	}
	e.Leases.Free(record.Without(record.AllSpecs(*rec), record.AllSpecs(rest)))
	*rec = rest
	return nil
}

// discard is undo for a record that the journal refused: nothing of it is
// durable, so its addresses are as if never given.
func (e *Engine) discard(ctx context.Context, t driver.Timer, rec *core.Record) error {
	foreign := foreignPatience(ctx)
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoDeadline)
	defer stop()
	record.Unmade(rec)
	r := e.removal(t, rec, rec.Specs[:min(rec.Begun, len(rec.Specs))])
	r.detach(ctx, record.Own, patience{time.Now().Add(ownDeadline)})
	r.detach(ctx, record.Foreign, foreign)
	left := r.left()
	if len(left) == 0 {
		e.cancel(rec)
		e.Leases.Free(rec.Specs)
		return nil
	}
	rest, free := record.Remain(*rec, left)
	for _, l := range free {
		e.IPAM.Cancel(l)
	}
	e.Leases.Free(record.Without(rec.Specs, rest.Specs))
	*rec = rest
	e.remains.Add(rest) // what is left may still use its addresses
	return r.err()
}

// markDeleting records that a record goes, and how the ADDs of its plugins
// failed: that decides about their DELs.
func (e *Engine) markDeleting(ctx context.Context, rec *core.Record) error {
	e.killDelegates(rec)
	record.Unmade(rec)
	record.Fold(rec)
	refused := slices.ContainsFunc(rec.Specs, func(s core.Spec) bool { return record.Foreign(s) && s.Exec.Failed != nil && s.Exec.Failed.Code != 0 })
	if rec.Phase != core.Added && len(rec.Procs) == 0 && (rec.Phase == core.Deleting || !refused) {
		return nil // Adding already means: roll back
	}
	rec.Phase, rec.Procs = core.Deleting, nil
	return e.Journal.Save(ctx, *rec)
}

// killDelegates ends the plugins that a dead agent left running: a roll-back
// beside a running ADD would lose the race. Those of an earlier boot are gone,
// and their numbers mean other processes now.
func (e *Engine) killDelegates(rec *core.Record) {
	if rec.Netns.BootID != e.BootID {
		return
	}
	for _, p := range rec.Procs {
		if err := e.Drivers.Kill(p); err != nil {
			e.Log.Error("delegate's process group not killed", "container", rec.Key.Container, "pgid", p.PGID, "err", err)
		}
	}
}

// forget drops the record and frees its leases: first in the journal, then in
// memory, so that nobody can be given an address that a crash would give back.
func (e *Engine) forget(ctx context.Context, rec *core.Record) error {
	var released []core.Released
	for _, l := range rec.Leases {
		released = append(released, e.IPAM.Retire(l))
	}
	if err := e.Journal.Forget(ctx, rec.Key, released); err != nil {
		return err
	}
	for _, l := range rec.Leases {
		e.IPAM.Release(l)
	}
	e.Leases.Free(record.AllSpecs(*rec))
	rec.Leases = nil
	e.dropFormerFiles(rec.FormerFiles)
	e.timelines.Delete(rec.Key)
	e.pauses.Forget(rec.Key)
	if !lent(*rec) {
		e.Notices.Detached(*rec)
	}
	return nil
}

// answerDel is what a DEL answers that could not undo all. While the namespace
// lives it is an error, so that the runtime repeats it; once the namespace is
// proven gone, and where nothing is left but plugins whose ADD never succeeded,
// it is success, and the removal goes on in the background.
func (e *Engine) answerDel(ctx context.Context, rec *core.Record, err error) error {
	if err == nil {
		return nil
	}
	if rec.Phase != core.Deleting || !record.NeverMade(*rec) {
		isGone, look := gone(rec.Netns)
		if !isGone {
			return errors.Join(err, look)
		}
	}
	return e.orphan(ctx, rec, err)
}

// orphan keeps what is left of a record for the background worker and lets the
// DEL succeed. The addresses of foreign plugins are free: for the runtime there
// is nobody any more who could use them.
func (e *Engine) orphan(ctx context.Context, rec *core.Record, cause error) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), ownDeadline)
	defer stop()
	rest, free := record.WithoutForeignLeases(*rec)
	rest.Orphan, rest.Error = true, cause.Error()
	if err := e.shed(ctx, rec, rest, free); err != nil {
		return errors.Join(cause, err)
	}
	e.Log.Warn("attachment orphaned: removal goes on in the background",
		"container", rec.Key.Container, "ifname", rec.Key.IfName, "err", cause)
	e.wake()
	return nil
}
