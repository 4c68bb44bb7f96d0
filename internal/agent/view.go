package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/agent/outward"
	"github.com/fairlead/fairlead/internal/agent/server"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/source/catalog"
)

// podMTU is --mtu, else the underlay interface's MTU less what encapsulation
// may need; without an underlay, or until it is found, Ethernet's 1500 are assumed.
func (d *Daemon) podMTU() (int, error) {
	if d.opts.MTU != 0 {
		return d.opts.MTU, nil
	}
	nic, late, err := d.choice().First()
	if d.unfound = late != nil; d.unfound {
		d.log.Warn("underlay interface not found yet: pods have the MTU of Ethernet until it is", "err", late)
	}
	return d.opts.Chassis.MTU(nic), err
}

// underlay is the interface that tunnels leave by now.
func (d *Daemon) underlay() agent.Underlay {
	nic, late, err := d.choice().First()
	out := agent.Underlay{Name: nic.Name, MTU: nic.MTU, Encap: nic.Room(d.opts.Chassis.Kind)}
	if err = errors.Join(late, err); err != nil {
		out.Error = err.Error()
	}
	return out
}

// view is where the operator's queries read.
func (d *Daemon) view() server.View {
	return server.View{
		Journal: d.journal, IPAM: d.pools, Source: glance{d.objects, d.api}, Declared: d.objects,
		Nets: d.nets, NADs: d.objects.NADs, Problems: d.problems, Conditions: d.conditions, Port: d.port, PortMissing: d.portMissing, Tombstones: d.nics.Tombstones, Repairs: func() []agent.Repair { return d.repairs.list("") }, Outward: d.outward, Delays: d.delays, VFs: d.vfs.Show, MTU: d.mtu.Load, Underlay: d.underlay,
		Base: agent.Status{
			Version: d.opts.Build.Version, Commit: d.opts.Build.Commit, Node: d.opts.NodeName, Started: d.started.UTC(),
			Settings: agent.Settings{
				Socket: d.opts.Socket, CompatSockets: d.opts.CompatSockets, StateDir: d.opts.StateDir, Objects: d.opts.Objects,
				OVSDB: d.opts.OVSDB, Bridge: d.opts.Bridge, OVN: d.opts.OVN, NB: d.opts.NB, Datapath: d.datapath, Iface: d.opts.Iface,
				Kubeconfig: d.opts.Kubeconfig, CNIBinDirs: d.opts.CNIBinDirs, ConfDir: d.opts.ConfDir, HTTP: d.opts.HTTP,
			},
		},
	}
}

// policed takes the outcome of the kernel's probe: what it does not enforce is
// said once here, and beside every interface that asks for it.
func (d *Daemon) policed(err error) {
	if err == nil {
		return
	}
	d.server.View.Unpoliced = true
	d.log.Warn("rates from pods and of the node's gateway (egress_rate) are stored, not enforced: the kernel refuses a policing filter", "err", err)
}

// outward tells how pods leave the node.
func (d *Daemon) outward(ctx context.Context) agent.Outward {
	return outward.Node{
		Name: d.opts.NodeName, Gateway: d.gateway, Uplinks: d.uplinks, Repairs: func() []agent.Repair { return d.repairs.list(partGateway) }, Probes: d.probes.Show,
	}.Look(ctx)
}

func (d *Daemon) port(hostIf string) (agent.Port, bool) {
	p, ok := d.ovs.PortByName(hostIf)
	if !ok {
		return agent.Port{}, false
	}
	return agent.Port{
		Name: p.Name, IfaceID: p.ExternalIDs[ovs.KeyIfaceID], OFPort: p.OFPort, LinkState: p.LinkState, Error: p.Error,
	}, true
}

// portMissing is false while nobody can tell.
func (d *Daemon) portMissing(hostIf string) bool {
	_, ok := d.ovs.PortByName(hostIf)
	return !ok && d.ovs.Connected() == nil
}

// conditions are the readiness checks, in the API's order.
func (d *Daemon) conditions(ctx context.Context) []agent.Condition {
	objects := error(nil)
	switch n := len(d.objects.Problems()); {
	case n == 1:
		objects = errors.New("1 object is not in force as written; an earlier good version of it, if any, stays")
	case n > 1:
		objects = fmt.Errorf("%d objects are not in force as written; an earlier good version of each, if any, stays", n)
	}
	bridge := d.ovs.Ready()
	if bridge == nil {
		bridge = d.ovs.Running(ctx)
	}
	list := []agent.Condition{
		condition(agent.CheckOVSDB, d.ovs.Connected()),
		condition(agent.CheckBridge, bridge),
		condition(agent.CheckGateways, d.inOrder()),
		condition(agent.CheckPorts, errors.Join(d.repairs.unrepaired(partPort)...)),
		condition(agent.CheckJournal, d.journal.Healthy()),
		condition(agent.CheckObjects, objects),
	}
	if d.machine != nil {
		list = append(list, condition(agent.CheckOVN, d.carried()))
	}
	if err := d.fence.Healthy(); err != nil || d.opts.SelfFence {
		list = append(list, condition(agent.CheckFence, err))
	}
	if api := d.api(); api != nil {
		list = append(list, condition(agent.CheckAPI, errors.Join(api.Synced(), api.Writable())))
		if !d.opts.foreign() {
			subnets, _ := d.objects.Subnets(ctx) // the line above tells why there are none
			list = append(list, condition(agent.CheckAddresses, d.pools.Barred(subnets)))
		}
	}
	return list
}

func condition(name string, err error) agent.Condition {
	c := agent.Condition{Name: name, OK: err == nil}
	if err != nil {
		c.Reason = err.Error()
	}
	return c
}

func (d *Daemon) problems() []agent.Problem {
	var out []agent.Problem
	for _, p := range d.objects.Problems() {
		out = append(out, agent.Problem{File: p.File, Line: p.Line, Reason: p.Reason})
	}
	if api := d.api(); api != nil {
		for subnet, reason := range api.Refusals() {
			out = append(out, agent.Problem{File: "Subnet " + subnet, Reason: reason})
		}
	}
	slices.SortFunc(out, func(a, b agent.Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return out
}

// nets are the default network and the NADs of the folder or the cluster.
func (d *Daemon) nets(ctx context.Context) []agent.Net {
	subnets, err := d.objects.Subnets(ctx) // without them the networks are still worth a list
	from := d.opts.Objects
	if d.api() != nil {
		from = "API server"
	}
	out := []agent.Net{catalog.Default(subnets)}
	for _, nad := range d.objects.NADs() {
		n := catalog.NAD{Namespace: nad.Namespace, Name: nad.Name, Config: nad.Config, Source: from}
		if nad.Config == "" {
			n.Source = d.opts.ConfDir
		}
		out = append(out, catalog.Net(n, subnets, err == nil))
	}
	return out
}
