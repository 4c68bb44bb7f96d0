package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/internal/cniconf"
	"github.com/fairlead/fairlead/internal/core"
)

// Check proves that everything an ADD made is still so. The error wraps
// core.ErrDrift and names every difference.
func (e *Engine) Check(ctx context.Context, req core.Request) error {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	start := time.Now()
	unlock, err := e.queue.lock(ctx, req.Key.Container)
	if err != nil {
		return err
	}
	defer unlock()
	rec, ok := e.Journal.Get(req.Key)
	if !ok || rec.Phase != core.Added {
		return core.Errorf(core.CodeUnknown, "container %s has no attachment %s", req.Key.Container, req.Key.IfName)
	}
	err = e.checkRecord(ctx, rec, req)
	e.Observer.OpDone(core.Check, rec.Specs[0].Driver, time.Since(start), err)
	if err != nil {
		return core.WithCode(core.CodeDrift, "CHECK "+rec.Key.String(), err)
	}
	return nil
}

func (e *Engine) checkRecord(ctx context.Context, rec core.Record, req core.Request) error {
	var errs []error
	if req.Netns != "" {
		now, err := e.identify(req.Netns)
		if err != nil {
			return err
		}
		if now.Cookie != rec.Netns.Cookie {
			return fmt.Errorf("CNI_NETNS %s is another namespace than at ADD: %w", req.Netns, core.ErrDrift)
		}
	}
	if req.Conf.PrevResult != nil {
		errs = append(errs, checkPrev(req.Conf, rec))
	}
	for i, s := range rec.Specs {
		if err := e.Drivers[s.Driver].Check(ctx, s, rec.Links[i]); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, e.checkGateways(ctx, rec))
	return errors.Join(errs...)
}

// checkPrev compares the addresses the runtime believes in with the record's.
func checkPrev(conf core.Conf, rec core.Record) error {
	link, err := cniconf.LinkFromResult(conf.PrevResult, rec.Key.IfName)
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	if err != nil {
		return core.WithCode(core.CodeDecode, "prevResult", err)
	}
	have := map[netip.Prefix]bool{}
	for _, l := range rec.Links {
		for _, a := range l.Addrs {
			have[a] = true
		}
	}
	for _, a := range link.Addrs {
		if !have[a] {
			return fmt.Errorf("prevResult has address %s, which was never given: %w", a, core.ErrDrift)
		}
	}
	return nil
}

// checkGateways proves the node's side of the subnets a record uses.
func (e *Engine) checkGateways(ctx context.Context, rec core.Record) error {
	if e.Gateway == nil {
		return nil
	}
	subnets, err := e.Source.Subnets(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range rec.Leases {
		for _, s := range subnets {
			if s.Name == l.Subnet && !s.Implied {
				errs = append(errs, e.Gateway.Check(ctx, s))
			}
		}
	}
	return errors.Join(errs...)
}
