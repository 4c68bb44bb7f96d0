// Package wayout tells how a pod's packets leave its node: it asks the node's agent and the
// Kubernetes API, and concludes from both. It sends nothing, and must not know commands.
package wayout

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Facts are what is known of a pod's way.
type Facts struct {
	Pod   agent.Pod
	Here  *agent.Outward                // nil: no agent of the pod's node answers here
	About map[string]agent.SubnetDetail // as the Kubernetes API tells; nil: it is not asked
	Nodes map[string][]netip.Addr       // InternalIPs of nodes that pods leave by
	// External is the external gateway of the default Vpc, nil for none that is in force.
	External *declare.External
	// Unknown is what could not be asked, and why.
	Unknown []string
}

// Interfaces are the pod's.
func (f Facts) Interfaces() (out []agent.Interface) {
	for _, at := range f.Pod.Attachments {
		out = append(out, at.Interfaces...)
	}
	return out
}

// Place says of the pod's interfaces in which Subnet they are: the Kubernetes API tells
// their addresses alone.
func (f Facts) Place(all []agent.Subnet) {
	for _, at := range f.Pod.Attachments {
		for i := range at.Interfaces {
			for _, s := range all {
				if slices.ContainsFunc(at.Interfaces[i].Addresses, func(p netip.Prefix) bool { return holds(s, p.Addr()) }) {
					at.Interfaces[i].Subnet = s.Name
				}
			}
		}
	}
}

func holds(s agent.Subnet, ip netip.Addr) bool {
	return slices.ContainsFunc(s.CIDRs, func(c netip.Prefix) bool { return c.Contains(ip) })
}

// By are the nodes that a Subnet's pods leave by, this one's among them.
func (f Facts) By(s agent.SubnetDetail) []string {
	switch {
	case s.GatewayType != v1.GatewayCentralized:
		return []string{f.Pod.Node}
	case s.ActivateGateway != "":
		return []string{s.ActivateGateway}
	}
	var out []string
	for _, e := range exits(s) {
		out = append(out, e.Node)
	}
	return out
}

// exits are the nodes that a Subnet names, with the addresses as which pods are seen there.
func exits(s agent.SubnetDetail) []core.Exit {
	all, _ := declare.Exits(s.GatewayNode) // what is wrong with it its condition says
	return all
}

// explaining is one answer in the making.
type explaining struct {
	Facts
	out agent.WayOut
}

func (e *explaining) unknown(format string, args ...any) {
	e.out.Unknown = append(e.out.Unknown, fmt.Sprintf(format, args...))
}

// Explain is the answer.
func Explain(f Facts) agent.WayOut {
	e := &explaining{Facts: f}
	e.out.Unknown = f.Unknown
	e.out.Namespace, e.out.Pod, e.out.Node, e.out.Items = e.Pod.Namespace, e.Pod.Name, e.Pod.Node, []agent.Leaving{}
	for _, i := range e.Interfaces() {
		for _, p := range i.Addresses {
			e.out.Items = append(e.out.Items, e.leaving(i, p.Addr()))
		}
	}
	if e.Here == nil && e.Pod.Node != "" {
		e.unknown("rules, routes and NICs of node %s: run `fairlead explain %s/%s --node-local` there", e.Pod.Node, e.Pod.Namespace, e.Pod.Name)
	}
	if e.Here != nil {
		e.out.Faults = e.Here.Faults
		e.out.Unknown = append(e.out.Unknown, e.Here.Unread...)
	}
	return e.out
}

// leaving tells of one address.
func (e *explaining) leaving(i agent.Interface, ip netip.Addr) agent.Leaving {
	l := &leaving{explaining: e, Leaving: agent.Leaving{Interface: i.Name, Address: ip, Subnet: i.Subnet, Steps: []string{}}}
	about, known := e.About[i.Subnet]
	l.own = e.served(i.Subnet)
	switch {
	case known && about.Vpc != "" && about.Vpc != v1.DefaultVpc:
		l.step("Subnet %s is in Vpc %s: no node leads it out, its router's routes say where packets go", i.Subnet, about.Vpc)
		l.probed()
		return l.Leaving
	case known && about.Physical:
		l.step("Subnet %s is on a VLAN: packets go to its physical gateway (%s), by the NIC of its provider network", i.Subnet, cmp.Or(texts(i.Gateways), "none is named"))
		return l.Leaving
	case i.Subnet == "":
		l.step("%s is on network %s, which has a way out of its own: Fairlead has no part in it", i.Name, i.Network)
		return l.Leaving
	case l.own == nil && e.Here != nil, l.own == nil && known && !v1.Routed(about.Provider):
		l.step("no node leads Subnet %s out: packets go to the gateway of its own network (%s)", i.Subnet, cmp.Or(texts(i.Gateways), "none is named"))
		return l.Leaving
	}
	if l.external() {
		return l.Leaving
	}
	l.nodes(about, known)
	l.translated(about, known)
	l.egress(about)
	l.rules()
	return l.Leaving
}

// probed tells how the node itself reaches the address, to which it has no route.
func (l *leaving) probed() {
	if l.Here == nil {
		return
	}
	for _, p := range l.Here.Probes {
		if p.To.Addr() == l.Address && p.Pod == l.Pod.Namespace+"/"+l.Pod.Name {
			l.step("kubelet's probes of port %d: %s", p.To.Port(), cmp.Or(p.Why, map[bool]string{true: "the node leads them to the pod by its proxy", false: "refused, the pod does not listen"}[p.Open]))
		}
	}
}

