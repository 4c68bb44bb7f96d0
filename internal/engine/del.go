package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/driver/exec"
	"github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/fail"
	"github.com/fairlead/fairlead/internal/guest"
	"github.com/fairlead/fairlead/internal/plan"
	"github.com/fairlead/fairlead/internal/record"
	"github.com/fairlead/fairlead/internal/resolve"
	"github.com/fairlead/fairlead/internal/trace"
)

// Del takes a container's networks away. It needs only the journal: not the
// namespace, the configuration or any source. Any number of DELs succeed; an
// error means that the namespace lives and something could not be removed.
func (e *Engine) Del(ctx context.Context, req core.Request) (err error) {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	if req.Token != "" {
		return nil // joined addresses go with the record that they stand in
	}
	ctx, stop := context.WithTimeout(ctx, delDeadline)
	defer stop()
	t, rec := trace.New(e.Observer), core.Record{}
	defer func() {
		e.Observer.OpDone(core.Del, mainDriver(rec), time.Since(t.Start), err)
		if err != nil {
			e.noteFailure(core.Del, req, t, err)
		}
	}()
	e.queue.Supersede(req.Key.Container, errSuperseded)
	unlock, err := e.Lock(ctx, req.Key.Container)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err = e.remove(driver.WithTimer(ctx, t.Step), req)
	return err
}

// remove is Del in the container's turn. It returns the record that it went by.
func (e *Engine) remove(ctx context.Context, req core.Request) (core.Record, error) {
	if err := e.settle(ctx, req.Key.Container); err != nil {
		e.Log.Warn("ADD without a record not undone yet", "container", req.Key.Container, "err", err)
	}
	var err error
	rec, ok := e.Journal.Get(req.Key)
	if !req.Conf.AddressesOnly() {
		rec, ok, err = e.inherit(ctx, req, rec, ok)
	}
	if ok {
		err = e.undo(ctx, &rec)
		if err != nil && !alive(rec.Netns) {
			err = e.orphan(ctx, &rec, err)
		}
	}
	if (!ok || adopted(rec)) && !req.Conf.AddressesOnly() {
		if !ok && !e.Journal.Whole() {
			err = e.delLost(ctx, req)
		}
		e.delUnknown(ctx, req)
	}
	return rec, err
}

// delLost is the DEL of a container that a lost journal has known: its device is
// there, and its port in OVSDB until that can be read. The DEL is recorded, so
// that Adopt does not take the port for a living one's, and is finished by
// whoever can. A node that has no switch never learns that its journal is whole:
// without a device there is nothing to record.
func (e *Engine) delLost(ctx context.Context, req core.Request) error {
	rec := core.Record{
		Key: req.Key, Network: req.Conf.Name, Pod: req.Pod, Netns: e.unknownNetns(req), Phase: core.Deleting,
		Created: time.Now().UTC(), Begun: 1,
	}
	rec.Specs = []core.Spec{{Key: req.Key, Driver: ovs.Name, HostIf: plan.HostIf(req.Key), Netns: rec.Netns}}
	_, held := e.holder(req.Key)
	d, ok := e.Drivers[ovs.Name].(driver.Finder)
	if held || !ok || !d.Left(rec.Specs[0]) {
		return nil
	}
	if err := e.Journal.Begin(ctx, rec); err != nil {
		return err
	}
	err := e.undo(ctx, &rec)
	if err != nil && !alive(rec.Netns) {
		err = e.orphan(ctx, &rec, err)
	}
	return err
}

// undo detaches whatever a record's specs may have made, in reverse, and
// forgets the record. A failing Detach does not stop the others; then the
// record stays, Deleting, and undo may be called again. It has a deadline of
// its own: the context that began the work may be over.
func (e *Engine) undo(ctx context.Context, rec *core.Record) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), rollbackDeadline)
	defer stop()
	done := driver.Time(ctx, "journal.delete")
	err := e.markDeleting(ctx, rec)
	done(err)
	if err != nil && rec.Delivered {
		return err
	}
	// An undelivered ADD is undone also when the disk is full: what stands in
	// the journal leads to the same end.
	fail.Here("undo.recorded")
	if err := e.detachAll(ctx, rec); err != nil {
		rec.Error = err.Error()
		return errors.Join(err, e.Journal.Save(ctx, *rec))
	}
	fail.Here("undo.detached")
	done = driver.Time(ctx, "journal.forget")
	err = e.forget(ctx, rec)
	done(err)
	fail.Here("undo.forgotten")
	return err
}

// discard is undo for a record that the journal refused: nothing of it is
// durable, so its addresses are as if never given.
func (e *Engine) discard(ctx context.Context, rec *core.Record) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), rollbackDeadline)
	defer stop()
	if err := e.detachAll(ctx, rec); err != nil {
		e.remains.Add(*rec) // what is left may still use the addresses
		return err
	}
	e.cancel(rec)
	return nil
}

// settle discards again what is left of a container's ADDs that the journal never
// had. The caller has its turn.
func (e *Engine) settle(ctx context.Context, id string) error {
	var errs []error
	for _, rec := range e.remains.Take(id) {
		errs = append(errs, e.discard(ctx, &rec))
	}
	return errors.Join(errs...)
}

