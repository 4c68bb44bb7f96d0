package agent

import (
	"context"
	"path/filepath"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/elsewhere"
	"github.com/fairlead/fairlead/internal/agent/upkeep"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/source/cluster/identity"
)

// chassisManager owns the Node's annotation with the chassis' name.
const chassisManager = "fairlead-chassis"

// newChassis makes what keeps the node a chassis of OVN's.
func (d *Daemon) newChassis() *chassis.Keeper {
	c := chassis.Config{
		Flags: d.opts.Chassis, Choice: d.choice(), Switch: d.ovs, Log: d.log.With("part", "chassis"),
		Facts: chassis.Facts{Node: d.opts.NodeName, Bridge: d.opts.Bridge, Datapath: d.datapath},
		Keys:  d.keys(), Joins: d.uplinks.Joins,
	}
	if d.opts.MTU == 0 {
		c.Moved = d.moveMTU
	}
	return chassis.New(c, int(d.mtu.Load()))
}

// choice says which interface is the node's way out.
func (d *Daemon) choice() chassis.Choice {
	return chassis.Choice{Iface: d.opts.Iface, Tunnel: func() string { return d.note(chassis.AnnTunnel) }, Given: d.uplinks.Given}
}

// seekUnderlay looks for an underlay interface that was not there at the start, until it is or
// ctx ends. With OVN the chassis does.
func (d *Daemon) seekUnderlay(ctx context.Context) {
	for d.unfound && d.chassis == nil && retry.Sleep(ctx, time.Second) {
		if nic, late, err := d.choice().First(); late == nil && err == nil {
			d.moveMTU(d.opts.Chassis.MTU(nic))
			return
		}
	}
}

// note is an annotation of this node, "" while it is not known.
func (d *Daemon) note(key string) string {
	if api := d.api(); api != nil {
		return api.Note(key)
	}
	return ""
}

// conflict hears that another has an address of a pod.
func (d *Daemon) conflict(c core.Conflict) {
	if api := d.api(); api != nil {
		elsewhere.Conflicting(api, d.log, c)
	}
}

// neighbours looks for others who take an address of a pod while it runs, until ctx ends.
func (d *Daemon) neighbours(ctx context.Context) {
	tick := time.NewTicker(auditEvery)
	defer tick.Stop()
	n := upkeep.Neighbours{Records: d.journal.Records, Subnets: d.objects.Subnets, Others: d.nics.Others, Tell: d.conflict}
	n.Run(ctx, tick.C)
}

// ways are those by which NICs of pods leave the node.
func (d *Daemon) ways(ctx context.Context) []core.Way {
	subnets, _ := d.objects.Subnets(ctx) // those that are known now, for records that do not say
	return upkeep.Ways(d.journal.Records(), subnets)
}

// moveMTU has pods from now on, and the node's own port, have another MTU.
func (d *Daemon) moveMTU(mtu int) {
	d.log.Info("the underlay has another MTU: new pods follow", "mtu", mtu)
	d.mtu.Store(int64(mtu))
	d.gateway.SetMTU(mtu)
	d.move()
}

// move has a pass made, for something is wanted that was not before. It does not block.
func (d *Daemon) move() {
	select {
	case d.moved <- struct{}{}:
	default:
	}
}

// onIDs hears that somebody changed the external ids of Open vSwitch, or what they follow from.
func (d *Daemon) onIDs() {
	if d.chassis != nil {
		d.chassis.Poke()
	}
}

// keys is where the chassis' key and certificates are.
func (d *Daemon) keys() string { return filepath.Join(d.opts.StateDir, chassis.Dir) }

// newIdentity makes what keeps the chassis' certificate, nil where the southbound
// database asks for none.
func (d *Daemon) newIdentity(r *remote) *identity.Keeper {
	if !d.opts.OVN || !d.opts.Chassis.TLS() {
		return nil
	}
	return identity.New(identity.Config{
		Node: d.opts.NodeName, Dir: d.keys(), Namespace: d.opts.Chassis.Namespace,
		Login: r.Logins.Current, Log: d.log.With("part", "chassis"),
	})
}

// named writes the chassis' name on the Node.
func (r *reach) named(ctx context.Context) error {
	name, api := r.chassis.Name(), r.api()
	if name == "" || api == nil {
		return nil
	}
	return api.Annotate(ctx, chassisManager, v1.AnnChassis, name)
}
