package gateway

import (
	"context"
	"log/slog"
	"net/netip"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Silence is why a node is down that answers no more (package alive).
const Silence = "it does not answer"

// Seen is what there is to see beside objects; what is nil nobody sees.
type Seen struct {
	// Silent tells of a node that it answers no more.
	Silent func(node string) bool
	// Routes are the rows of Owner as they are in the database, by their keys.
	Routes func(owner string) (map[string]ovn.Policy, error)
}

// Look plans for the Subnets in force; at gives what a port has, of nodes that in the
// nodes' Subnet. A gateway stays by which pods leave now, whoever wrote that.
func (k *Keeper) Look(from object.Readers, force map[string]logical.Subnet, at func(port string) (core.Lease, bool), seen Seen) Plan {
	var subnets []Subnet
	now := seen.active()
	for name, net := range force {
		o, ok := from.Subnets.Get("", name)
		if ok && name != logical.JoinSubnet && net.Vpc == v1.DefaultVpc && v1.Routed(net.Provider) && net.ByNodes() {
			subnets = append(subnets, Subnet{Subnet: net.Subnet, By: net.Gateway, Was: o.Status.ActivateGateway, Now: now[name]})
		}
	}
	return k.Plan(subnets, nodesOf(from, func(port string) []netip.Addr {
		l, _ := at(port)
		return l.IPs
	}, seen.Silent))
}

// nodesOf are all nodes; at gives what a port has.
func nodesOf(from object.Readers, at func(port string) []netip.Addr, silent func(node string) bool) (nodes []Node) {
	for _, n := range from.Nodes.List() {
		g := Node{Name: n.Name, Chassis: n.Annotations[v1.AnnChassis], IPs: at(core.NodePort(n.Name)), Labels: n.Labels, Down: n.Down}
		if silent != nil && silent(n.Name) {
			g.Down = Silence
		}
		nodes = append(nodes, g)
	}
	return nodes
}

// Keys are those of a kind for the Subnets of which there is something else to say.
func (p Plan) Keys(kind object.Kind) (keys []object.Key) {
	for _, name := range p.Changed {
		keys = append(keys, object.Key{Kind: kind, Name: name})
	}
	return keys
}

// Tell records the plan's events on their Subnets; what it cannot record comes to log.
func (p Plan) Tell(ctx context.Context, w object.World, log *slog.Logger) {
	for _, e := range p.Events {
		if o, ok := w.Subnets.Get("", e.Subnet); ok {
			at := object.Object{Key: object.Key{Kind: object.KindSubnet, Name: e.Subnet}, UID: string(o.UID)}
			if err := w.Warn(ctx, at, object.Event{Reason: e.Reason, Message: e.Message, Good: e.Good}); err != nil && ctx.Err() == nil {
				log.Warn("an event is not recorded", "object", at.Key, "reason", e.Reason, "message", e.Message, "err", err)
			}
		}
	}
}
