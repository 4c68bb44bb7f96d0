package logical

import (
	"crypto/sha256"
	"fmt"
	"net/netip"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// Priorities of a Subnet's rules (sdn.md, 11): the highest counts.
const (
	priorityDrop    = 1000 // of a private Subnet
	priorityAllow   = 1001
	priorityWithin  = 1900 // allowEWTraffic
	priorityOfNodes = 3000
)

// keySubnet is the external id of a Subnet's rules.
const keySubnet = "subnet"

// Actions of rules.
const (
	actionAllow = "allow-related" // and what answers
	actionDrop  = "drop"
)

// access puts the rules of who reaches a Subnet's pods into its Set.
func access(s *ovn.Set, n Subnet) {
	seen := map[string]bool{}
	put := func(r declare.Rule, log bool) {
		key := fmt.Sprintf("%s/%s/%d/%s/%x", n.Name, r.Direction, r.Priority, r.Action, sha256.Sum256([]byte(r.Match)))
		if seen[key] {
			return // it says the same again
		}
		seen[key] = true
		row := &ovn.ACL{
			Direction: r.Direction, Priority: r.Priority, Match: r.Match, Action: r.Action,
			ExternalIDs: map[string]string{keySubnet: n.Name},
		}
		if log {
			logged(row, n)
		}
		s.PutKeyed(key, row, ovn.RuleOfSwitch(n.Name))
	}
	for _, r := range n.Access.Rules {
		put(r, false)
	}
	if n.Access.EastWest {
		for _, c := range n.CIDRs {
			for _, d := range []string{v1.FromPort, v1.ToPort} {
				put(declare.Rule{Direction: d, Priority: priorityWithin, Match: flow(c, c), Action: actionAllow}, false)
			}
		}
	}
	if n.Access.Private {
		for _, r := range private(n) {
			put(r, r.Action == actionDrop)
		}
		s.PutKeyed(logName(n), &ovn.MeterBand{Action: "drop", Rate: logRate, BurstSize: logBurst})
		s.Put(&ovn.Meter{Name: logName(n), Unit: "pktps"}, ovn.Band(logName(n)))
	}
}

// What a node logs of the packets that a private Subnet drops: messages a second, and so
// many at once. It is some 20 MB a day at the most.
const logRate, logBurst = 1, 10

// logName is what the log of a private Subnet calls it, and the name of its meter.
func logName(n Subnet) string { return "private/" + n.Name }

// logged makes a rule log what it matches, as often as its Subnet's meter lets it.
func logged(row *ovn.ACL, n Subnet) {
	name, severity, meter := logName(n), "info", logName(n)
	name = name[:min(len(name), logNameSize)]
	row.Log, row.Name, row.Severity, row.Meter = true, &name, &severity, &meter
}

// logNameSize is the longest name of an ACL, in bytes (ovn-nb(5)).
const logNameSize = 63

// private are the rules of a private Subnet. They stand at the ports' end, to the
// router too: so they are about what comes in as well as about what goes out.
func private(n Subnet) (out []declare.Rule) {
	allow := func(priority int, match string) {
		out = append(out, declare.Rule{Direction: v1.ToPort, Priority: priority, Match: match, Action: actionAllow})
	}
	for _, ip := range Hairpins() {
		c := netip.PrefixFrom(ip, ip.BitLen())
		allow(priorityAllow, family(c)+".src == "+ip.String())
	}
	for _, c := range n.CIDRs {
		allow(priorityAllow, flow(c, c))
		for _, a := range n.Access.Allow {
			if a.Addr().Is4() == c.Addr().Is4() {
				allow(priorityAllow, "("+flow(c, a)+") || ("+flow(a, c)+")")
			}
		}
	}
	for _, c := range n.Nodes {
		allow(priorityOfNodes, family(c)+".src == "+c.String())
	}
	return append(out, declare.Rule{Direction: v1.ToPort, Priority: priorityDrop, Match: "ip", Action: actionDrop})
}

// flow matches packets from one network to another of its family.
func flow(from, to netip.Prefix) string {
	return fmt.Sprintf("%[1]s.src == %[2]s && %[1]s.dst == %[3]s", family(from), from, to)
}

// family is that of a network in OVN's match language.
func family(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "ip4"
	}
	return "ip6"
}
