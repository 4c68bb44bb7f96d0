package standalone

import (
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs"
)

// JoinPort is the device by which a node and the pods of OVN reach each other
// (sdn.md, 6). Its mark among gateways is its own name, which no Subnet has: a
// Subnet's port has a hyphen in it.
const JoinPort = "ovn0"

// Join is that device: its addresses, and the Subnets behind it.
type Join struct {
	core.Join
	Subnets []core.Subnet // with their networks but the nodes' own; never empty ones
}

// Behind are the Subnets to which a node's join port leads, and whose pods on this
// node leave the cluster by it: those that OVN carries in the default Vpc.
func Behind(j core.Join, subnets []core.Subnet) *Join {
	if len(j.Addrs) == 0 {
		return nil
	}
	out := &Join{Join: j}
	for _, s := range subnets {
		if s.Vpc != v1.DefaultVpc || !v1.Routed(s.Provider) || s.Implied {
			continue
		}
		s.CIDRs = slices.DeleteFunc(slices.Clone(s.CIDRs), func(c netip.Prefix) bool {
			return slices.ContainsFunc(j.Addrs, c.Overlaps)
		})
		if len(s.CIDRs) > 0 {
			out.Subnets = append(out.Subnets, s)
		}
	}
	return out
}

// nodes are the networks of the nodes' own ports.
func (j *Join) nodes() (out []netip.Prefix) {
	for _, a := range j.Addrs {
		out = append(out, a.Masked())
	}
	return out
}

// others are the ways of the other nodes: pods answer each by its own join port.
func (j *Join) others() (out []nft.Way) {
	for _, ip := range j.Nodes {
		out = append(out, nft.Way{Link: JoinPort, From: netip.PrefixFrom(ip, ip.BitLen())})
	}
	return out
}

// join is the join port as it should be.
func (g *Gateway) join(j *Join) gate {
	w := gate{
		subnet: JoinPort, addrs: j.Addrs, routes: []rtnl.Route{},
		port: ovs.Port{
			Name: JoinPort, Type: "internal", MAC: j.MAC, MTU: int(g.mtu.Load()),
			ExternalIDs: map[string]string{
				ovs.KeyGateway: JoinPort, ovs.KeyVendor: ovs.Vendor, ovs.KeyIfaceID: core.NodePort(g.cfg.Node), keyNode: g.cfg.Node,
			},
		},
	}
	for _, s := range j.Subnets {
		for _, c := range s.CIDRs {
			i := slices.IndexFunc(j.Gateways, func(a netip.Addr) bool { return a.Is4() == c.Addr().Is4() })
			if i >= 0 {
				w.routes = append(w.routes, rtnl.Route{Dst: c, GW: j.Gateways[i], Protocol: unix.RTPROT_STATIC})
			}
		}
	}
	return w
}

// setRoutes makes the routes over w's device exactly w's, the kernel's own aside.
func setRoutes(c *rtnl.Conn, index int, w gate) error {
	if w.routes == nil {
		return nil
	}
	has, err := c.Routes(index)
	if err != nil {
		return err
	}
	missing, extra := routeDifference(w.routes, has)
	var errs []error
	for _, r := range missing {
		r.Index = index
		errs = append(errs, c.ReplaceRoute(r))
	}
	for _, r := range extra {
		errs = append(errs, c.DelRoute(r))
	}
	return errors.Join(errs...)
}

// routeDifference compares routes of a device; those of the kernel are its own.
func routeDifference(want, has []rtnl.Route) (missing, extra []rtnl.Route) {
	same := func(r rtnl.Route) func(rtnl.Route) bool {
		return func(o rtnl.Route) bool { return o.Dst == r.Dst && o.GW == r.GW }
	}
	for _, r := range want {
		if !slices.ContainsFunc(has, same(r)) {
			missing = append(missing, r)
		}
	}
	for _, r := range has {
		if r.Protocol != unix.RTPROT_KERNEL && !slices.ContainsFunc(want, same(r)) {
			extra = append(extra, r)
		}
	}
	return missing, extra
}
