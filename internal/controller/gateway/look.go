package gateway

import (
	"context"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// Silence is why a node is down that answers no more (package alive).
const Silence = "it does not answer"

// Look plans for the Subnets in force; at gives what a port has, of nodes that in the
// nodes' Subnet, and silent, unless it is nil, tells of a node that it answers no more.
func (k *Keeper) Look(from object.Readers, force map[string]logical.Subnet, at func(port string) (core.Lease, bool), silent func(node string) bool) Plan {
	var subnets []Subnet
	for name, net := range force {
		o, ok := from.Subnets.Get("", name)
		if ok && name != logical.JoinSubnet && net.Vpc == v1.DefaultVpc && v1.Routed(net.Provider) && net.ByNodes() {
			subnets = append(subnets, Subnet{Subnet: net.Subnet, By: net.Gateway, Was: o.Status.ActivateGateway})
		}
	}
	var nodes []Node
	for _, n := range from.Nodes.List() {
		l, _ := at(core.NodePort(n.Name))
		g := Node{Name: n.Name, Chassis: n.Annotations[v1.AnnChassis], IPs: l.IPs, Labels: n.Labels, Down: n.Down}
		if silent != nil && silent(n.Name) {
			g.Down = Silence
		}
		nodes = append(nodes, g)
	}
	return k.Plan(subnets, nodes)
}

// Keys are those of a kind for the Subnets of which there is something else to say.
func (p Plan) Keys(kind object.Kind) (keys []object.Key) {
	for _, name := range p.Changed {
		keys = append(keys, object.Key{Kind: kind, Name: name})
	}
	return keys
}

// Tell records the plan's events on their Subnets.
func (p Plan) Tell(ctx context.Context, w object.World) {
	for _, e := range p.Events {
		if o, ok := w.Subnets.Get("", e.Subnet); ok {
			at := object.Object{Key: object.Key{Kind: object.KindSubnet, Name: e.Subnet}, UID: string(o.UID)}
			w.Warn(ctx, at, object.Event{Reason: e.Reason, Message: e.Message, Good: e.Good})
		}
	}
}
