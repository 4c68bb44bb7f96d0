package query

import (
	"context"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
)

// IPs lists the addresses that the pods of a namespace hold, "" for all, by
// address.
func (c *Client) IPs(ctx context.Context, namespace string) (agent.IPList, error) {
	out := agent.IPList{Items: []agent.IP{}}
	err := each(ctx, c, question{Kind: pods, Scope: Scope{Namespace: namespace}, fields: alive}, func(p pod) {
		out.Items = append(out.Items, c.held(p, func(netip.Addr) bool { return true })...)
	})
	if err != nil {
		return out, err
	}
	pools, err := c.pools(ctx)
	if _, err := c.lacking(err, "SUBNET is not shown"); err != nil {
		return out, err
	}
	for i := range out.Items {
		if s := containing(pools, out.Items[i].Address); s != nil {
			out.Items[i].Subnet = s.Name
		}
	}
	slices.SortStableFunc(out.Items, func(a, b agent.IP) int { return a.Address.Compare(b.Address) })
	return out, nil
}

// held are the addresses of a pod that are wanted.
func (c *Client) held(p pod, wanted func(netip.Addr) bool) (out []agent.IP) {
	for _, n := range c.networks(p.head) {
		for _, ip := range addresses(n.IPs) {
			if wanted(ip) {
				out = append(out, agent.IP{
					Address: ip, State: agent.IPHeld, Namespace: p.Metadata.Namespace, Pod: p.Metadata.Name,
					Node: p.Spec.NodeName, IfName: n.Interface, MAC: n.MAC,
				})
			}
		}
	}
	return out
}

// Who tells what an address means in the cluster: which pod has it, else which IP
// object, and why. Where only a namespace is looked through, it tells of no address
// that it is free.
func (c *Client) Who(ctx context.Context, addr netip.Addr, namespace string) (agent.Who, error) {
	out := agent.Who{Address: addr, Items: []agent.IP{}}
	err := each(ctx, c, question{Kind: pods, Scope: Scope{Namespace: namespace}, fields: alive}, func(p pod) {
		out.Items = append(out.Items, c.held(p, func(ip netip.Addr) bool { return ip == addr })...)
	})
	if err != nil {
		return out, err
	}
	pools, err := c.pools(ctx)
	if _, err := c.lacking(err, "Subnets are not looked at"); err != nil {
		return out, err
	}
	if len(out.Items) == 0 && namespace == "" {
		if out.Items, err = c.recorded(ctx, addr); err != nil {
			return out, err
		}
		if len(out.Items) > 0 {
			return out, nil
		}
		out.Items = []agent.IP{}
	}
	s := containing(pools, addr)
	if s == nil {
		return out, nil
	}
	for i := range out.Items {
		out.Items[i].Subnet, out.Items[i].VLAN = s.Name, s.VLAN
	}
	if u := unheld(*s, addr); len(out.Items) == 0 && (namespace == "" || u.State != agent.IPFree) {
		out.Items = append(out.Items, u)
	}
	return out, nil
}

// unheld tells what an address that no pod has means in a pool.
func unheld(s core.Subnet, addr netip.Addr) agent.IP {
	out := agent.IP{Address: addr, Subnet: s.Name, State: agent.IPFree}
	switch {
	case slices.Contains(s.Gateways, addr):
		out.State = agent.IPGateway
	case slices.ContainsFunc(s.Exclude, func(r core.AddrRange) bool { return r.Contains(addr) }):
		out.State = agent.IPExcluded
	}
	return out
}
