package view

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/agent"
)

// Outward writes how pods leave a node.
func Outward(w io.Writer, n agent.Outward, _ Options) error {
	p := &page{}
	p.field(0, "Node", n.Node)
	p.outward(n)
	return p.end(w)
}

// outward is the node's part in it.
func (p *page) outward(n agent.Outward) {
	p.heading("The way out of pods, as the node's agent has it")
	p.field(2, "Leave as", join(n.As))
	p.field(2, "Rules by", n.Filter)
	p.heading("Subnets led out (%d)", len(n.Subnets))
	for _, s := range n.Subnets {
		p.line("  %s (%s) by %s: %s", s.Name, join(s.CIDRs), s.Device, translation(s))
	}
	p.heading("Provider networks (%d)", len(n.Networks))
	for _, one := range n.Networks {
		p.network(one)
	}
	p.heading("Policy rules (%d)", len(n.Ways))
	for _, way := range n.Ways {
		p.line("  %-16s %d from %s: table %d %s", way.Writer, way.Priority, way.From, way.Table,
			told(" ", prefixed("via ", way.Via.IsValid(), way.Via.String()), prefixed("dev ", way.Device != "", way.Device), prefixed("for Subnet ", way.Subnet != "", way.Subnet), prefixed("MISSING", way.Missing, "")))
	}
	p.heading("Sets (%d)", len(n.Sets))
	for _, s := range n.Sets {
		p.line("  %-16s %s %s", s.Writer, s.Name, told("; ", s.Does, prefixed("Subnets ", len(s.Subnets) > 0, strings.Join(s.Subnets, ", ")), cmp.Or(few(join(s.Members)), "empty"), prefixed("MISSING", s.Missing, "")))
	}
	p.heading("Chains (%d)", len(n.Chains))
	for _, c := range n.Chains {
		p.line("  %-16s %s %s %s%s%s", c.Writer, c.Family, c.Table, c.Name, prefixed(", from ", c.Parent != "", c.Parent), prefixed(": MISSING", c.Missing, ""))
		for _, r := range c.Rules {
			p.line("    %s", r.Text)
			p.more(8, r.Does)
		}
	}
	for _, one := range n.Probes {
		p.line("  probes of %s at %s: %s", one.Pod, one.To, cmp.Or(one.Why, map[bool]string{true: "led to the pod", false: "refused, the pod does not listen"}[one.Open]))
	}
	p.faults(n.Faults)
	for _, r := range n.Repairs {
		p.line("  put right %d times, last %s: %s: %s", r.Times, r.When.UTC().Format("2006-01-02T15:04:05Z"), r.What, r.Found)
	}
	for _, u := range n.Unread {
		p.line("  cannot tell: %s", u)
	}
}

func translation(s agent.OutwardSubnet) string {
	text := "natOutgoing off, pods keep their addresses"
	if s.NATOutgoing {
		text = "natOutgoing on, pods get the node's address"
	}
	if s.Rules > 0 {
		text += fmt.Sprintf(" but for what %d natOutgoingPolicyRules spare", s.Rules)
	}
	if len(s.Egress) > 0 {
		text += fmt.Sprintf("; to externalEgressGateway %s", join(s.Egress))
	}
	return prefixed(s.GatewayType+", ", s.GatewayType != "", "") + text
}

func (p *page) network(n agent.OutwardNetwork) {
	state := map[string]string{
		"": "has no NIC here", "taken": "has " + n.NIC + " on bridge " + n.Bridge,
		"taking": n.NIC + " is being given to bridge " + n.Bridge, "returning": n.NIC + " is being given back by bridge " + n.Bridge,
	}[n.Phase]
	p.line("  %s %s%s%s", n.Name, state, prefixed(", where it is called ", n.Port != "", n.Port), prefixed("; the NIC is GONE", n.Gone, ""))
	p.more(6, prefixed("on the bridge's own device: ", len(n.Moved) > 0, strings.Join(n.Moved, ", ")))
	p.more(6, n.Reason)
}

// more writes a line about the one above it, if there is anything to say.
func (p *page) more(indent int, text string) {
	if text != "" {
		p.line("%s%s", strings.Repeat(" ", indent), text)
	}
}

// faults are what is in the way, with what to do.
func (p *page) faults(all []agent.OutwardFault) {
	p.heading("In the way (%d)", len(all))
	for _, f := range all {
		p.line("  %s %s", map[bool]string{true: "✗", false: "!"}[f.Fatal], f.What)
		p.line("      next: %s", f.Next)
	}
}

// told joins what there is to tell.
func told(by string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, empty), by)
}

// prefixed is a text behind another one where it is to stand at all.
func prefixed(before string, on bool, text string) string {
	if !on {
		return ""
	}
	return before + text
}

// manyMembers is how long a list of networks is shown, in bytes.
const manyMembers = 200

func few(list string) string {
	if len(list) <= manyMembers {
		return list
	}
	return list[:strings.LastIndexByte(list[:manyMembers], ',')] + ", and more (-o json)"
}

// WayOut writes how a pod's packets leave.
func WayOut(w io.Writer, e agent.WayOut, _ Options) error {
	p := &page{}
	p.field(0, "Pod", e.Namespace+"/"+e.Pod)
	p.field(0, "Node", e.Node)
	for _, l := range e.Items {
		p.heading("%s %s%s", l.Interface, l.Address, prefixed(", Subnet ", l.Subnet != "", l.Subnet))
		p.field(2, "Leaves by", strings.Join(l.By, ", "))
		p.field(2, "Seen as", join(l.SeenAs))
		for _, s := range l.Steps {
			p.line("  - %s", s)
		}
	}
	if len(e.Faults) > 0 {
		p.faults(e.Faults)
	}
	for _, u := range e.Unknown {
		p.line("cannot tell: %s", u)
	}
	return p.end(w)
}
