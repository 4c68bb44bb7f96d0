package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/status"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/ovn"
)

// ReasonKept is the reason of events about a network of nodes that is not what was
// declared, because nodes have addresses of the one in force.
const ReasonKept = "JoinNetworkKept"

// node gives a node its address in the join Subnet, or takes it back.
func (t *term) node(ctx context.Context, k object.Key) error {
	n, ok := t.Nodes.Get("", k.Name)
	t.claims.Hold(k.Name, n.Holds)
	if !ok {
		return t.noNode(ctx, k)
	}
	t.seen.Store(k, nil)
	o := object.Object{Key: k, UID: n.UID}
	net, fault, ok := t.nets.Get(logical.JoinSubnet)
	if !ok {
		return t.failed(ctx, o, logical.JoinSubnet, ReasonAcquire, fmt.Errorf("there is no Subnet %s: %s", logical.JoinSubnet, fault))
	}
	l, isFresh, err := t.lease(n, net.Subnet)
	if err != nil {
		return t.failed(ctx, o, net.Name, ReasonAcquire, err)
	}
	err = t.DB.Apply(ctx, logical.Host(logical.Node{Name: k.Name, MAC: l.MAC, IPs: l.IPs, Own: n.IPs}))
	switch {
	case err == nil:
	case errors.As(err, new(*ovn.MissingError)), errors.As(err, new(*ovn.TakenError)):
		if isFresh {
			t.release([]core.Lease{l}, true)
		}
		return t.failed(ctx, o, net.Name, ReasonPort, err)
	default:
		return err
	}
	t.queue.Add(ipKey(l))
	t.counted(net.Name)
	at := v1.DefaultProvider + v1.ProviderSuffix
	want := logical.LeaseNotes(at, net, l)
	want[at+fieldPortName] = core.NodePort(k.Name)
	// An address within a network of pods is not told: other nodes would leave the route to it out.
	if told := slices.DeleteFunc(slices.Clone(n.IPs), t.nets.ForPods); len(told) > 0 || n.Annotations[v1.AnnNodeIPs] != "" {
		want[v1.AnnNodeIPs] = logical.Join(told)
	}
	if fault == "" {
		err = t.noted(ctx, o, status.UndoneNode(n.Annotations))
	} else {
		t.served(k)
		err = t.say(ctx, o, object.Event{Reason: ReasonKept, Message: "Subnet " + net.Name + " stays what it was: " + fault})
	}
	return errors.Join(err, t.tell(ctx, o, lacking(n.Annotations, want)))
}

// noNode takes the address of a node back that is gone.
func (t *term) noNode(ctx context.Context, k object.Key) error {
	if err := t.unmake(ctx, k, "node/"+k.Name); err != nil {
		return err
	}
	who := nodeOwner(k.Name)
	leases := t.book.Of(who.Pod)
	t.release(slices.DeleteFunc(leases, func(l core.Lease) bool { return l.Owner.Key != who.Key }), false)
	return nil
}

// lease is a node's address in the nodes' Subnet, of each family that that has. A node
// that comes with an address of its own in there gets none: it would lose its way to the
// others.
func (t *term) lease(n object.Node, net core.Subnet) (l core.Lease, isFresh bool, err error) {
	if _, has := t.book.At(core.NodePort(n.Name)); !has {
		for _, ip := range n.IPs {
			if annotation.Within(ip, net.CIDRs) {
				return l, false, fmt.Errorf("the node's own address %s is in the Subnet %s (%s): one of both must be another", ip, net.Name, logical.Join(net.CIDRs))
			}
		}
	}
	r := ipam.Request{Subnet: net, Owner: nodeOwner(n.Name)}
	if l, isFresh, err = t.book.Acquire(r); err != nil || len(l.IPs) >= len(net.CIDRs) {
		return l, isFresh, err
	}
	if l, err = t.book.Widen(l, net); err != nil {
		t.Log.Warn("a node has no address of one of the families of the nodes' network", "node", n.Name, "err", err)
	}
	return l, false, nil
}
