package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/agent/packetfilter"
	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

const (
	firstRetry   = time.Second      // after a failure; doubles with each more ...
	lastRetry    = 16 * time.Second // ... up to this, while nothing happens
	gatewayLimit = 10 * time.Second // for a look at them
	settingLimit = time.Minute      // for a pass: nft takes long on a starved node
)

// guardTable is the nft table, family inet, that keeps what pods on Open
// vSwitch send from the node's own IP stack. Where the switch forwards in user
// space the kernel sees it too, and a pod that addresses the MAC of its port's
// end on the host would be answered past VLAN, rates and mirror. The kernel's
// own datapath takes frames before the table does. It stays when the agent
// ends, as pods do.
const guardTable = "fairlead-guard"

// passes keeps the node's side of every Subnet and our nftables tables: after
// each change of the objects, after each (re)connect to OVSDB, when a table was
// spoilt, and again while something fails. After each (re)connect pods' ports
// come back first, and nobody waits for ovs-vswitchd, which takes all that it
// finds in one pass.
type passes struct {
	*Daemon
	swept bool // since the last (re)connect; the start has seen to the first
	made  bool // a pass has been; before it nothing is set, and nobody has changed it
	retry time.Duration
	links *rtnl.Watch
	aimed rtnl.Aims        // the links that it watches
	found map[string]error // what the next pass is to put right, by what it is
	// fought: somebody undoes what a pass did, and the next one waits.
	fought bool
	sync   upkeep.Voice // of the switch and the journal
	gate   upkeep.Voice // of the gateways and tables
}

func newPasses(d *Daemon, swept bool) *passes {
	return &passes{
		Daemon: d, swept: swept, retry: firstRetry,
		sync: upkeep.Voice{Log: d.log.With("part", "switch")},
		gate: upkeep.Voice{Log: d.log.With("part", "gateways")},
	}
}

func (p *passes) run(ctx context.Context) {
	p.watchLinks(ctx)
	audit := time.NewTicker(auditEvery)
	defer audit.Stop()
	look := time.NewTimer(0) // once more, because somebody goes on changing things
	look.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		why := p.wait(ctx, timer.C, look.C, audit.C)
		if why == ended {
			return
		}
		if why != doubted || !p.made || p.due(ctx, look) {
			reset(timer, p.next(p.pass(ctx), why == again))
		}
	}
}

// Reasons for a pass.
type reason int

const (
	ended   reason = iota // none: the agent ends
	changed               // something else is wanted, or was lost
	again                 // the last one failed
	doubted               // it may be needed
)

// wait waits for a reason.
func (p *passes) wait(ctx context.Context, retry, look, audit <-chan time.Time) reason {
	select {
	case <-ctx.Done():
		return ended
	case <-p.objects.Changed():
		p.uplinks.Poke()
		p.vfs.Poke()
	case <-p.moved:
	case <-p.ports.Spoilt():
	case <-p.reset:
		p.swept = false
	case <-retry:
		return again
	case <-p.spoilt:
		return doubted
	case <-look:
		return doubted
	case <-audit:
		return doubted
	}
	return changed
}

// reset has a timer wake us after a while, 0 for never.
func reset(t *time.Timer, wait time.Duration) {
	if wait > 0 {
		t.Reset(wait)
	}
}

// next is how long to wait after a pass, 0 for ever: longer each time that only
// time has passed, which rarely mends anything.
func (p *passes) next(good, again bool) time.Duration {
	if good || !again {
		p.retry = firstRetry
	}
	if good {
		return 0
	}
	wait := p.retry
	p.retry = min(2*p.retry, lastRetry)
	return wait
}

// outcome is what became of a pass.
type outcome struct {
	resets uint64        // of the switch, before the pass began
	left   []core.Subnet // that have no gateway, since this node might not serve them
	err    error
}

// inOrder is why the node's side of the Subnets is not as it should be: what the
// last pass said, unless what it put in order has gone with the switch since, or
// the node may serve a Subnet now that it left out.
func (d *Daemon) inOrder() error {
	return d.gates.Load().still(d.ovs.Resets(), func(s core.Subnet) error {
		if api := d.api(); api != nil {
			return api.Barred(s)
		}
		return nil
	})
}

// still is an outcome's error where nothing has changed since. barred is why a Subnet may not be
// served; one of which that is not known stays barred.
func (o *outcome) still(resets uint64, barred func(core.Subnet) error) error {
	switch {
	case o.err != nil:
		return o.err
	case o.resets != resets:
		return errAnew
	}
	for _, s := range o.left {
		if barred(s) == nil {
			return fmt.Errorf("the gateway of Subnet %s is set, which this node may serve now: %w", s.Name, core.ErrUnavailable)
		}
	}
	return nil
}

