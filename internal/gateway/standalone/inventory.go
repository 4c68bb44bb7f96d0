package standalone

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Inventory is what a node has of the way out, by the last Set.
type Inventory struct {
	netfilter.Inventory
	Subnets []Served
	Ways    []Way
}

// Served is a Subnet whose pods the node leads out, and the device that leads to them.
type Served struct {
	core.Subnet
	Device string
}

// Way is a policy rule, with the gateway of its table.
type Way struct {
	Subnet          string // "" of one that is for no Subnet alone
	From            netip.Prefix
	Priority, Table int
	Gateway         netip.Addr
	Index           int  // of the link that leads there, 0 for none
	Ours            bool // it carries our protocol's number
	Missing         bool
	Taken           string // whose route keeps that to the gateway from its place, "" for nobody's
}

// Inventory tells what the node has of what the last Set was to make, who wrote it, and
// what others have that comes before it. With an error it is what could be learnt.
func (g *Gateway) Inventory(ctx context.Context) (Inventory, error) {
	w := *g.last.Load()
	var out Inventory
	var errs [3]error
	in := w.filtered()
	in.World, errs[2] = g.world(w)
	out.Inventory, errs[0] = g.cfg.Filter.Inventory(ctx, in)
	for _, s := range w.pods() {
		one := Served{s, JoinPort}
		if Serves(s) && (w.Join == nil || slices.ContainsFunc(w.Subnets, func(o core.Subnet) bool { return o.Name == s.Name })) {
			one.Device = PortName(s.Name)
		}
		out.Subnets = append(out.Subnets, one)
	}
	out.Ways, errs[1] = g.ways(w)
	return out, errors.Join(errs[:]...)
}

// world are the devices by which pods' packets leave: those of default routes, and of the
// ways to gateways of their Subnets.
func (g *Gateway) world(w Wanted) (out []string, err error) {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	indexes, err := waysOf(w).nics(c)
	if err != nil {
		return nil, err
	}
	routes, err := c.Routes(0)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.Dst.Bits() > 0 {
			continue
		}
		for _, h := range append(r.Multipath, rtnl.Hop{Index: r.Index}) {
			indexes = append(indexes, h.Index)
		}
	}
	links, err := c.Links()
	for _, l := range links {
		if slices.Contains(indexes, l.Index) {
			out = append(out, l.Name)
		}
	}
	return out, err
}

// ways are the policy rules that are wanted, and others that packets of pods meet before
// these, or that lead to their tables.
func (g *Gateway) ways(w Wanted) (out []Way, err error) {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	all, err := c.Rules()
	if err != nil {
		return nil, err
	}
	want, pods := waysOf(w), w.pods()
	for _, r := range want.rules {
		if !r.From().IsValid() { // of probes
			continue
		}
		one := Way{From: r.From(), Priority: r.Priority, Table: r.Table, Ours: true}
		one.Missing = !slices.ContainsFunc(all, func(h rtnl.Rule) bool { return h.Protocol == rtnl.ProtoPods && sameRule(h, r) })
		one.Subnet = subnetOf(pods, r.From())
		routes, err := c.TableRoutes(r.Table)
		if err != nil {
			return out, err
		}
		one.lead(want.routes, routes)
		out = append(out, one)
	}
	return append(out, others(pods, all)...), nil
}

// others are the rules of others that packets of pods meet.
func others(pods []core.Subnet, all []rtnl.Rule) (out []Way) {
	for _, r := range all {
		from := r.From()
		if r.Protocol == rtnl.ProtoPods || !from.IsValid() || r.Mark() != 0 || r.Table == unix.RT_TABLE_MAIN {
			continue
		}
		for _, s := range pods { // a part of one, or several as a whole
			if slices.ContainsFunc(s.CIDRs, from.Overlaps) {
				out = append(out, Way{Subnet: s.Name, From: from, Priority: r.Priority, Table: r.Table})
			}
		}
	}
	return out
}

// lead fills in the gateway of the way's table, and whether the route there is missing.
func (w *Way) lead(want, has []rtnl.Route) {
	for _, r := range want {
		if r.Table != w.Table || !r.GW.IsValid() || r.GW.Is4() != w.From.Addr().Is4() {
			continue
		}
		w.Gateway = r.GW
		i := slices.IndexFunc(has, func(h rtnl.Route) bool { return sameWay(h, r) })
		if i >= 0 {
			w.Index = has[i].Index
			continue
		}
		w.Missing = true
		w.Taken = taken(r, slices.DeleteFunc(slices.Clone(has), func(h rtnl.Route) bool { return h.Protocol == rtnl.ProtoPods }))
	}
}

// subnetOf is the Subnet in whose networks all of p lies, "" for none.
func subnetOf(all []core.Subnet, p netip.Prefix) string {
	for _, s := range all {
		if slices.ContainsFunc(s.CIDRs, func(c netip.Prefix) bool { return c.Contains(p.Addr()) && c.Bits() <= p.Bits() }) {
			return s.Name
		}
	}
	return ""
}
