package nodeagent

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/nft"
)

const (
	firstRetry   = time.Second      // after a failure; doubles with each more ...
	lastRetry    = 16 * time.Second // ... up to this, while nothing happens
	gatewayLimit = 10 * time.Second // for Open vSwitch to take the gateways
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
	*nodeDaemon
	swept bool // since the last (re)connect; the start has seen to the first
	retry time.Duration
	sync  voice // of the switch and the journal
	gate  voice // of the gateways and tables
}

func newPasses(d *nodeDaemon, swept bool) *passes {
	return &passes{
		nodeDaemon: d, swept: swept, retry: firstRetry,
		sync: voice{log: d.log.With("part", "switch")},
		gate: voice{log: d.log.With("part", "gateways")},
	}
}

func (p *passes) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-p.objects.Changed():
		case <-timer.C:
			again = true
		case <-p.ports.Spoilt():
		case <-p.spoilt:
		case <-p.reset:
			p.swept = false
		}
		if wait := p.next(p.pass(ctx), again); wait > 0 {
			timer.Reset(wait)
		}
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

// pass does all once and tells whether it was good.
func (p *passes) pass(ctx context.Context) bool {
	select {
	case <-p.spoilt: // seen to now
	default:
	}
	if !p.swept {
		p.swept = p.resync(ctx)
	}
	err := errors.Join(p.guard.Apply(ctx), p.setGateways(ctx), p.ports.Audit(ctx))
	p.gates.Store(&err)
	// That the API server was not heard yet is no failure of an agent that has
	// just started.
	if p.api() == nil || !errors.Is(err, core.ErrUnavailable) || time.Since(p.started) >= apiGrace {
		p.gate.hear(err)
	}
	return err == nil && p.swept
}

// resync has the engine give pods' ports back and remove strays; false when it
// must be repeated.
func (p *passes) resync(ctx context.Context) bool {
	err := p.ovs.EnsureBridge(ctx)
	if err == nil {
		err = p.adopt(ctx)
		p.engine.Kick() // not waited for: it may hang on a foreign plugin
		err = errors.Join(err, p.engine.Sweep(ctx))
	}
	p.sync.hear(err)
	return err == nil && p.journal.Whole()
}

func (d *nodeDaemon) setGateways(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, gatewayLimit)
	defer stop()
	subnets, err := d.objects.Subnets(ctx)
	if err != nil {
		return err
	}
	return d.gateway.Set(ctx, d.served(subnets))
}

// served are the Subnets that need the node's side: not those of which this node
// may give no address and no pod here has one.
func (d *nodeDaemon) served(subnets []core.Subnet) []core.Subnet {
	api := d.api()
	if api == nil {
		return subnets
	}
	refused := api.Refusals()
	return slices.DeleteFunc(slices.Clone(subnets), func(s core.Subnet) bool {
		return refused[s.Name] != "" && len(d.pools.Held(s.Name)) == 0
	})
}

// guardTables keeps pods from the node's own stack, before any is served, and
// gives what has that and the gateways' table repaired when somebody removes or
// empties one, as a restart of a firewall does.
func (d *nodeDaemon) guardTables(ctx context.Context) (watch func(context.Context)) {
	w, err := nft.NewWatch(nil, guardTable, standalone.TableName)
	if err := errors.Join(err, d.guard.Apply(ctx)); err != nil {
		d.log.Error("nftables tables are not kept yet", "err", err)
	}
	return func(ctx context.Context) {
		if w == nil {
			return
		}
		if err := w.Run(ctx, d.onLoss); err != nil {
			d.log.Warn("nftables tables are repaired only with the next change", "err", err)
		}
	}
}

func (d *nodeDaemon) onLoss() {
	select {
	case d.spoilt <- struct{}{}:
	default:
	}
}

// voice says a failure once, however often it is met, and once that it is over.
type voice struct {
	log  *slog.Logger
	said string
}

// hear takes the outcome of an attempt. What is away is so for reasons that
// differ from moment to moment (no socket, nobody behind it): that is one.
func (v *voice) hear(err error) {
	said := ""
	switch {
	case errors.Is(err, core.ErrUnavailable):
		said = core.ErrUnavailable.Error()
	case err != nil:
		said = err.Error()
	}
	if said == v.said {
		return
	}
	v.said = said
	if err != nil {
		v.log.Error("node not in order yet", "err", err)
	} else {
		v.log.Info("node in order again")
	}
}
