package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/agent"
)

// AddressMap writes what becomes of a Subnet's addresses, from the lowest.
func AddressMap(w io.Writer, m agent.AddressMap, o Options) error {
	p := &page{}
	for i, cidr := range m.Subnet.CIDRs {
		u := m.Subnet.Usage[i]
		p.line("Subnet %s: %s, %s used, %s free, %s for nobody", m.Subnet.Name, cidr, count(u.Used), count(u.Free), count(u.Excluded))
	}
	if !m.Counted {
		p.line("IP objects cannot be seen: what is shown as free may be reserved")
	}
	p.line("")
	if err := p.end(w); err != nil {
		return err
	}
	t := newTable(w, o, []string{"ADDRESS", "STATE", "WHO", "POOL", "NODE", "MAC"}, nil)
	for _, part := range m.Parts {
		by := cmp.Or(part.By, &agent.IP{}) // nobody
		t.row(o, []string{stretch(part.From, part.To), cmp.Or(part.State, "unknown"), holder(*by), part.Pool, by.Node, by.MAC}, nil)
	}
	return t.end()
}

// stretch is an address, or a range as users write it.
func stretch(from, to netip.Addr) string {
	if from == to {
		return from.String()
	}
	return from.String() + ".." + to.String()
}

// holder names who has an address.
func holder(i agent.IP) string {
	switch {
	case i.Pod == "" && i.Object != "":
		return "ip " + i.Object
	case i.Pod == "":
		return ""
	case i.State == agent.IPKept:
		return fmt.Sprintf("pod %s/%s of StatefulSet %s", i.Namespace, i.Pod, i.Keeper)
	}
	return "pod " + i.Namespace + "/" + i.Pod
}

// recorded says what an address means that an IP object has.
func recorded(i agent.IP) string {
	switch {
	case i.State == agent.IPKept:
		return fmt.Sprintf("is kept in subnet %s for the next pod %s/%s of StatefulSet %s", i.Subnet, i.Namespace, i.Pod, i.Keeper)
	case i.State == agent.IPReserved && i.Pod != "":
		return fmt.Sprintf("is reserved in subnet %s for pod %s/%s by ip %s", i.Subnet, i.Namespace, i.Pod, i.Object)
	case i.State == agent.IPReserved:
		return fmt.Sprintf("is reserved in subnet %s by ip %s", i.Subnet, i.Object)
	case i.State == agent.IPLeft:
		return fmt.Sprintf("is held in subnet %s by ip %s, whose %s is gone; `fairlead ip leaks` tells more", i.Subnet, i.Object, cmp.Or(holder(agent.IP{Namespace: i.Namespace, Pod: i.Pod}), "node"))
	case i.State == agent.IPHeld && i.Pod == "":
		return fmt.Sprintf("is of node %s (subnet %s)", i.Node, i.Subnet)
	case i.State == agent.IPHeld:
		return fmt.Sprintf("is of pod %s/%s (subnet %s), by ip %s", i.Namespace, i.Pod, i.Subnet, i.Object)
	}
	return fmt.Sprintf("is held in subnet %s by ip %s; whether anybody has it cannot be seen", i.Subnet, i.Object)
}