// pass does all once and tells whether it was good.
func (p *passes) pass(ctx context.Context) bool {
	p.made = true
	p.onIDs() // the Node's annotations may be others
	begun := p.ovs.Resets()
	if !p.swept {
		p.swept = p.resync(ctx)
	}
	err := errors.Join(p.guard.Apply(ctx), p.setGateways(ctx), p.ports.Audit(ctx), upkeep.RaiseMirror(p.ovs))
	p.gates.Store(&outcome{begun, p.unserved, err})
	p.repaired(err)
	p.aim(ctx)
	// That the API server was not heard yet is no failure of an agent that has
	// just started.
	if p.api() == nil || !errors.Is(err, core.ErrUnavailable) || time.Since(p.started) >= apiGrace {
		p.gate.Hear(err)
	}
	return err == nil && p.swept
}

// due is pending that has look wake us for what must wait.
func (p *passes) due(ctx context.Context, look *time.Timer) bool {
	wait, due := p.pending(ctx)
	reset(look, wait)
	return due
}

// pending tells whether a pass is due because the gateways or the tables are not
// as they were set, and in which time to ask again, 0 for never. What it finds is
// noted with the outcome of that pass.
func (p *passes) pending(ctx context.Context) (again time.Duration, due bool) {
	ctx, stop := context.WithTimeout(ctx, gatewayLimit)
	defer stop()
	found := p.drift(ctx)
	p.found = map[string]error{}
	for what, err := range found {
		wait := p.repairs.wait(what, time.Now())
		switch {
		case wait == 0:
			p.found[what] = err
		case again == 0 || wait < again:
			again = wait
		}
	}
	if len(found) == 0 && p.fought {
		p.fought = false
		return 0, true // which says that all is well
	}
	if len(p.found) == 0 && again > 0 {
		p.fought = true
		err := fmt.Errorf("somebody goes on changing them: %w", errors.Join(slices.Collect(maps.Values(found))...))
		p.gates.Store(&outcome{err: err})
	}
	if len(p.found) == 0 {
		return again, false
	}
	p.gates.Store(&outcome{err: fmt.Errorf("put right now: %w", errors.Join(slices.Collect(maps.Values(p.found))...))})
	return again, true
}

// drift is what is not as it was set.
func (p *passes) drift(ctx context.Context) map[string]error {
	found := map[string]error{}
	if err := p.guard.Check(); errors.Is(err, core.ErrDrift) {
		found["table "+guardTable] = err
	}
	if err := p.ports.Drift(ctx); errors.Is(err, core.ErrDrift) {
		found["host ports"] = err
	}
	w, err := p.wanted(ctx)
	if err != nil {
		return found
	}
	if p.gateway.Elsewhere(w) {
		p.move()
	}
	for subnet, err := range p.gateway.Drift(ctx) {
		if errors.Is(err, core.ErrDrift) && !errors.Is(err, core.ErrUnavailable) {
			found[packetfilter.Named(subnet)] = err
		}
	}
	return found
}

// repaired notes what became of what had changed.
func (p *passes) repaired(err error) {
	for what, found := range p.found {
		p.repairs.done(partGateway, what, found, err)
	}
	p.found = nil
	if err == nil {
		p.fought = false
		p.repairs.settledAll(partGateway)
	}
}

// watchLinks has changes of the gateways' devices, and of forwarding, heard.
func (p *passes) watchLinks(ctx context.Context) {
	w, err := rtnl.NewWatch(nil)
	if err != nil {
		p.log.Warn("changes of gateways' links are seen late", "every", auditEvery, "err", err)
		return
	}
	p.links = w
	go func() {
		if err := w.Run(ctx, p.onLoss); err != nil {
			p.log.Warn("changes of gateways' links are seen late", "every", auditEvery, "err", err)
		}
	}()
}

// aim has the watch follow the devices that are there now. What happened to a
// new one before is seen by another look.
func (p *passes) aim(ctx context.Context) {
	if p.links == nil {
		return
	}
	w, err := p.wanted(ctx)
	var at rtnl.Aims
	if err == nil {
		at, err = p.gateway.Links(w)
	}
	if err != nil || slices.Equal(at.Links, p.aimed.Links) && slices.Equal(at.Routes, p.aimed.Routes) {
		return
	}
	if err := p.links.Aim(at); err != nil {
		p.log.Warn("changes of gateways' links are seen late", "every", auditEvery, "err", err)
		return
	}
	p.aimed = at
	p.onLoss()
}

