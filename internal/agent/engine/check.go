package engine

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/agent/callback"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/record"
)

// Check proves that everything an ADD made is still so. The error wraps
// core.ErrDrift and names every difference. One that hangs does not keep the others from being
// told, and a DEL that arrives ends it (11).
func (e *Engine) Check(ctx context.Context, req core.Request) (err error) {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	if req.Token != "" {
		return e.joinCheck(req)
	}
	start, rec := time.Now(), core.Record{}
	defer func() { e.Observer.OpDone(core.Check, mainDriver(rec), time.Since(start), err) }()
	ctx, stop := context.WithTimeout(ctx, delDeadline)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlock, err := e.Lock(ctx, req.Key.Container)
	if err != nil {
		return err
	}
	defer unlock()
	e.queue.GivesWay(req.Key.Container, cancel)
	defer e.queue.GivesWay(req.Key.Container, nil)
	rec, err = e.check(ctx, req)
	if errors.Is(context.Cause(ctx), errSuperseded) {
		return core.WithCode(core.CodeTryAgain, "CHECK", errSuperseded)
	}
	return err
}

// check is Check in the container's turn. It returns the record that it went by.
func (e *Engine) check(ctx context.Context, req core.Request) (core.Record, error) {
	rec, ok := e.Journal.Get(req.Key)
	p := patience{time.Now().Add(foreignDeadline)}
	if err := indicated(e.conf(req)); err != nil {
		return rec, core.WithCode(core.CodeNotReady, "CHECK", err)
	}
	var left error
	if l, _ := e.leftOf(req); l != nil && !records.Inherited(rec) { // what cannot be read is no attachment
		if left = e.checkLeft(ctx, req, l, p); !ok {
			return rec, checkError(left)
		}
	}
	if !ok || rec.Phase != core.Added {
		return rec, core.Errorf(core.CodeUnknown, "container %s has no attachment %s", req.Key.Container, req.Key.IfName)
	}
	return rec, checkError(errors.Join(left, e.checkRecord(ctx, rec, req, p)))
}

// checkError says drift only where a difference was seen: what could not be
// looked at (OVSDB away) has the code of its own cause.
func checkError(err error) error {
	if err == nil {
		return nil
	}
	code := core.CodeOf(err)
	if errors.Is(err, core.ErrDrift) {
		code = core.CodeDrift
	}
	return &core.Error{Code: code, Msg: "CHECK", Details: strings.ReplaceAll(err.Error(), "\n", "; "), Err: err}
}

func (e *Engine) checkRecord(ctx context.Context, rec core.Record, req core.Request, p patience) error {
	var errs []error
	if req.Netns != "" {
		now, err := e.identify(req.Netns)
		if err != nil {
			return err
		}
		if now.Cookie != rec.Netns.Cookie {
			return core.Difference("CNI_NETNS " + req.Netns + " is another namespace than at ADD")
		}
	}
	if req.Conf.PrevResult != nil {
		errs = append(errs, record.CheckPrev(req.Conf, rec))
	}
	run, end := e.invite(nil, &callback.Host{Rec: &rec}, nil)
	defer end()
	specs := record.Retuned(rec, req.Conf)
	for i, s := range specs {
		if down := e.Fence.Down(s.Key); down != nil { // as it is to be, and not well
			if len(s.Claims) > 0 {
				errs = append(errs, core.About(s.Key.IfName, down))
			}
			continue
		}
		errs = append(errs, e.checkSpec(ctx, run, s, e.finalLink(rec, i, req.Conf), p.share(len(specs)-i)))
	}
	errs = append(errs, e.checkLeases(rec.Leases), e.checkGateways(ctx, rec))
	return errors.Join(errs...)
}

// checkSpec is CHECK of one spec, which may take so long.
func (e *Engine) checkSpec(ctx context.Context, run driver.Run, s core.Spec, l core.Link, most time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	d, err := e.driver(s)
	if err == nil {
		err = d.Check(ctx, run, s, l)
	}
	return core.About(s.Key.IfName, err)
}

// finalLink is what our own interface became after the plugins behind it in its
// chain had their turn: `tuning` changes MAC and MTU, others add routes. Those
// of our own list are in the record, those of the runtime's in its prevResult,
// or, where that is silent, in its list. Default routes that were asked for on
// the interface count too.
func (e *Engine) finalLink(rec core.Record, i int, conf core.Conf) core.Link {
	s, l := rec.Specs[i], record.FinalLink(rec, i)
	if conf.PrevResult != nil && s.Key == rec.Key {
		if later, err := cniconf.LinkFromResult(conf.PrevResult, s.Key.IfName); err == nil {
			l = record.Overlay(l, later)
		}
		l.MTU = cmp.Or(cniconf.TunedMTU(e.runtimeChains(), conf), l.MTU)
	}
	return l
}

// checkGateways proves the node's side of the subnets a record uses.
func (e *Engine) checkGateways(ctx context.Context, rec core.Record) error {
	if e.Gateway == nil || e.OVN {
		return nil
	}
	subnets, err := e.Source.Subnets(ctx)
	if errors.Is(err, core.ErrUnavailable) {
		return nil // CHECK needs no API server (reliability.md): the gateways are as the last agent left them
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range rec.Leases {
		for _, s := range subnets {
			if s.Name == l.Subnet && !s.Implied {
				errs = append(errs, core.About("gateway of subnet "+s.Name, e.Gateway.Check(ctx, s)))
			}
		}
	}
	return errors.Join(errs...)
}