// SubnetDetail writes all that is known of a Subnet.
func SubnetDetail(w io.Writer, s agent.SubnetDetail, o Options) error {
	p := &page{}
	p.field(0, "Subnet", s.Name)
	p.field(0, "Vpc", s.Vpc)
	p.field(0, "Provider", s.Provider)
	p.field(0, "Networks", join(s.CIDRs))
	p.field(0, "Gateways", join(s.Gateways))
	p.field(0, "Excluded", strings.Join(s.Exclude, ", "))
	p.field(0, "Default", yes(s.Default))
	p.field(0, "Namespaces", strings.Join(s.Namespaces, ", "))
	p.field(0, "Pools", strings.Join(s.Pools, ", "))
	p.field(0, "VLAN", number(s.VLAN))
	p.field(0, "MTU", number(s.MTU))
	if len(s.Usage) > 0 {
		p.heading("Addresses")
	}
	for i, u := range s.Usage {
		p.line("  %s: %s in all, %s used, %s free, %s for nobody", s.CIDRs[i], count(u.Total), count(u.Used), count(u.Free), count(u.Excluded))
	}
	var states []string
	for _, state := range slices.Sorted(maps.Keys(s.States)) {
		states = append(states, fmt.Sprintf("%d %s", s.States[state], state))
	}
	p.field(2, "Of these", strings.Join(states, ", "))
	p.heading("Who reaches it")
	p.field(2, "Private", yes(s.Private))
	p.field(2, "Let in", strings.Join(s.AllowSubnets, ", "))
	for _, a := range s.ACLs {
		p.field(2, "ACL", a)
	}
	p.heading("The way out")
	p.field(2, "Gateway", strings.TrimSpace(s.GatewayType+" "+s.GatewayNode))
	p.field(2, "In force", s.ActivateGateway)
	p.field(2, "Egress", s.ExternalEgressGateway)
	p.field(2, "NAT", yes(s.NATOutgoing))
	for _, r := range s.NATRules {
		p.field(2, "Rule", r)
	}
	p.conditions(s.Conditions, o)
	p.heading("Each address: `fairlead ip %s`", s.Name)
	return p.end(w)
}

// conditions are an object's, with when each became so.
func (p *page) conditions(all []agent.PodCondition, o Options) {
	if len(all) > 0 {
		p.heading("Conditions")
	}
	for _, c := range all {
		p.line("  %-27s %-7s %s%s", c.Type, c.Status, strings.Join(slices.DeleteFunc([]string{c.Reason, c.Message}, empty), ": "), since(c.Since, o.Now))
	}
}

// NodeDetail writes all that is known of a node's network.
func NodeDetail(w io.Writer, n agent.NodeDetail, o Options) error {
	p := &page{}
	p.field(0, "Node", n.Name)
	p.field(0, "Addresses", join(n.Addresses))
	p.field(0, "On ovn0", strings.TrimSpace(join(n.Join)+" "+n.MAC))
	p.field(0, "Chassis", n.Chassis)
	p.field(0, "Tunnels", n.Tunnel)
	if n.Configured > 0 {
		p.field(0, "Carried out", fmt.Sprintf("change %d (nb_cfg)", n.Configured))
	}
	if c := n.Certificate; c != nil {
		text := c.State + ", request " + c.Request
		if !c.End.IsZero() {
			text = "ends " + ends(c.End, o) + ", request " + c.Request
		}
		p.field(0, "Certificate", strings.Join(slices.DeleteFunc([]string{text, c.Reason}, empty), ": "))
	}
	p.conditions(n.Conditions, o)
	p.heading("Pods (%d)", len(n.Pods))
	for _, pod := range n.Pods {
		p.line("  %-40s %-13s %s", pod.Namespace+"/"+pod.Name, pod.State, join(pod.Addresses))
	}
	if n.Outward != nil {
		p.outward(*n.Outward)
	}
	return p.end(w)
}

// ends is when something ends, and how long that is.
func ends(at time.Time, o Options) string {
	text := at.UTC().Format(time.RFC3339)
	if at.Before(o.Now) {
		return text + " (it has ended)"
	}
	return text + " (in " + span(at.Sub(o.Now)) + ")"
}

// Lost lists what nobody has in a cluster.
func Lost(w io.Writer, list agent.LostList, _ Options) error {
	p := &page{}
	removed := 0
	for _, l := range list.Items {
		what := map[string]string{agent.LostObject: "ip", agent.LostLease: "addresslease", agent.LostPod: "pod", agent.LostRow: "port"}[l.Kind]
		p.line("%s %s (%s): %s", what, l.Name, join(l.Addresses), l.Reason)
		switch {
		case l.Removed:
			removed++
			p.line("    removed")
		case l.Stays != "":
			p.line("    stays: %s", l.Stays)
		default:
			p.line("    next: %s", l.Next)
		}
	}
	for _, u := range list.Unseen {
		p.line("cannot tell: %s", u)
	}
	p.line("%d lost, %d of them removed", len(list.Items), removed)
	return p.end(w)
}
