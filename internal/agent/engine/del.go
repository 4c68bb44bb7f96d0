package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
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
	t, rec := core.NewTrace(e.Observer), core.Record{}
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
	rec, err = e.remove(ctx, t.Step, req)
	return err
}

// remove is Del in the container's turn. It returns the record that it went by.
func (e *Engine) remove(ctx context.Context, t driver.Timer, req core.Request) (core.Record, error) {
	if err := e.settle(ctx, t, req.Key.Container); err != nil {
		e.Log.Warn("ADD without a record not undone yet", "container", req.Key.Container, "err", err)
	}
	var err error
	rec, ok := e.Journal.Get(req.Key)
	if !req.Conf.AddressesOnly() {
		if rec, ok, err = e.inherit(ctx, t, req, rec, ok); err != nil {
			return rec, err // the DEL is sent again
		}
	}
	if ok {
		err = e.delRecord(ctx, t, &rec)
	}
	if (!ok || adopted(rec)) && !req.Conf.AddressesOnly() {
		ns, look := e.unknownNetns(req)
		if look != nil {
			return rec, errors.Join(err, look)
		}
		if !ok && !e.Journal.Whole() {
			err = e.delLost(ctx, t, req, ns)
		}
		e.delUnknown(ctx, t, req, ns)
	}
	return rec, err
}

// delRecord is the DEL of what the journal has. An orphan's was answered before;
// what is left of it goes on beside whoever asks.
func (e *Engine) delRecord(ctx context.Context, t driver.Timer, rec *core.Record) error {
	if rec.Orphan {
		if !record.OnlyForeign(*rec) {
			e.finished(ctx, rec, e.undoOwn(ctx, t, rec))
		}
		e.pauses.Forget(rec.Key) // somebody asks
		e.wake()
		return nil
	}
	return e.answerDel(ctx, rec, e.undo(ctx, t, rec))
}

// delLost is the DEL of a container that a lost journal has known: its device is
// there, and its port in OVSDB until that can be read. The DEL is recorded, so
// that Adopt does not take the port for a living one's, and is finished by
// whoever can. A node that has no switch never learns that its journal is whole:
// without a device there is nothing to record.
func (e *Engine) delLost(ctx context.Context, t driver.Timer, req core.Request, ns core.Netns) error {
	rec := core.Record{
		Key: req.Key, Network: req.Conf.Name, Pod: req.Pod, Netns: ns, Phase: core.Deleting,
		Created: time.Now().UTC(),
	}
	if _, held := e.holder(req.Key); held {
		return nil
	}
	for _, s := range e.Drivers.Guess(req.Key, ns) {
		if d, ok := e.Drivers[s.Driver].(driver.Finder); ok && d.Left(s) {
			rec.Specs = append(rec.Specs, s)
		}
	}
	if rec.Begun = len(rec.Specs); rec.Begun == 0 {
		return nil
	}
	if err := e.Journal.Begin(ctx, rec); err != nil {
		return err
	}
	return e.answerDel(ctx, &rec, e.undo(ctx, t, &rec))
}

// settle discards again what is left of a container's ADDs that the journal never
// had. The caller has its turn.
func (e *Engine) settle(ctx context.Context, t driver.Timer, id string) error {
	var errs []error
	for _, rec := range e.remains.Take(id) {
		errs = append(errs, e.discard(ctx, t, &rec))
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

// delUnknown does what can be done for a container that the journal never saw
// (attached before a migration), or knows from OVSDB alone (Adopt): our own
// port of that name, and a DEL for the foreign plugins that the configuration
// and the pod's annotations name. What another attachment of the container has
// stays. It is best effort and always succeeds.
func (e *Engine) delUnknown(ctx context.Context, t driver.Timer, req core.Request, ns core.Netns) {
	in := e.input(req)
	in.OVN = false // nobody waits for an address any more
	wants, err := resolve.Resolve(ctx, resolve.FromMemory{Source: e.Source}, in)
	if err != nil {
		e.Log.Info("DEL of an unknown container: its networks are not known, and only our own port is removed",
			"container", req.Key.Container, "err", err)
		wants = nil
	}
	if req.Key.Container == "" || req.Key.IfName == "" {
		return
	}
	specs := e.Drivers.Guess(req.Key, ns)
	for _, w := range wants {
		key := core.Key{Container: req.Key.Container, IfName: w.IfName}
		for _, s := range w.Steps {
			if s.Kind() == core.KindDelegate {
				call := *s.Exec
				call.Path = slices.Concat(e.Node.BinDirs, call.Path) // as plan does
				specs = append(specs, core.Spec{Key: key, Driver: core.DriverExec, Exec: &call, Pod: req.Pod, Netns: ns})
			} else if key != req.Key {
				specs = append(specs, e.Drivers.Guess(key, ns)...)
			}
		}
	}
	specs = slices.DeleteFunc(specs, func(s core.Spec) bool {
		held, ok := e.holder(s.Key)
		return ok && held != req.Key
	})
	foreign := foreignPatience(ctx)
	run, end := e.inviteNobody(t, req.Key)
	defer end()
	e.detachUnknown(ctx, run, specs, record.Own, patience{time.Now().Add(ownDeadline)})
	e.detachUnknown(ctx, run, specs, record.Foreign, foreign)
}

// detachUnknown does so for the specs that pick chooses, the last one first. As in
// an undoing, each has a deadline of its own.
func (e *Engine) detachUnknown(ctx context.Context, run driver.Run, specs []core.Spec, pick func(core.Spec) bool, p patience) {
	specs = slices.DeleteFunc(slices.Clone(specs), func(s core.Spec) bool { return !pick(s) })
	for i, s := range slices.Backward(specs) {
		one, stop := context.WithTimeout(ctx, p.share(i+1))
		if err := e.detachOne(one, run, s); err != nil {
			e.Log.Info("DEL of an unknown container: one of its networks not undone", "container", s.Key.Container, "err", err)
		}
		stop()
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
// record there is no cookie to prove whose it is. The error says that it could
// not be looked at.
func (e *Engine) unknownNetns(req core.Request) (core.Netns, error) {
	ns, err := e.identify(req.Netns)
	if errors.Is(err, core.ErrNetnsGone) || errors.Is(err, errHostNetns) {
		return core.Netns{}, nil
	}
	if err != nil {
		return core.Netns{}, err
	}
	for _, h := range e.Journal.NetnsHeads(ns) {
		if h.Key.Container != req.Key.Container {
			return core.Netns{}, nil
		}
	}
	return ns, nil
}
