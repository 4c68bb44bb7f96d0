package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/agent/callback"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/allocated"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Answer is a finished ADD: what the journal keeps and the CNI result in the
// caller's version. Of a call that joined another operation's record it has the
// link that it asked for and no more.
type Answer struct {
	Record core.Record
	Result []byte
}

// addition is one ADD on its way.
type addition struct {
	e      *Engine
	req    core.Request
	trace  *core.Trace
	rec    core.Record
	into   *core.Record // the record that rec is to become part of; nil for an ADD
	wants  []core.Want
	result []byte
	begun  func() error                  // waits until the intent is durable
	settle []func(context.Context) error // last waits of the drivers
}

// Add gives a container its networks: all of them, or none and an error whose
// code is that of the CNI table. The answer counts as undelivered until
// Delivered is called; an undelivered one is undone by the next ADD.
func (e *Engine) Add(ctx context.Context, req core.Request) (Answer, error) {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	ctx, stop := context.WithTimeout(ctx, addDeadline)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	if req.Token != "" {
		answer, err := e.join(ctx, req)
		return answer, explain(ctx, err)
	}
	a := &addition{e: e, req: req, trace: core.NewTrace(e.Observer)}
	unlock, err := e.Lock(ctx, req.Key.Container)
	if err == nil {
		e.queue.GivesWay(req.Key.Container, cancel)
		mark := adding{named(req.Pod), req.Key.Container}
		e.resolving.Store(mark, nil)
		err = a.run(ctx)
		e.resolving.Delete(mark)
		e.queue.GivesWay(req.Key.Container, nil)
		unlock()
	}
	err = a.blame(explain(ctx, err), "")
	e.Observer.OpDone(core.Add, mainDriver(a.rec), time.Since(a.trace.Start), err)
	if err != nil {
		e.noteFailure(core.Add, req, a.trace, err)
		return Answer{}, err
	}
	if !lent(a.rec) { // whoever runs the plugin tells of the network
		e.Notices.Attached(a.rec)
	}
	return Answer{Record: a.rec, Result: a.result}, nil
}

// Delivered says that the runtime has the answer of the ADD of key.
func (e *Engine) Delivered(key core.Key) { e.Journal.Delivered(key) }

// explain says why a context ended, in place of "context canceled".
func explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errSuperseded):
		return core.Errorf(core.CodeTryAgain, "ADD was given up: %w", cause)
	case errors.Is(cause, context.DeadlineExceeded):
		return core.WithCode(core.CodeTryAgain, fmt.Sprintf("not finished within %s", addDeadline), err)
	default:
		return core.WithCode(core.CodeTryAgain, "the caller went away before the answer", err)
	}
}

func (e *Engine) noteFailure(op core.Op, req core.Request, t *core.Trace, err error) {
	a := core.Attempt{
		Op: op, Key: req.Key, Pod: req.Pod, When: time.Now().UTC(),
		Timeline: t.Timeline(), Code: core.CodeOf(err), Error: err.Error(), Reason: core.ReasonOf(err), Objects: core.Blamed(err),
	}
	a.NoNetwork = a.Code == core.CodeConfig && errors.Is(err, core.ErrNotFound)
	e.Journal.Fail(a)
	e.Notices.Failed(a)
}

func (a *addition) run(ctx context.Context) error {
	if err := a.clearFormer(ctx); err != nil {
		return err
	}
	if err := a.design(ctx); err != nil {
		return err
	}
	return a.build(ctx)
}

