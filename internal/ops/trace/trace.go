// Package trace reads what ovn-trace and Open vSwitch's ofproto/trace say of a packet
// and tells it as one path, in an operator's words. It is pure, and must not know
// where the texts come from.
package trace

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Packet is what is traced.
type Packet struct {
	InPort     string `json:"port"` // the logical port that sends it; without OVN the node's port
	SrcMAC     string `json:"srcMAC"`
	DstMAC     string `json:"dstMAC"`
	Src        string `json:"src"` // addresses of one family
	Dst        string `json:"dst"`
	Protocol   string `json:"protocol"` // tcp, udp, icmp
	Port       int    `json:"dstPort,omitempty"`
	Datapath   string `json:"-"` // the logical switch, by UUID
	SourcePort int    `json:"-"`
}

// six tells IPv6.
func (p Packet) six() bool { return strings.Contains(p.Dst, ":") }

// Microflow is the packet as ovn-trace takes it.
func (p Packet) Microflow() string {
	ip, icmp, echo := "ip4", "icmp4", 8
	if p.six() {
		ip, icmp, echo = "ip6", "icmp6", 128
	}
	m := fmt.Sprintf("inport == %q && eth.src == %s && eth.dst == %s && %s.src == %s && %s.dst == %s && ip.ttl == 64", p.InPort, p.SrcMAC, p.DstMAC, ip, p.Src, ip, p.Dst)
	if p.Protocol == "icmp" {
		return fmt.Sprintf("%s && %s.type == %d && %s.code == 0", m, icmp, echo, icmp)
	}
	return fmt.Sprintf("%s && %s && %s.src == %d && %s.dst == %d", m, p.Protocol, p.Protocol, p.SourcePort, p.Protocol, p.Port)
}

// Flow is the packet as ofproto/trace takes it, from a port of the switch.
func (p Packet) Flow(ofport int) string {
	protocol, src, dst := p.Protocol, "nw_src", "nw_dst"
	if p.six() {
		src, dst = "ipv6_src", "ipv6_dst"
		protocol += "6"
	}
	f := fmt.Sprintf("in_port=%d,%s,dl_src=%s,dl_dst=%s,%s=%s,%s=%s,nw_ttl=64", ofport, protocol, p.SrcMAC, p.DstMAC, src, p.Src, dst, p.Dst)
	switch protocol {
	case "icmp":
		return f + ",icmp_type=8,icmp_code=0"
	case "icmp6":
		return f + ",icmpv6_type=128,icmpv6_code=0"
	}
	return fmt.Sprintf("%s,%[2]s_src=%[3]d,%[2]s_dst=%[4]d", f, p.Protocol, p.SourcePort, p.Port)
}

// Flow is a logical flow that the packet met.
type Flow struct {
	Egress   bool
	Table    int
	Stage    string
	Match    string
	Priority int
	UUID     string // its first eight digits
	Actions  []string
}

// Pass is the packet's way through one half of a logical switch or router.
type Pass struct {
	Egress          bool
	Datapath        string
	InPort, OutPort string
	Flows           []*Flow
	Output          string // the port where it leaves; "" none
	Type            string // of that port
}

var (
	half   = regexp.MustCompile(`^(ingress|egress)\(dp="([^"]*)", inport="([^"]*)"(?:, outport="([^"]*)")?\)$`)
	flow   = regexp.MustCompile(`^\s*(\d+)\. (\S+) \([^)]*\): (.*), priority (\d+), uuid ([0-9a-f]+)$`)
	output = regexp.MustCompile(`^/\* output to "([^"]*)", type "([^"]*)" \*/$`)
)

// Read reads ovn-trace's detailed text.
func Read(text string) (out []*Pass) {
	var at *Pass
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := half.FindStringSubmatch(line); m != nil {
			at = &Pass{Egress: m[1] == "egress", Datapath: m[2], InPort: m[3], OutPort: m[4]}
			out = append(out, at)
			continue
		}
		if at == nil {
			continue
		}
		if m := flow.FindStringSubmatch(line); m != nil {
			f := &Flow{Egress: at.Egress, Stage: m[2], Match: m[3], UUID: m[5]}
			f.Table, _ = strconv.Atoi(m[1])
			f.Priority, _ = strconv.Atoi(m[4])
			at.Flows = append(at.Flows, f)
			continue
		}
		word := strings.TrimSpace(line)
		if m := output.FindStringSubmatch(word); m != nil {
			at.Output, at.Type = m[1], m[2]
		} else if n := len(at.Flows); n > 0 && strings.HasPrefix(line, "    ") {
			at.Flows[n-1].Actions = append(at.Flows[n-1].Actions, word)
		}
	}
	return out
}

