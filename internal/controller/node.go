package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/ovn"
)

// node gives a node its address in the join Subnet, or takes it back.
func (t *term) node(ctx context.Context, k object.Key) error {
	n, ok := t.Nodes.Get("", k.Name)
	who := nodeOwner(k.Name)
	if !ok {
		t.calm(k)
		if err := t.DB.Apply(ctx, &ovn.Set{Owner: "node/" + k.Name}); err != nil {
			return err
		}
		leases := t.book.Of(who.Pod)
		t.release(slices.DeleteFunc(leases, func(l core.Lease) bool { return l.Owner.Key != who.Key }), false)
		return nil
	}
	o := object.Object{Key: k, UID: n.UID}
	net, fault, ok := t.nets.Get(logical.JoinSubnet)
	if !ok {
		return t.failed(ctx, o, logical.JoinSubnet, ReasonAcquire, fmt.Errorf("there is no Subnet %s: %s", logical.JoinSubnet, fault))
	}
	l, isFresh, err := t.book.Acquire(ipam.Request{Subnet: net.Subnet, Owner: who})
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
	if len(n.IPs) > 0 || n.Annotations[v1.AnnNodeIPs] != "" {
		want[v1.AnnNodeIPs] = logical.Join(n.IPs)
	}
	t.calm(k)
	return t.tell(ctx, o, lacking(n.Annotations, want))
}