// clearFormer deals with an earlier ADD of the same key: a delivered one whose
// namespace lives is a duplicate; anything else is undone first.
func (a *addition) clearFormer(ctx context.Context) error {
	if err := a.e.settle(ctx, nil, a.req.Key.Container); err != nil {
		return fmt.Errorf("undo an earlier ADD: %w", err)
	}
	former, ok := a.e.Journal.Get(a.req.Key)
	if !ok {
		return nil
	}
	if former.Phase == core.Added && former.Delivered && !unused(former) {
		isGone, err := gone(former.Netns)
		if err != nil {
			return core.WithCode(core.CodeTryAgain, fmt.Sprintf("container %s has %s already", a.req.Key.Container, a.req.Key.IfName), err)
		}
		if !isGone {
			return core.Errorf(core.CodeConflict, "container %s already has %s (attached %s); DEL it first",
				a.req.Key.Container, a.req.Key.IfName, former.Created.Format(time.RFC3339))
		}
	}
	if err := a.trace.Timed("undo-former", func() error { return a.e.undo(ctx, nil, &former) }); err != nil {
		return &core.Error{
			Code: core.CodeTryAgain, Err: err,
			Msg: fmt.Sprintf("an earlier attachment of container %s, %s, is not removed yet", a.req.Key.Container, a.req.Key.IfName),
			Details: fmt.Sprintf("%v; `fairlead detach --force --container-id %s --ifname %s` drops it",
				err, a.req.Key.Container, a.req.Key.IfName),
		}
	}
	return nil
}

// design makes the record: everything is resolved, leased, planned and
// validated before anything is touched.
func (a *addition) design(ctx context.Context) error {
	e := a.e
	a.rec = core.Record{
		Key: a.req.Key, Network: a.req.Conf.Name, Pod: a.req.Pod,
		Phase: core.Adding, Created: time.Now().UTC(), Boottime: a.req.Called.Boottime,
	}
	if a.req.Conf.AddressesOnly() {
		return a.designLent(ctx)
	}
	if err := e.awaitReady(ctx, e.conf(a.req)); err != nil {
		return err
	}
	err := a.trace.Timed("resolve", func() (err error) {
		if a.rec.Netns, err = e.identify(a.req.Netns); err != nil {
			return err
		}
		a.wants, err = allocated.Resolve(ctx, e.Source, e.input(a.req))
		return err
	})
	if err != nil {
		return err
	}
	if resolve.Serves(a.req.Conf) {
		conf, err := e.lasting(a.req.Conf)
		if err != nil {
			return err
		}
		a.rec.AddCall = &core.AddCall{Conf: conf, Args: a.req.RawArgs, Path: a.req.Path}
	}
	return a.plan(ctx)
}

// lasting is what a record keeps of the runtime's configuration. Where the pod is
// known by its ADD alone, what the runtime tells of it is all that the next agent
// will know.
func (e *Engine) lasting(c core.Conf) (json.RawMessage, error) {
	if _, ok := e.Source.(allocated.Host); ok {
		return c.Raw, nil
	}
	return cniconf.Lasting(c)
}

// plan leases the wants' addresses, makes their specs and has those proven.
func (a *addition) plan(ctx context.Context) error {
	if err := a.e.awaitDrivers(ctx, plan.Drivers(a.wants)); err != nil {
		return err
	}
	err := a.trace.Timed("ipam", func() error { return a.lease(ctx) })
	if err != nil {
		return err
	}
	node := a.e.Node
	if a.e.MTU != nil {
		node.MTU = a.e.MTU()
	}
	node.Carriers = a.e.Drivers.Carriers()
	a.rec.Specs, err = plan.Plan(a.wants, a.rec.Leases, a.rec.Pod, a.rec.Key, a.rec.Netns, node)
	if err == nil {
		err = errors.Join(a.besideOthers(), a.e.Drivers.Prove(ctx, a.rec.Specs))
	}
	if err == nil && record.Claims(a.rec.Specs) {
		if err = a.e.Fence.Fenced(); err == nil {
			err = a.trace.Timed("leases", func() error { return a.e.Leases.Bind(ctx, a.rec.Specs) })
		}
		fail.Here("lease.bound")
	}
	if err == nil {
		err = plan.Chosen(a.rec.Specs)
	}
	if err != nil {
		a.e.cancel(&a.rec)
	}
	return err
}

// lease reserves every address before anything durable exists.
func (a *addition) lease(ctx context.Context) error {
	for _, r := range plan.Leases(a.wants, a.req.Key, a.req.Pod) {
		l, err := a.e.acquire(ctx, r)
		if err != nil {
			a.e.cancel(&a.rec)
			return err
		}
		a.rec.Leases = append(a.rec.Leases, l)
	}
	return nil
}