// cancel gives up leases that never became durable.
func (e *Engine) cancel(rec *core.Record) {
	for _, l := range rec.Leases {
		e.IPAM.Cancel(l)
	}
	rec.Leases = nil
}

func (e *Engine) markDeleting(ctx context.Context, rec *core.Record) error {
	e.killDelegates(rec)
	record.Fold(rec)
	if rec.Phase != core.Added && len(rec.Procs) == 0 {
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
		if err := exec.KillGroup(p); err != nil {
			e.Log.Error("delegate's process group not killed", "container", rec.Key.Container, "pgid", p.PGID, "err", err)
		}
	}
}

func (e *Engine) detachAll(ctx context.Context, rec *core.Record) error {
	return e.detach(ctx, rec, rec.Specs[:min(rec.Begun, len(rec.Specs))])
}

// detach removes what some specs of a record may have made, the last one first.
func (e *Engine) detach(ctx context.Context, rec *core.Record, specs []core.Spec) error {
	var errs []error
	ctx, end := e.invite(ctx, &guest.Host{Rec: rec}, func(ctx context.Context, p core.Proc) error {
		if p == (core.Proc{}) {
			return nil // it ends with the agent
		}
		rec.Procs = append(rec.Procs, p)
		return e.Journal.Save(ctx, *rec)
	})
	defer end()
	for _, s := range slices.Backward(specs) {
		d, err := e.driver(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done := driver.Time(ctx, "detach."+s.Driver)
		err = d.Detach(ctx, s)
		done(err)
		if err != nil {
			errs = append(errs, err)
		}
		fail.Here("undo.one")
	}
	return errors.Join(errs...)
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
	rec.Leases = nil
	e.dropLeftovers(rec.Leftovers)
	e.timelines.Delete(rec.Key)
	if !lent(*rec) {
		e.Notices.Detached(*rec)
	}
	return nil
}

// orphan keeps a record whose namespace is gone for the background worker and
// lets the DEL succeed.
func (e *Engine) orphan(ctx context.Context, rec *core.Record, cause error) error {
	rec.Orphan, rec.Error = true, cause.Error()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), rollbackDeadline)
	defer stop()
	if err := e.Journal.Save(ctx, *rec); err != nil {
		return errors.Join(cause, err)
	}
	e.Log.Warn("attachment orphaned: removal goes on in the background",
		"container", rec.Key.Container, "ifname", rec.Key.IfName, "err", cause)
	e.Kick()
	return nil
}

// delUnknown does what can be done for a container that the journal never saw
// (attached before a migration), or knows from OVSDB alone (Adopt): our own
// port of that name, and a DEL for the foreign plugins that the configuration
// and the pod's annotations name. What another attachment of the container has
// stays. It is best effort and always succeeds.
func (e *Engine) delUnknown(ctx context.Context, req core.Request) {
	wants, err := resolve.Resolve(ctx, resolve.FromMemory{Source: e.Source}, e.input(req))
	if err != nil {
		e.Log.Info("DEL of an unknown container: networks cannot be told", "container", req.Key.Container, "err", err)
		wants = nil
	}
	if req.Key.Container == "" || req.Key.IfName == "" {
		return
	}
	ns := e.unknownNetns(req)
	specs := []core.Spec{{Key: req.Key, Driver: ovs.Name, HostIf: plan.HostIf(req.Key), Netns: ns}}
	for _, w := range wants {
		key := core.Key{Container: req.Key.Container, IfName: w.IfName}
		for _, s := range w.Steps {
			if s.Exec != nil {
				call := *s.Exec
				call.Path = slices.Concat(e.Node.BinDirs, call.Path) // as plan does
				specs = append(specs, core.Spec{Key: key, Driver: exec.Name, Exec: &call, Pod: req.Pod, Netns: ns})
			} else if key != req.Key {
				specs = append(specs, core.Spec{Key: key, Driver: ovs.Name, HostIf: plan.HostIf(key), Netns: ns})
			}
		}
	}
	ctx, end := e.inviteNobody(ctx, req.Key)
	defer end()
	for _, s := range slices.Backward(specs) {
		if held, ok := e.holder(s.Key); ok && held != req.Key {
			continue
		}
		if err := e.Drivers[s.Driver].Detach(ctx, s); err != nil {
			e.Log.Info("DEL of an unknown container: best effort failed", "container", req.Key.Container, "err", err)
		}
	}
}

// holder is the attachment that has an interface.
func (e *Engine) holder(key core.Key) (core.Key, bool) {
	for _, rec := range e.Journal.Container(key.Container) {
		for _, s := range record.AllSpecs(rec) {
			if s.Key == key {
				return rec.Key, true
			}
		}
	}
	return core.Key{}, false
}

// unknownNetns is the namespace a DEL names, unless it is the host's or one
// that a recorded container lives in: a path can be reused, and without a
// record there is no cookie to prove whose it is.
func (e *Engine) unknownNetns(req core.Request) core.Netns {
	ns, err := e.identify(req.Netns)
	if err != nil {
		return core.Netns{}
	}
	for _, h := range e.Journal.NetnsHeads(ns) {
		if h.Key.Container != req.Key.Container {
			return core.Netns{}
		}
	}
	return ns
}
