// Package outward tells people how pods leave a node: which rule, set, route and NIC does
// what for which Subnet, who wrote it, and what is in the way. It reads, and changes
// nothing. It must not know who asks.
package outward

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/agent/uplink"
	"github.com/fairlead/fairlead/internal/gateway/netfilter"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Node is where to look.
type Node struct {
	Name    string
	Host    *netns.Handle // its namespace; nil = current
	Gateway interface {
		Inventory(ctx context.Context) (standalone.Inventory, error)
	}
	Uplinks interface {
		Show() ([]uplink.Shown, error)
	}
	Repairs func() []agent.Repair // of gateways, rules and sets
	// Probes are ports that are led to a proxy, and why that does not serve, "" while it does.
	Probes func() (all []agent.OutwardProbe, fault string)
}

// Look is the answer. What could not be read stands in it.
func (n Node) Look(ctx context.Context) agent.Outward {
	l := look{Node: n, out: agent.Outward{
		Node: n.Name, Subnets: []agent.OutwardSubnet{}, Sets: []agent.OutwardSet{}, Chains: []agent.OutwardChain{},
		Ways: []agent.OutwardWay{}, Networks: []agent.OutwardNetwork{}, Faults: []agent.OutwardFault{}, Repairs: n.Repairs(),
	}}
	inv, err := n.Gateway.Inventory(ctx)
	l.unread("gateways", err)
	l.subnets(inv)
	l.filter(inv)
	c, err := rtnl.Open(n.Host)
	if err == nil {
		defer func() { _ = c.Close() }()
		err = l.links(c)
	}
	l.unread("links and routes", err)
	l.ways(inv)
	networks, err := n.Uplinks.Show()
	l.unread("provider networks", err)
	l.networks(networks)
	l.unread("rules that name NICs", l.passed(ctx))
	l.unread("sysctls", n.Host.Do(l.sysctls))
	l.probes()
	l.repairs()
	return l.out
}

// look is one in the making.
type look struct {
	Node
	out   agent.Outward
	names map[int]string // of links
	first [2]string      // the link of the default route, of IPv4 and IPv6
}

func (l *look) unread(what string, err error) {
	if err != nil {
		l.out.Unread = append(l.out.Unread, what+": "+err.Error())
	}
}

func (l *look) subnets(inv standalone.Inventory) {
	for _, s := range inv.Subnets {
		one := agent.OutwardSubnet{Name: s.Name, CIDRs: s.CIDRs, Device: s.Device, NATOutgoing: s.NATOutgoing}
		switch { // without OVN pods leave by their own node whatever their Subnet says
		case s.Device == standalone.JoinPort && s.Centralized:
			one.GatewayType = v1.GatewayCentralized
		case s.Device == standalone.JoinPort:
			one.GatewayType = agent.Distributed
		}
		if s.NATOutgoing {
			one.Rules = len(s.NATRules)
		}
		if s.Egress != nil {
			one.Egress, one.Table, one.Priority = s.Egress.Gateways, s.Egress.Table, s.Egress.Priority
		}
		l.out.Subnets = append(l.out.Subnets, one)
	}
}

// filter tells of sets and chains.
func (l *look) filter(inv standalone.Inventory) {
	l.out.Filter = inv.By
	for _, s := range inv.Sets {
		one := agent.OutwardSet{Name: s.Name, Does: s.Does, Writer: s.Writer, Members: slices.Clone(s.Members), Missing: s.Missing}
		slices.SortFunc(one.Members, func(a, b netip.Prefix) int {
			return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
		})
		for _, n := range inv.Subnets {
			if slices.ContainsFunc(n.CIDRs, func(c netip.Prefix) bool { return slices.ContainsFunc(s.Members, c.Overlaps) }) {
				one.Subnets = append(one.Subnets, n.Name)
			}
		}
		l.out.Sets = append(l.out.Sets, one)
	}
	for _, c := range inv.Chains {
		one := agent.OutwardChain{Family: family(c.V6), Table: c.Table, Name: c.Name, Parent: c.Parent, Writer: c.Writer, Missing: c.Missing, Rules: []agent.OutwardRule{}}
		for _, r := range c.Rules {
			one.Rules = append(one.Rules, agent.OutwardRule{Text: r.Text, Does: r.Does})
		}
		l.out.Chains = append(l.out.Chains, one)
	}
	l.differs(inv.Inventory)
}

func family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// links notes their names, which one leads to everywhere, and as whom packets leave by it.
func (l *look) links(c *rtnl.Conn) error {
	links, err := c.Links()
	if err != nil {
		return err
	}
	l.names = map[int]string{}
	for _, one := range links {
		l.names[one.Index] = one.Name
	}
	routes, err := c.Routes(0)
	if err != nil {
		return err
	}
	addrs, err := c.Addrs(0)
	for i, v6 := range []bool{false, true} {
		if r := everywhere(routes, v6); r != nil {
			l.first[i] = l.names[r.Index]
			if as := source(*r, addrs); as.IsValid() {
				l.out.As = append(l.out.As, as)
			}
		}
	}
	return err
}

// everywhere is the default route that counts, of several next hops the first.
func everywhere(routes []rtnl.Route, v6 bool) (best *rtnl.Route) {
	for i, r := range routes {
		if r.Dst.Bits() != 0 || r.Dst.Addr().Is6() != v6 || r.Type > unix.RTN_UNICAST {
			continue
		}
		if len(r.Multipath) > 0 {
			routes[i].Index = r.Multipath[0].Index
		}
		if best == nil || r.Priority < best.Priority {
			best = &routes[i]
		}
	}
	return best
}

// source is the address that the kernel gives what it masquerades by a route: the first
// one of its link in the gateway's network, else the first.
func source(r rtnl.Route, addrs []rtnl.Addr) (first netip.Addr) {
	if r.Src.IsValid() {
		return r.Src
	}
	for _, a := range addrs {
		ip := a.Prefix.Addr()
		if a.Index != r.Index || ip.Is6() != r.Dst.Addr().Is6() || ip.IsLinkLocalUnicast() {
			continue
		}
		if r.GW.IsValid() && a.Prefix.Contains(r.GW) {
			return ip
		}
		if !first.IsValid() {
			first = ip
		}
	}
	return first
}

// ways tells of policy rules.
func (l *look) ways(inv standalone.Inventory) {
	for _, w := range inv.Ways {
		one := agent.OutwardWay{
			Subnet: w.Subnet, From: w.From, Priority: w.Priority, Table: w.Table, Via: w.Gateway, Device: l.names[w.Index], Writer: netfilter.ByUs, Missing: w.Missing, Taken: w.Taken,
		}
		if !w.Ours {
			one.Writer = l.whose(one)
		}
		l.out.Ways = append(l.out.Ways, one)
	}
	l.lead()
}

// whose is the writer of a rule that does not carry our number: Kube-OVN has one for each
// pod that leads to the Subnet's own table.
func (l *look) whose(w agent.OutwardWay) string {
	for _, s := range l.out.Subnets {
		if s.Name == w.Subnet && s.Table == w.Table && w.From.IsSingleIP() {
			return agent.WriterKubeOVN
		}
	}
	return agent.WriterOthers
}

func (l *look) networks(all []uplink.Shown) {
	for _, s := range all {
		one := agent.OutwardNetwork{Name: s.Network, Bridge: s.Bridge, NIC: s.NIC, Phase: string(s.Phase), Moved: s.Moved, Gone: s.Gone, Reason: s.Reason}
		if s.Port != s.NIC {
			one.Port = s.Port
		}
		l.out.Networks = append(l.out.Networks, one)
	}
	l.served()
}