// acquire leases addresses; a fixed one that an earlier sandbox of the same pod
// holds, which only waits for a plugin to be undone, is taken from it.
func (e *Engine) acquire(ctx context.Context, r ipam.Request) (core.Lease, error) {
	l, err := e.IPAM.Lease(ctx, r)
	if !errors.Is(err, core.ErrHeld) || r.Owner.Pod.IsZero() {
		return l, err
	}
	for _, h := range e.Journal.PodHeads(r.Owner.Pod) {
		if h.Phase != core.Deleting || h.Key.Container == r.Owner.Key.Container {
			continue
		}
		unlock, ok := e.queue.TryLock(h.Key.Container)
		if !ok {
			continue
		}
		if rec, known := e.Journal.Get(h.Key); known && rec.Phase == core.Deleting {
			rest, free := record.WithoutForeignLeases(rec)
			err = errors.Join(err, e.shed(ctx, &rec, rest, free))
		}
		unlock()
	}
	if l, again := e.IPAM.Lease(ctx, r); again == nil {
		return l, nil
	}
	return l, err
}

// besideOthers fits the specs in beside the container's other attachments.
func (a *addition) besideOthers() error {
	for _, other := range a.e.Journal.Container(a.req.Key.Container) {
		if err := record.Beside(a.rec.Specs, record.AllSpecs(other)); err != nil {
			return err
		}
	}
	return nil
}

// build records the intent, runs the drivers and records the outcome; on any
// error it leaves nothing behind.
//
// The intent is written while our own drivers already work: what they make
// carries our mark, so that Sweep finds it should the agent die before the
// write is done. Foreign plugins leave no mark and wait for it (attach).
func (a *addition) build(ctx context.Context) error {
	a.rec.Begun = record.Startable(a.rec.Specs, 0, a.e.Drivers.Inside)
	a.begun = a.begin(ctx)
	fail.Here("add.begun")
	err, begun := a.attachFenced(ctx)
	if err == nil {
		err = begun
	}
	if err == nil {
		err = a.commit(ctx)
	}
	if err == nil {
		return nil
	}
	undo := a.e.undo
	if begun != nil {
		undo = a.e.discard
	}
	if undone := a.trace.Timed("rollback", func() error { return undo(ctx, nil, &a.rec) }); undone != nil {
		return &core.Error{
			Code: core.CodeOf(err), Msg: err.Error(), Err: err,
			Details: "roll-back is not complete: " + undone.Error(),
		}
	}
	return err
}

// begin starts to write the intent and returns how to wait for it. The write
// is not given up with ctx: whether it happened must be known to roll back.
func (a *addition) begin(ctx context.Context) func() error {
	rec, write, done := a.rec, a.e.Journal.Begin, make(chan struct{})
	rec.Specs = slices.Clone(rec.Specs)
	if a.into != nil {
		rec, write = record.WithPart(*a.into, rec), a.e.Journal.Save
	}
	var err error
	go func() {
		defer close(done)
		err = a.trace.Timed("journal.begin", func() error { return write(context.WithoutCancel(ctx), rec) })
	}()
	return func() error { <-done; return err }
}

// attachFenced attaches all while that may be on the network, and waits for the intent, by
// which the fence finds it from then on.
func (a *addition) attachFenced(ctx context.Context) (err, begun error) {
	within, end := a.e.Fence.Within(ctx, a.rec.Specs)
	err, begun = a.attachAll(within), a.begun()
	if fell := end(); fell != nil {
		err = fell
	}
	return err, begun
}

func (a *addition) attachAll(ctx context.Context) error {
	for i := range a.rec.Specs {
		if err := a.attach(ctx, i); err != nil {
			return a.blame(err, a.rec.Specs[i].Key.IfName)
		}
	}
	return ctx.Err()
}

func (a *addition) attach(ctx context.Context, i int) error {
	s := &a.rec.Specs[i]
	d, err := a.e.driver(*s)
	if err != nil {
		return err
	}
	if err := defaultroute.Tell(&a.rec, i); err != nil {
		return err
	}
	run, end := driver.Run{}, func() {}
	if s.Kind() == core.KindDelegate {
		if err := a.prepareExec(s, i); err != nil {
			return err
		}
		run, end = a.invite(i)
	}
	timer := a.trace.Timer(s.Key.IfName)
	run.Time = timer
	done := timer("attach." + s.Driver)
	link, err := a.start(ctx, run, d, *s)
	end()
	done(err)
	if err != nil {
		a.e.Leases.Unusable(*s, err)
		if d, ok := d.(driver.Refuser); ok {
			*s = d.Refused(*s, err)
		}
		return err
	}
	a.rec.Links = append(a.rec.Links, link)
	return nil
}

