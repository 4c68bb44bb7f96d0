package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/multus/records"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/record"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// GC removes the attachments of the conf's network that the runtime does not
// list as valid; containers with an operation under way are left to it. It
// then passes every delegate network its own share of the valid list. A conf
// without the list is an error: an empty list and a missing one differ by
// every pod of the node.
func (e *Engine) GC(ctx context.Context, req core.Request) (err error) {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	ctx, stop := context.WithTimeout(ctx, delDeadline)
	defer stop()
	start := time.Now()
	defer func() { e.Observer.OpDone(core.GC, "none", time.Since(start), err) }()
	if !req.Conf.HasValid {
		return cniconf.ErrNoValid
	}
	valid, living := map[core.Key]bool{}, map[string]bool{}
	for _, k := range req.Conf.Valid {
		valid[k], living[k.Container] = true, true
	}
	if req.Token != "" {
		return nil // of joined addresses their records know whether they are needed
	}
	only := req.Conf.AddressesOnly()
	done, err := e.collect(ctx, collection{
		pick: func(h journal.Head) (bool, error) {
			if h.Network == "" && core.OwnType(req.Conf.Type) && !living[h.Key.Container] { // its name was lost with a journal (Adopt)
				return gone(h.Netns)
			}
			return h.Network != "" && h.Network == req.Conf.Name && !valid[h.Key], nil
		},
		keep: func(r core.Record) bool { return only && !lent(r) },
	})
	err = errors.Join(done.err(), err)
	if only {
		return err
	}
	left, errLeft := e.collectLeft(ctx, req)
	if left == nil { // plugins would free what these hold
		return errors.Join(err, errLeft)
	}
	return errors.Join(err, errLeft, e.gcDelegates(ctx, req, left))
}

// Collect is GC without a runtime: it removes the attachments whose namespace
// is gone, and strays. An attachment whose namespace cannot be looked at stays.
func (e *Engine) Collect(ctx context.Context) (Collected, error) {
	return e.collect(ctx, collection{pick: pickGone})
}

// Preview is a Collect that removes nothing: Removed and Strays are what a
// Collect would try to remove.
func (e *Engine) Preview(ctx context.Context) (Collected, error) {
	return e.collect(ctx, collection{pick: pickGone, dry: true})
}

func pickGone(h journal.Head) (bool, error) { return Collectable(h.Orphan, h.Netns) }

// Collectable tells an attachment that a Collect removes: an orphan, or one whose
// namespace is proven gone. The error says that this could not be looked at.
func Collectable(orphan bool, n core.Netns) (bool, error) {
	if orphan {
		return true, nil
	}
	return gone(n)
}

// Collected is what became of what was to be collected.
type Collected struct {
	Removed []core.Record // as they were before
	// Failed are those that stay, and why. An orphan, whose removal goes on in
	// the background, is in neither.
	Failed map[core.Key]error
	Strays []driver.Stray
	// Unswept is why ports and links were not looked at; nil where they were.
	Unswept error
}

// err are the failures in one, in order.
func (c Collected) err() error {
	var errs []error
	for _, k := range sortedKeys(slices.Collect(maps.Keys(c.Failed))) {
		errs = append(errs, fmt.Errorf("gc %s: %w", k, c.Failed[k]))
	}
	return errors.Join(errs...)
}