// resync has the engine give pods' ports back and remove strays; false when it
// must be repeated.
func (p *passes) resync(ctx context.Context) bool {
	err := p.ovs.EnsureBridge(ctx)
	if err == nil {
		err = p.engine.Adopt(ctx)
		p.engine.Kick() // not waited for: it may hang on a foreign plugin
		err = errors.Join(err, p.engine.Sweep(ctx))
	}
	p.sync.Hear(err)
	return err == nil && p.journal.Whole()
}

func (d *Daemon) setGateways(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, settingLimit)
	defer stop()
	w, err := d.wanted(ctx)
	if err != nil {
		return err
	}
	return d.gateway.Set(ctx, w)
}

// wanted is the node's side of the Subnets in force; an error says that it is not
// known, and what is there stays.
func (d *Daemon) wanted(ctx context.Context) (w standalone.Wanted, err error) {
	subnets, err := d.objects.Subnets(ctx)
	if err != nil {
		return w, err
	}
	if d.opts.OVN {
		j, err := d.join()
		if err != nil {
			return w, err
		}
		own, err := d.gateway.Own()
		if err != nil {
			return w, err
		}
		w.Join = standalone.Behind(d.opts.NodeName, j, subnets, own)
		d.lacks.Tell(w.Join, d.told())
	}
	w.Subnets = d.served(subnets)
	if w.Probes, err = d.probes.Wanted(); err != nil {
		return w, err
	}
	err = d.opts.Filter.Outward(&w, d.opts.Chassis.Services(), d.choice())
	return w, err
}

// told is who tells Subnets, nil for nobody.
func (d *Daemon) told() packetfilter.Told {
	if api := d.api(); api != nil {
		return api
	}
	return nil
}

// served are the Subnets that need a gateway on the node. With OVN there is none: it
// has the gateways of those that it routes, and those of others are where their
// interfaces lead. Else not those of which this node may give no address while no
// pod here has one, nor the built-in one behind a default network that is
// somebody else's.
func (d *Daemon) served(subnets []core.Subnet) []core.Subnet {
	var refused map[string]string
	if api := d.api(); api != nil {
		refused = api.Refusals()
	}
	d.unserved = nil
	idle := d.opts.foreign()
	d.idle.Store(idle) // before the pools are asked: who comes meanwhile sees it
	return slices.DeleteFunc(slices.Clone(subnets), func(s core.Subnet) bool {
		if d.opts.OVN {
			return true
		}
		if refused[s.Name] == "" && (!idle || !s.Builtin) {
			return false
		}
		empty := len(d.pools.Held(s.Name)) == 0
		if s.Builtin && !empty {
			d.idle.Store(false)
		}
		if empty && refused[s.Name] != "" {
			d.unserved = append(d.unserved, s)
		}
		return empty
	})
}

// arrivals is a core.Notices before another: the first pod that comes to the
// built-in Subnet where that was not served has a pass made, and so has one that
// goes.
type arrivals struct {
	core.Notices
	*Daemon
}

// Attached implements core.Notices.
func (a arrivals) Attached(r core.Record) {
	if a.idle.Load() {
		a.changed(r)
	}
	a.Notices.Attached(r)
}

// Detached implements core.Notices.
func (a arrivals) Detached(r core.Record) {
	if a.opts.foreign() && len(a.pools.Held(v1.DefaultSubnet)) == 0 {
		a.changed(r)
	}
	a.upkeep.Forget(r)
	a.portRepairs.forgetGone()
	a.Notices.Detached(r)
}

// changed has a pass made if the attachment was on what may be the built-in Subnet.
func (a arrivals) changed(r core.Record) {
	if slices.ContainsFunc(r.Specs, func(s core.Spec) bool {
		n := s.Given()
		return n != nil && n.Subnet == v1.DefaultSubnet
	}) {
		a.move()
	}
}

// guardTables keeps pods from the node's own stack, before any is served, and
// gives what has that and the gateways' table repaired when somebody removes or
// empties one, as a restart of a firewall does.
func (d *Daemon) guardTables(ctx context.Context) (watch func(context.Context)) {
	w, err := packetfilter.NewWatch(guardTable)
	if err := errors.Join(err, d.guard.Apply(ctx)); err != nil {
		d.log.Error("nftables tables not written yet: pods may reach the node's own stack until they are", "err", err)
	}
	return func(ctx context.Context) {
		if w == nil {
			return
		}
		if err := w.Run(ctx, d.onLoss, d.pods.Poke); err != nil {
			d.log.Warn("rules of the packet filter are repaired late", "every", auditEvery, "err", err)
		}
	}
}

func (d *Daemon) onLoss() {
	select {
	case d.spoilt <- struct{}{}:
	default:
	}
}
