package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
func (k *Keeper) Look(from object.Readers, force map[string]*logical.Subnet, at func(port string) (core.Lease, bool), seen Seen) Plan {
	subnets := make([]Subnet, 0, len(force))
	now := seen.active()
	for name, net := range force {
		o, ok := from.Subnets.Get("", name)
		if ok && name != logical.JoinSubnet && net.Vpc == v1.DefaultVpc && v1.Routed(net.Provider) && net.ByNodes() {
			subnets = append(subnets, Subnet{Subnet: net.Subnet, By: net.Gateway, Was: o.Status.ActivateGateway, Now: now[name]})
		}
	}
	var nodes []Node // where no Subnet is centralized, it is nobody's matter how many there are
	if slices.ContainsFunc(subnets, func(s Subnet) bool { return s.By.Centralized }) {
		nodes = nodesOf(from, func(port string) []netip.Addr {
			l, _ := at(port)
			return l.IPs
		}, seen.Silent)
	}
	return k.Plan(subnets, nodes)
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

// Tell records the plan's events on their Subnets, and those that could not be recorded
// before: of each reason the last one. The error says which ones wait for the next Tell.
func (k *Keeper) Tell(ctx context.Context, p Plan, w object.World) error {
	k.mu.Lock()
	waiting := k.untold
	k.mu.Unlock()
	var again []Event
	var errs []error
	for _, e := range lastOf(append(slices.Clone(waiting), p.Events...)) {
		o, ok := w.Subnets.Get("", e.Subnet)
		if !ok {
			continue
		}
		at := object.Object{Key: object.Key{Kind: object.KindSubnet, Name: e.Subnet}, UID: string(o.UID)}
		if err := w.Warn(ctx, at, object.Event{Reason: e.Reason, Message: e.Message, Good: e.Good}); err != nil {
			again = append(again, e)
			errs = append(errs, fmt.Errorf("event %s of %v (%s): %w", e.Reason, at.Key, e.Message, err))
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.untold = again
	return errors.Join(errs...)
}

// lastOf leaves out events that another one of the same Subnet and reason follows.
func lastOf(events []Event) (out []Event) {
	for i, e := range events {
		if !slices.ContainsFunc(events[i+1:], func(o Event) bool { return o.Subnet == e.Subnet && o.Reason == e.Reason }) {
			out = append(out, e)
		}
	}
	return out
}
