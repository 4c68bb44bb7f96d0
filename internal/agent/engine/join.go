package engine

import (
	"context"
	"slices"

	"github.com/fairlead/fairlead/internal/agent/callback"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/allocated"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/network/record"
)

// invite lets foreign plugins of the Run that it returns call back; call the
// function once they have ended. record, unless it is nil, hears of each one's
// process before it is fed.
func (e *Engine) invite(t driver.Timer, h *callback.Host, record func(context.Context, core.Proc) error) (driver.Run, func()) {
	token, end := e.hosts.Invite(h)
	report := func(ctx context.Context, p core.Proc) error {
		if p.PGID > 0 {
			e.hosts.Runs(token, p.PGID)
		}
		if record == nil {
			return nil
		}
		return record(ctx, p)
	}
	return driver.Run{Time: t, Caller: driver.Caller{Token: token, Socket: e.Socket}, Report: report}, end
}

// inviteNobody is invite for an operation on a container that has no record:
// plugins that call back have nothing to join, and wait for nothing.
func (e *Engine) inviteNobody(t driver.Timer, key core.Key) (driver.Run, func()) {
	return e.invite(t, &callback.Host{Rec: &core.Record{Key: key}}, nil)
}

// TokenOf is the token of the operation whose plugin the process pid belongs to,
// for calls that came without one: a plugin may give what it runs an environment
// of its own. Without it such a call would wait for the turn of an operation
// that waits for it. "" for a runtime's call.
func (e *Engine) TokenOf(pid int) string { return e.hosts.TokenOf(pid) }

// join answers ADD of a plugin that runs for one of our own ADDs: the addresses
// are in the record of that ADD, and on the disk, before they are told. They go
// with that record, whatever becomes of the plugin.
func (e *Engine) join(ctx context.Context, req core.Request) (Answer, error) {
	h, err := e.hosts.Of(req)
	if err != nil {
		return Answer{}, err
	}
	if h.Save == nil {
		return Answer{}, core.Errorf(core.CodeConfig, "ADD for addresses comes out of a DEL or CHECK of container %s", h.Container)
	}
	req.Pod, req.Conf.Annotations = h.Pod, h.Annotations
	nic, err := allocated.Addresses(ctx, e.Source, e.input(req))
	if err != nil {
		return Answer{}, err
	}
	var s core.Spec
	err = h.Timed("ipam.join", func() error {
		h.Lock()
		defer h.Unlock()
		s, err = e.enter(ctx, h, req, nic)
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	link := record.LentLink(s)
	result, err := cniconf.Addresses(link, req.Conf.CNIVersion)
	return Answer{Record: core.Record{Links: []core.Link{link}}, Result: result}, err
}

// enter leases the addresses of req's interface into the host's record; the
// caller holds h. What it has entered already is what it gets again. A lease
// whose record could not be written stays in it all the same: the disk may have
// it, and the host's roll-back frees it.
func (e *Engine) enter(ctx context.Context, h *callback.Host, req core.Request, nic *core.NIC) (core.Spec, error) {
	l, known, err := h.Leased(req.Key, nic.Subnet.Name)
	if err != nil {
		return core.Spec{}, err
	}
	if !known {
		if l, err = e.lend(ctx, nic, core.Owner{Key: req.Key, Pod: h.Pod}); err != nil {
			return core.Spec{}, err
		}
		fail.Here("join.leased")
	}
	s, err := plan.Lent(core.Spec{Key: req.Key, Pod: h.Pod, Netns: h.Netns}, nic, l)
	if err != nil && !known {
		e.IPAM.Cancel(l)
	}
	if err != nil || known {
		return s, err
	}
	h.Rec.Leases = append(h.Rec.Leases, l)
	err = h.Save(ctx)
	fail.Here("join.recorded")
	return s, err
}

// joinCheck answers CHECK of a plugin that runs for one of our own CHECKs.
func (e *Engine) joinCheck(req core.Request) error {
	h, err := e.hosts.Of(req)
	if err != nil {
		return err
	}
	mine, err := h.Leases(req.Key)
	if err != nil {
		return err
	}
	return checkError(core.About(req.Key.IfName, e.checkLeases(mine)))
}

// checkLeases proves that the addresses of a record are its own.
func (e *Engine) checkLeases(leases []core.Lease) error {
	for _, l := range leases {
		for _, ip := range l.IPs {
			holds := func(held core.Lease) bool { return held.Subnet == l.Subnet && held.Owner.Key == l.Owner.Key }
			if !slices.ContainsFunc(e.IPAM.Who(ip), holds) {
				return core.Differ("address %s of subnet %s is not leased to it", ip, l.Subnet)
			}
		}
	}
	return nil
}
