package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/network/allocated"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/network/record"
)

// A runtime that runs a foreign plugin itself, which has us as its IPAM plugin,
// gets a record of its own per interface: leases and nothing else. It is undone,
// checked and collected like any other.

// lentDriver stands for the foreign plugin: nothing of what it makes is ours.
type lentDriver struct{}

func (lentDriver) Attach(_ context.Context, _ driver.Run, s core.Spec) (core.Link, error) {
	return record.LentLink(s), nil
}
func (lentDriver) Check(context.Context, driver.Run, core.Spec, core.Link) error { return nil }
func (lentDriver) Detach(context.Context, driver.Run, core.Spec) error           { return nil }

// lent tells a record that holds addresses for a plugin of the runtime's.
func lent(rec core.Record) bool { return len(rec.Specs) == 1 && rec.Specs[0].Kind() == core.KindLent }

// designLent makes the record of an interface that a plugin of the runtime's
// makes: its addresses.
func (a *addition) designLent(ctx context.Context) error {
	var nic *core.NIC
	err := a.trace.Timed("resolve", func() (err error) {
		if a.rec.Netns, err = a.e.identify(a.req.Netns); err != nil {
			return err
		}
		nic, err = allocated.Addresses(ctx, a.e.Source, a.e.input(a.req))
		return err
	})
	if err != nil {
		return err
	}
	return a.trace.Timed("ipam", func() error {
		l, err := a.e.lend(ctx, nic, core.Owner{Key: a.req.Key, Pod: a.req.Pod})
		if err != nil {
			return err
		}
		base := core.Spec{Key: a.rec.Key, Network: a.rec.Network, Pod: a.rec.Pod, Netns: a.rec.Netns}
		s, err := plan.Lent(base, nic, l)
		a.rec.Leases, a.rec.Specs = []core.Lease{l}, []core.Spec{s}
		if err == nil {
			err = a.besideOthers()
		}
		if err != nil {
			a.e.cancel(&a.rec)
		}
		return err
	})
}

// lend leases addresses for an interface that a foreign plugin makes.
func (e *Engine) lend(ctx context.Context, nic *core.NIC, owner core.Owner) (core.Lease, error) {
	if !e.Journal.Whole() {
		return core.Lease{}, core.WithCode(core.CodeTryAgain, "addresses", errNotWhole)
	}
	return e.acquire(ctx, plan.LentRequest(nic, owner))
}

// unused tells a record of addresses that its plugin did not get to use: it
// failed, or was killed, before it had made the interface, and said nothing. A
// runtime then asks again. What cannot be looked at counts as used.
func unused(rec core.Record) bool {
	if !lent(rec) {
		return false
	}
	ns, err := netns.Verify(rec.Netns)
	if err != nil {
		return false
	}
	defer func() { _ = ns.Close() }()
	c, err := rtnl.Open(ns)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	link, err := c.LinkByName(rec.Key.IfName)
	if err != nil {
		return errors.Is(err, core.ErrNotFound)
	}
	have, err := c.Addrs(link.Index)
	return err == nil && !slices.ContainsFunc(have, func(a rtnl.Addr) bool {
		return slices.Contains(rec.Specs[0].Lent.Addrs, a.Prefix)
	})
}
