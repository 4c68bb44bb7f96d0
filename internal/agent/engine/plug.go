package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
	"github.com/fairlead/fairlead/internal/network/record"
)

// plug attaches one network more. On an error nothing of it is left, or what is
// left is a Part of the record, which is removed later.
func (r *replug) plug(ctx context.Context, w core.Want) error {
	if slices.ContainsFunc(w.Steps, func(s core.Step) bool { return s.Kind() == core.KindDelegate }) {
		if err := r.e.plugging.Acquire(ctx, 1); err != nil {
			return core.WithCode(core.CodeTryAgain, "plugins collect what is left", err)
		}
		defer r.e.plugging.Release(1)
	}
	gateways, takes := defaultroute.Claim(&w)
	a := &addition{e: r.e, req: r.req, trace: r.trace, into: &r.rec, wants: []core.Want{w}}
	a.rec = core.Record{Key: r.rec.Key, Network: r.rec.Network, Pod: r.rec.Pod, Netns: r.rec.Netns, Phase: core.Adding}
	if err := a.plan(ctx); err != nil {
		return err
	}
	if takes {
		of := a.rec.Specs[0]
		of.CNIVersion = w.CNIVersion
		a.rec.Specs = append(a.rec.Specs, defaultroute.Step(of, gateways))
	}
	a.rec.Begun = record.Startable(a.rec.Specs, 0, r.e.Drivers.Inside)
	a.begun = a.begin(ctx)
	fail.Here("plug.begun")
	err, begun := a.attachFenced(ctx)
	if err = errors.Join(begun, err); err == nil {
		err = a.join(ctx)
	}
	switch {
	case err == nil:
		return nil
	case begun != nil:
		return errors.Join(err, r.e.discard(ctx, nil, &a.rec))
	}
	return errors.Join(err, r.retract(ctx, a))
}

// join makes the network that was attached part of the record.
func (a *addition) join(ctx context.Context) error {
	p := core.Part{Specs: a.rec.Specs, Leases: a.rec.Leases}
	whole, err := record.Join(*a.into, p, a.rec.Links)
	if err != nil {
		return err
	}
	key := a.rec.Specs[0].Key
	whole.Plugs = append(slices.Clone(whole.Plugs), core.Plug{IfName: key.IfName, When: time.Now().UTC(), Timeline: a.trace.Timeline()})
	fail.Here("plug.attached")
	if err := a.finish(ctx, whole); err != nil {
		return err
	}
	*a.into = whole
	fail.Here("plug.joined")
	return nil
}

// retract removes an addition that failed.
func (r *replug) retract(ctx context.Context, a *addition) error {
	r.rec = record.WithPart(r.rec, a.rec)
	// Where this cannot be written, what stands in the journal is the network as
	// part of the record, begun or complete, and the same is done in memory.
	err := r.e.Journal.Save(context.WithoutCancel(ctx), r.rec)
	return errors.Join(err, r.e.dropPart(ctx, &r.rec, len(r.rec.Parts)-1))
}

// unplug takes one network away, the record first.
func (r *replug) unplug(ctx context.Context, ifName string) error {
	without, err := record.Leave(r.rec, ifName)
	if err != nil {
		return err
	}
	if err := r.e.Journal.Save(ctx, without); err != nil {
		return err
	}
	r.rec = without
	fail.Here("plug.leaving")
	return r.trace.Timed("unplug "+ifName, func() error { return r.e.dropPart(ctx, &r.rec, len(r.rec.Parts)-1) })
}

// dropParts removes everything that came to a running pod, or was to go, and did
// not get there.
func (e *Engine) dropParts(ctx context.Context, rec *core.Record) error {
	if len(rec.Parts) == 0 {
		return nil
	}
	e.killDelegates(rec)
	var errs []error
	for i := len(rec.Parts) - 1; i >= 0; i-- {
		errs = append(errs, e.dropPart(ctx, rec, i))
	}
	return errors.Join(errs...)
}

// dropPart removes one part of a record. The default route that it took, or
// takes with it, is set first: there always is a way out. What fails stays a
// part; dropPart may be called again, also when the context that began the work
// is over.
func (e *Engine) dropPart(ctx context.Context, rec *core.Record, at int) error {
	patient := foreignPatience(ctx)
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), undoDeadline)
	defer stop()
	p := rec.Parts[at]
	for _, s := range p.Restore {
		if err := e.reroute(ctx, s); err != nil {
			return err
		}
	}
	r := e.removal(nil, rec, p.Specs[:min(p.Begun, len(p.Specs))])
	r.detach(ctx, anySpec, patient)
	fail.Here("plug.detached")
	left := r.left()
	rest, free := *rec, p.Leases
	rest.Procs = nil
	if len(left) == 0 {
		rest.Parts = slices.Delete(slices.Clone(rec.Parts), at, at+1)
	} else {
		rest.Parts = slices.Clone(rec.Parts)
		part := &rest.Parts[at]
		part.Leases, free = record.Keep(p.Specs, left, p.Leases)
		part.Specs, part.Begun = left, len(left)
	}
	if len(left) == len(p.Specs) && len(free)+len(rec.Procs) == 0 {
		return r.err() // nothing has changed
	}
	if err := e.shed(ctx, rec, rest, free); err != nil {
		return errors.Join(r.err(), err)
	}
	fail.Here("plug.dropped")
	return r.err()
}

// anySpec picks all: the pod lives, so that its plugins are to find the chain's
// interface when they leave it.
func anySpec(core.Spec) bool { return true }

// reroute sets a default route again. Where the namespace is gone there is no
// route to set.
func (e *Engine) reroute(ctx context.Context, s core.Spec) error {
	d, err := e.driver(s)
	if err != nil {
		return err
	}
	_, err = d.Attach(ctx, driver.Run{}, s)
	if errors.Is(err, core.ErrNetnsGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("give the default route back to %s: %w", s.Key.IfName, err)
	}
	return nil
}