// served is what this node's agent says of a Subnet.
func (e *explaining) served(name string) *agent.OutwardSubnet {
	if e.Here == nil {
		return nil
	}
	i := slices.IndexFunc(e.Here.Subnets, func(s agent.OutwardSubnet) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &e.Here.Subnets[i]
}

func texts(list []netip.Addr) string {
	out := make([]string, len(list))
	for i, a := range list {
		out[i] = a.String()
	}
	return strings.Join(out, ", ")
}

// leaving is the way of one address in the making.
type leaving struct {
	*explaining
	agent.Leaving
	own *agent.OutwardSubnet // nil: no agent of its node is asked
	nat bool
}

func (l *leaving) step(format string, args ...any) {
	l.Steps = append(l.Steps, fmt.Sprintf(format, args...))
}

// nodes says by which nodes the packet leaves.
func (l *leaving) nodes(about agent.SubnetDetail, known bool) {
	said := l.Steps
	if l.own != nil {
		l.step("it comes to node %s by %s", l.Pod.Node, l.own.Device)
	}
	switch {
	case !known:
		l.Leaving.By, l.GatewayType = []string{l.Pod.Node}, agent.Distributed
		if l.own != nil && l.own.GatewayType == v1.GatewayCentralized {
			l.Leaving.By, l.GatewayType, l.Steps = nil, v1.GatewayCentralized, said
			l.step("Subnet %s is centralized: OVN leads the packet to its gateway node, which the Kubernetes API tells (--kubeconfig)", l.Subnet)
		}
		return
	case about.GatewayType != v1.GatewayCentralized:
		l.step("Subnet %s is distributed: it leaves by the pod's own node %s", l.Subnet, l.Pod.Node)
	default:
		l.Steps = said // OVN has it go to another node at once
		l.step("Subnet %s is centralized (gatewayNode %q): OVN leads the packet by a tunnel to %s", l.Subnet, about.GatewayNode, cmp.Or(strings.Join(l.Facts.By(about), " or "), "its gateway nodes, which its status does not name: with enableEcmp all good ones, else none is good (condition GatewayReady)"))
	}
	l.GatewayType, l.Leaving.By = about.GatewayType, l.Facts.By(about)
}

// translated says under which address the world sees the pod.
func (l *leaving) translated(about agent.SubnetDetail, known bool) {
	l.nat = known && about.NATOutgoing || !known && l.own != nil && l.own.NATOutgoing
	if !l.nat {
		l.step("natOutgoing is off: the world sees %s, and needs a route back to it", l.Address)
		l.SeenAs = []netip.Addr{l.Address}
		return
	}
	l.seen(about)
	l.step("natOutgoing is on: the world sees %s", cmp.Or(texts(l.SeenAs), "an address of that node"))
	for i, r := range about.NATRules {
		l.step("natOutgoingPolicyRules %d, before that: %s", i, r)
	}
	if !known && l.own != nil && l.own.Rules > 0 {
		l.step("but for what %d natOutgoingPolicyRules spare (chain OVN-NAT-POLICY)", l.own.Rules)
	}
}

// seen are the addresses as which it leaves by nodes: those that gatewayNode gives them, else
// their own.
func (l *leaving) seen(about agent.SubnetDetail) {
	for _, node := range l.Leaving.By {
		list := l.Facts.Nodes[node]
		if i := slices.IndexFunc(exits(about), func(e core.Exit) bool { return e.Node == node }); i >= 0 && about.GatewayType == v1.GatewayCentralized {
			list = slices.Concat(exits(about)[i].IPs, list)
		} else if l.Here != nil && l.Here.Node == node {
			list = slices.Concat(l.Here.As, list)
		}
		if i := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Is4() == l.Address.Is4() }); i >= 0 {
			l.SeenAs = append(l.SeenAs, list[i])
		}
	}
}

// egress says of a Subnet with a gateway of its own outside of the cluster how it is led
// there.
func (l *leaving) egress(about agent.SubnetDetail) {
	if l.Here == nil {
		if about.ExternalEgressGateway != "" && !l.nat {
			l.step("a policy rule leads it to externalEgressGateway %s", about.ExternalEgressGateway)
		}
		return
	}
	for _, w := range l.Here.Ways {
		if w.From.Contains(l.Address) && slices.Contains(l.Leaving.By, l.Here.Node) {
			l.step("policy rule %d from %s (%s): table %d%s", w.Priority, w.From, w.Writer, w.Table, via(w))
		}
	}
}

func via(w agent.OutwardWay) (text string) {
	if w.Via.IsValid() {
		text = ", to externalEgressGateway " + w.Via.String()
	}
	if w.Device != "" {
		text += " by " + w.Device
	}
	if w.Missing {
		text += ", which is MISSING"
	}
	return text
}

// rules names the rule of the packet filter that translates, where this node does it.
func (l *leaving) rules() {
	if l.Here == nil || !l.nat || !slices.Contains(l.Leaving.By, l.Here.Node) {
		return
	}
	for _, c := range l.Here.Chains {
		if c.Family != map[bool]string{true: "IPv4", false: "IPv6"}[l.Address.Is4()] {
			continue
		}
		for _, r := range c.Rules {
			if strings.HasPrefix(r.Does, "natOutgoing:") {
				l.step("by the rule %q of %s in chain %s of table %s (%s)", r.Text, c.Writer, c.Name, c.Table, l.Here.Filter)
			}
		}
	}
}