// start attaches; a driver's last wait, where it has one, is kept for commit.
func (a *addition) start(ctx context.Context, run driver.Run, d driver.Driver, s core.Spec) (core.Link, error) {
	st, ok := d.(driver.Starter)
	if !ok {
		return d.Attach(ctx, run, s)
	}
	link, settled, err := st.Start(ctx, run, s)
	if err == nil {
		a.settle = append(a.settle, settled)
	}
	return link, err
}

// prepareExec completes the stdin of a foreign plugin and waits until its
// record is durable: such a plugin keeps state that survives everything.
func (a *addition) prepareExec(s *core.Spec, i int) error {
	if err := a.begun(); err != nil {
		return err
	}
	prev, err := record.Prev(&a.rec, i)
	if err != nil {
		return err
	}
	s.ChangeExec().Prev = prev // the journal's copy is being read
	return nil
}

// invite lets the foreign plugin of spec i call back, and has its processes
// recorded before they are fed.
func (a *addition) invite(i int) (driver.Run, func()) {
	h := &callback.Host{Rec: &a.rec, Save: a.save, Timed: a.trace.Timed, Annotations: a.req.Conf.Annotations}
	return a.e.invite(nil, h, func(ctx context.Context, p core.Proc) error {
		h.Lock()
		defer h.Unlock()
		return a.running(ctx, i, p)
	})
}

// running journals a delegate's process before its configuration is fed to it.
// One that needs no process stands in the record from the beginning, but for
// one whose program was there a moment ago.
func (a *addition) running(ctx context.Context, i int, p core.Proc) error {
	inside := p == core.Proc{}
	if inside && a.rec.Begun > i {
		return nil
	}
	a.rec.Begun = max(a.rec.Begun, record.Startable(a.rec.Specs, i+1, a.e.Drivers.Inside))
	if !inside {
		a.rec.Procs = append(a.rec.Procs, p)
	}
	return a.trace.Timed("journal.delegate", func() error { return a.save(ctx) })
}

// save keeps how far the addition has come.
func (a *addition) save(ctx context.Context) error {
	if a.into != nil {
		return a.e.Journal.Save(ctx, record.WithPart(*a.into, a.rec))
	}
	return a.e.Journal.Save(ctx, a.rec)
}

// commit completes the record and makes the reply, in the caller's version,
// before it is written: a result that cannot be told is a failed ADD.
func (a *addition) commit(ctx context.Context) error {
	if err := record.Seal(&a.rec); err != nil {
		return err
	}
	var err error
	if lent(a.rec) {
		a.result, err = cniconf.Addresses(a.rec.Links[0], a.req.Conf.CNIVersion)
	} else {
		a.result, err = cniconf.Result(record.DefaultLinks(&a.rec), a.rec.Netns.Path, a.req.Conf.CNIVersion)
		a.rec.Statuses = cniconf.Status(a.rec.Specs, a.rec.Links)
	}
	if err != nil {
		return err
	}
	a.rec.Begun, a.rec.Procs, a.rec.Phase = len(a.rec.Specs), nil, core.Added
	a.rec.Timeline = a.trace.Timeline()
	fail.Here("add.attached")
	err = a.finish(ctx, a.rec)
	a.e.timelines.Store(a.rec.Key, a.trace.Timeline())
	fail.Here("add.committed")
	return err
}

// finish waits for the drivers and for the disk at the same time. A record that
// was committed although a driver failed is undelivered, and undone at once.
func (a *addition) finish(ctx context.Context, whole core.Record) error {
	errs := make(chan error, len(a.settle))
	for _, settled := range a.settle {
		go func() { errs <- settled(ctx) }()
	}
	err := a.trace.Timed("journal.commit", func() error { return a.e.Journal.Commit(ctx, whole) })
	for range a.settle {
		err = errors.Join(err, <-errs)
	}
	return err
}