// does tells that a flow has an action.
func (f *Flow) does(action string) bool {
	return slices.ContainsFunc(f.Actions, func(a string) bool {
		return a == action || strings.HasPrefix(a, action+" ") || strings.HasPrefix(a, action+"(")
	})
}

// in tells a flow's stage: "acl" is ls_in_acl, ls_out_acl_eval and the like.
func (f *Flow) in(stage string) bool {
	_, after, found := strings.Cut(f.Stage, "_in_")
	if !found {
		_, after, _ = strings.Cut(f.Stage, "_out_")
	}
	return after == stage || strings.HasPrefix(after, stage+"_")
}

// Rule tells that a flow is of a rule (ACL) which somebody made.
func (f *Flow) Rule() bool {
	return f.in("acl") && !f.in("acl_hint") && f.Priority > 1000 && !strings.HasSuffix(f.Stage, "_action")
}

// Rules are the flows of rules that the packet met.
func Rules(passes []*Pass) (out []*Flow) {
	for _, p := range passes {
		for _, f := range p.Flows {
			if f.Rule() {
				out = append(out, f)
			}
		}
	}
	return out
}

// Dropped is the last flow of a packet that was dropped, or in whose place a router
// asks who has its address; nil for one that was not.
func Dropped(passes []*Pass) *Flow {
	for _, p := range passes {
		for _, f := range p.Flows {
			if f.does("drop;") || f.does("reject") || f.does("reject;") || f.Asks() {
				return f
			}
		}
	}
	return nil
}

var balanced = regexp.MustCompile(`(?:ip[46]|ip)\.dst == (\S+)`)

// Balanced is the address of a Service that the packet was sent to, "" for none.
func (f *Flow) Balanced() string {
	if m := balanced.FindStringSubmatch(f.Match); m != nil && f.Priority >= 110 && (f.in("pre_stateful") || f.in("lb")) && strings.Contains(strings.Join(f.Actions, " "), "ct_lb") {
		return strings.TrimRight(m[1], ")")
	}
	return ""
}

// Route is what a router's routing decided, "" where the flow is none of it.
func (f *Flow) Route() string {
	if !f.in("ip_routing") || f.in("ip_routing_pre") || f.in("ip_routing_ecmp") {
		return ""
	}
	return f.Match
}

// Policy is the policy route that sent the packet another way, "" for none.
func (f *Flow) Policy() string {
	if !f.in("policy") || f.in("policy_ecmp") || f.Priority == 0 || !slices.ContainsFunc(f.Actions, func(a string) bool { return strings.HasPrefix(a, "reg0 = ") || strings.HasPrefix(a, "xxreg0 = ") }) {
		return ""
	}
	return f.Match
}

// Security tells that a flow is of port security.
func (f *Flow) Security() bool { return f.in("check_port_sec") || f.in("apply_port_sec") }

// Asks tells that a router does not know the MAC of the next address, and asks for it.
func (f *Flow) Asks() bool { return f.in("arp_request") && (f.does("arp") || f.does("nd_ns")) }

// Unknown tells that no port has the MAC, or no pod the address.
func (f *Flow) Unknown() bool { return f.in("l2_unknown") || f.in("arp_resolve") }

// Switched is what a node's switch does with the packet.
type Switched struct {
	Actions string `json:"actions"`        // of the datapath, the last that are told
	Rule    string `json:"rule,omitempty"` // the last OpenFlow rule that it met
	Drops   bool   `json:"drops"`
	Tunnel  bool   `json:"tunnel"`
}

var rule = regexp.MustCompile(`^\s*\d+\. (.+)$`)

// ReadSwitched reads ofproto/trace's text; false where it is none.
func ReadSwitched(text string) (out Switched, is bool) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if actions, found := strings.CutPrefix(line, "Datapath actions: "); found {
			out.Actions, is = actions, true
		}
		if m := rule.FindStringSubmatch(line); m != nil {
			out.Rule = m[1]
		}
	}
	out.Drops = out.Actions == "drop"
	out.Tunnel = strings.Contains(out.Actions, "tnl_push") || strings.Contains(out.Actions, "set(tunnel")
	return out, is
}