func sortedKeys(keys []core.Key) []core.Key {
	slices.SortFunc(keys, func(a, b core.Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// collection says which attachments are to be collected: those that pick
// chooses, but for those that keep spares; nil spares none. One about which pick
// cannot tell stays. dry only tells, and removes nothing.
type collection struct {
	pick func(journal.Head) (bool, error)
	keep func(core.Record) bool
	dry  bool
}

// collect undoes attachments, but for those of busy containers, and sweeps.
func (e *Engine) collect(ctx context.Context, c collection) (Collected, error) {
	var mu sync.Mutex
	out := Collected{Failed: map[core.Key]error{}}
	note := func(k core.Key, err error) {
		mu.Lock()
		defer mu.Unlock()
		out.Failed[k] = err
	}
	pick := func(h journal.Head) bool {
		yes, err := c.pick(h)
		if err != nil {
			note(h.Key, err)
		}
		return yes && err == nil
	}
	if !c.dry {
		e.finishRemains(ctx, func(core.Key) bool { return true })
	}
	e.each(pick, func(rec core.Record) {
		if c.keep != nil && c.keep(rec) {
			return
		}
		if ctx.Err() != nil {
			note(rec.Key, fmt.Errorf("not reached in time: %w", ctx.Err()))
			return
		}
		before := rec
		if !c.dry {
			if err := e.undo(ctx, nil, &rec); err != nil {
				if err := e.answerDel(ctx, &rec, err); err != nil {
					note(before.Key, err)
				}
				return
			}
		}
		mu.Lock()
		defer mu.Unlock()
		out.Removed = append(out.Removed, before)
	})
	slices.SortFunc(out.Removed, func(a, b core.Record) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	s := sweeping{e: e, records: e.Journal.Records(), dry: c.dry}
	err := s.all(ctx)
	out.Strays, out.Unswept = s.strays, s.unswept
	return out, err
}

// gcDelegates runs GC of every foreign network: those that live records use,
// those of containers that Multus left, and those the conf names, each with the
// attachments that remain on it.
func (e *Engine) gcDelegates(ctx context.Context, req core.Request, left map[string]*records.Left) error {
	nets := e.shares(left)
	calls, _, err := e.confExecs(ctx, req)
	for _, call := range calls {
		nets.Of(call)
	}
	if resolve.Unknown(err) {
		// The networks in use are those of the records; what nobody uses is
		// collected once it is heard of.
		e.Log.Warn("networks of the configuration not known yet: GC asks the plugins of networks in use only", "err", err)
		err = nil
	}
	errs := []error{err}
	run, end := e.inviteNobody(nil, core.Key{})
	defer end()
	for _, n := range nets {
		errs = append(errs, e.gcNetwork(ctx, run, n.Call, left))
	}
	return errors.Join(errs...)
}

// shares are the foreign networks that somebody uses.
func (e *Engine) shares(left map[string]*records.Left) record.Shares {
	nets := record.Shares{}
	for _, rec := range e.Journal.Records() {
		if !rec.Orphan { // for the runtime it is gone, whatever its plugins say
			nets.Add(record.AllSpecs(rec))
		}
	}
	for _, l := range left {
		nets.Add(l.Specs)
	}
	return nets
}

// gcNetwork runs GC of one of them, while nothing is plugged into a running pod.
func (e *Engine) gcNetwork(ctx context.Context, run driver.Run, call core.Exec, left map[string]*records.Left) error {
	d, err := e.Drivers.Delegator()
	if err != nil {
		return err
	}
	if !cniconf.HasGC(call.CNIVersion) { // nothing is waited for
		return nil
	}
	turn, stop := context.WithTimeout(ctx, specDeadline)
	defer stop()
	if err := e.plugging.Acquire(turn, allPlugs); err != nil {
		return core.WithCode(core.CodeTryAgain, "gc of network "+call.Network+": one is being attached to a running pod", err)
	}
	defer e.plugging.Release(allPlugs)
	return d.GC(ctx, run, call, e.shares(left).Of(call).Live)
}

// allPlugs is more than there are hot plugs at once.
const allPlugs = 1 << 20

// Status is nil when the node can serve ADD; code 50 with every reason
// otherwise.
func (e *Engine) Status(ctx context.Context, req core.Request) (err error) {
	ctx, stop := context.WithTimeout(ctx, statusDeadline)
	defer stop()
	start := time.Now()
	defer func() { e.Observer.OpDone(core.Status, "none", time.Since(start), err) }()
	calls, drivers, err := e.confExecs(ctx, req)
	reasons := []error{e.ready(ctx, drivers), err, indicated(e.conf(req))}
	for _, call := range calls {
		d, err := e.Drivers.Delegator()
		if err == nil {
			err = d.Status(ctx, driver.Run{}, call)
		}
		if err != nil {
			reasons = append(reasons, fmt.Errorf("delegate %s: %w", call.Type, err))
		}
	}
	if err := errors.Join(reasons...); err != nil {
		return &core.Error{Code: core.CodeNotReady, Msg: "not ready", Details: err.Error(), Err: err}
	}
	return nil
}

// Ready is nil when our own part works: journal, source, and all that makes NICs.
func (e *Engine) Ready(ctx context.Context) error {
	var all []string
	for name := range driver.Each[driver.Dependent](e.Drivers) {
		all = append(all, name)
	}
	return e.ready(ctx, all)
}

// ReadyWithoutSwitch is Ready of a node whose default network is somebody
// else's: it may have none.
func (e *Engine) ReadyWithoutSwitch(ctx context.Context) error { return e.ready(ctx, nil) }

// ready asks the drivers of NICs that every pod gets, and leaves out what no pod
// needs unasked.
func (e *Engine) ready(ctx context.Context, drivers []string) error {
	subnets, err := e.Source.Subnets(ctx)
	errs := []error{e.Journal.Healthy(), err}
	if e.Declared != nil {
		_, err := e.Declared.Declared(ctx)
		errs = append(errs, err)
	}
	if len(drivers) > 0 {
		errs = append(errs, e.IPAM.Barred(subnets))
	}
	for _, name := range drivers {
		err := e.reachable(name)
		if d, ok := e.Drivers[name].(driver.Dependent); ok && err == nil {
			err = d.Running(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
