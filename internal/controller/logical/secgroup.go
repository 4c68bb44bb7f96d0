package logical

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Priorities of security groups' rules. They are above those of Subnets'
// own fields, NetworkPolicies and nodes: what a port's groups say is all that
// counts, as it is with the reference.
const (
	priorityClosed = 3100 // what no rule lets pass
	priorityOpen   = 3101 // replies, and what the groups need themselves
	prioritySame   = 3102 // allowSameGroupTraffic
	priorityRules  = 3200 // rules with the greatest number, which counts last
	lastRule       = 16384
)

// protocolVRRP is that by which pods agree on who has a shared address (RFC 5798).
const protocolVRRP = "112"

// keyGroup is the external id of a security group's rows: its name.
const keyGroup = "sg"

// ClosedGroup is the port group of all ports that name security groups. By itself
// it lets nothing pass.
const ClosedGroup = "sg.closed"

// ClosedOwner owns the rows of ClosedGroup: those of the group without a name.
const ClosedOwner = "securitygroup/"

// SecurityGroupOf names a SecurityGroup's port group: by a hash, since two names may
// clean up to the same text.
func SecurityGroupOf(name string) string {
	return fmt.Sprintf("sg.%x", sha256.Sum256([]byte(name)))[:35]
}

// grouped puts rules about the ports of one port group into a Set.
type grouped struct {
	*ovn.Set
	group string
	ids   map[string]string
}

// GroupIn names the port group of a SecurityGroup's ports in one Vpc: addresses of other
// Vpcs are others', which may have the same ones.
func GroupIn(name, vpc string) string {
	if vpc == "" || vpc == v1.DefaultVpc {
		return SecurityGroupOf(name)
	}
	return SecurityGroupOf(name + "/" + vpc)
}

// rule adds one; ingress is what the ports get. Rules of one name differ in what they
// match.
func (g grouped) rule(name string, ingress bool, priority int, action, match string) {
	row := &ovn.ACL{Direction: v1.ToPort, Priority: priority, Action: action, Match: "outport == @" + g.group, ExternalIDs: g.ids}
	if !ingress { // of a connection to a Service it sees the endpoint
		row.Direction, row.Match = v1.FromPort, "inport == @"+g.group
		row.Options = map[string]string{"apply-after-lb": "true"}
	}
	row.Match += " && " + match
	g.PutKeyed(fmt.Sprintf("%s/%x", name, sha256.Sum256([]byte(row.Match))), row, ovn.RuleOfGroup(g.group))
}

// Closed is the rows of ClosedGroup. Replies pass, VRRP, and what a pod sends to
// itself by its Service; ARP and neighbour discovery OVN lets pass.
func Closed() *ovn.Set {
	g := grouped{&ovn.Set{Owner: ClosedOwner}, ClosedGroup, map[string]string{keyGroup: ""}}
	g.Put(&ovn.PortGroup{Name: g.group, ExternalIDs: g.ids})
	for _, ingress := range []bool{true, false} {
		g.rule(g.group, ingress, priorityClosed, actionDrop, "ip")
		g.rule(g.group, ingress, priorityOpen, actionAllow, "ct.est && ct.rpl")
		g.rule(g.group, ingress, priorityOpen, actionAllow, "ip.proto == "+protocolVRRP)
	}
	for _, ip := range Hairpins() {
		g.rule(g.group, true, priorityOpen, actionAllow, family(netip.PrefixFrom(ip, ip.BitLen()))+".src == "+ip.String())
	}
	return g.Set
}

// guard is a SecurityGroup's Set in the making.
type guard struct {
	grouped
	known  func(group string) bool
	reach  []string // Vpcs whose pods the ports' own reach
	faults []string
	undone []string
}

// Guard is a SecurityGroup's rows: its port group, into which the pods' own Sets put
// their ports, and its rules. known tells of which other groups there are rows. What
// is wrong with a rule, and what of it nobody carries out, faults and undone name
// with the field's path; such a rule lets nothing pass: without it if it allows,
// else it drops all of its direction. vpcs are those in which it may have ports, each with
// those that are reached from there; the default one is always among them.
func Guard(name string, spec v1.SecurityGroupSpec, known func(group string) bool, vpcs map[string][]string) (set *ovn.Set, faults, undone []string) {
	set = &ovn.Set{Owner: ClosedOwner + name}
	for vpc, reach := range vpcs {
		if vpc != v1.DefaultVpc {
			guardIn(set, name, vpc, guard{known: known, reach: reach}, spec)
		}
	}
	g := guardIn(set, name, v1.DefaultVpc, guard{known: known, reach: vpcs[v1.DefaultVpc]}, spec)
	if spec.Tier != 0 {
		g.undone = append([]string{"spec.tier (all groups' rules are in one order)"}, g.undone...)
	}
	return set, g.faults, g.undone
}

// guardIn puts a SecurityGroup's rows about its ports in a Vpc into its Set.
func guardIn(set *ovn.Set, name, vpc string, g guard, spec v1.SecurityGroupSpec) guard {
	g.grouped = grouped{set, GroupIn(name, vpc), map[string]string{keyGroup: name}}
	if len(g.reach) == 0 {
		g.reach = []string{vpc}
	}
	g.Put(&ovn.PortGroup{Name: g.group, ExternalIDs: g.ids})
	for _, side := range []struct {
		ingress bool
		field   string
		rules   []v1.SecurityGroupRule
	}{{true, "spec.ingressRules", spec.IngressRules}, {false, "spec.egressRules", spec.EgressRules}} {
		if spec.AllowSameGroupTraffic {
			for _, fam := range []string{"ip4", "ip6"} {
				g.rule(g.group+".same", side.ingress, prioritySame, actionAllow, g.members(name, fam, remote(side.ingress)))
			}
		}
		for i, r := range side.rules {
			g.add(fmt.Sprintf("%s[%d]", side.field, i), side.ingress, r)
		}
	}
	return g
}

// remote is the side of a packet at which the other one stands.
func remote(ingress bool) string {
	if ingress {
		return "src"
	}
	return "dst"
}

// members matches the members of a group at one side: their addresses OVN keeps
// itself, for each port group.
func (g *guard) members(group, family, side string) string {
	sets := make([]string, 0, len(g.reach))
	for _, vpc := range g.reach {
		sets = append(sets, "$"+GroupIn(group, vpc)+"_"+family)
	}
	of := sets[0]
	if len(sets) > 1 {
		of = "{" + strings.Join(sets, ", ") + "}"
	}
	return fmt.Sprintf("%s.%s == %s", family, side, of)
}

// add adds one rule.
func (g *guard) add(path string, ingress bool, r v1.SecurityGroupRule) {
	m := ruleMatch{path: path, family: "ip4", side: remote(ingress), rule: r}
	if strings.EqualFold(r.IPVersion, "ipv6") {
		m.family = "ip6"
	}
	nobody := false
	switch {
	case r.RemoteType != v1.RemoteSecurityGroup:
		m.peer()
	case !g.known(r.RemoteSecurityGroup):
		g.faults = append(g.faults, fmt.Sprintf("%s.remoteSecurityGroup: there is no SecurityGroup %s: the rule is about nobody", path, r.RemoteSecurityGroup))
		nobody = true
	default:
		m.and(g.members(r.RemoteSecurityGroup, m.family, m.side))
	}
	m.local()
	m.protocol()
	action := g.action(&m)
	if r.Priority < 0 || r.Priority > lastRule {
		m.refuse("priority", "%d is not from 1 to %d", r.Priority, lastRule)
	}
	g.faults = append(g.faults, m.faults...)
	match := m.String()
	if len(m.faults) > 0 {
		match = "ip"
		nobody = action == actionAllow
	}
	if !nobody {
		g.rule(g.group+"."+path, ingress, priorityRules+lastRule-min(max(r.Priority, 1), lastRule), action, match)
	}
}

// action is what a rule does; what is not understood drops.
func (g *guard) action(m *ruleMatch) string {
	switch m.rule.Policy {
	case v1.RuleAllow:
		return actionAllow
	case v1.RuleDrop:
	case v1.RulePass:
		g.undone = append(g.undone, m.path+".policy: pass (it drops: there is no next tier)")
	default:
		m.refuse("policy", "%q is none of allow, drop, pass", m.rule.Policy)
	}
	return actionDrop
}

// ruleMatch is what one rule matches, in the making.
type ruleMatch struct {
	path         string
	family, side string // ip4 or ip6; where the other one stands: src or dst
	rule         v1.SecurityGroupRule
	parts        []string
	faults       []string
}

func (m *ruleMatch) and(part string) { m.parts = append(m.parts, part) }

func (m *ruleMatch) refuse(field, format string, args ...any) {
	m.faults = append(m.faults, m.path+"."+field+": "+fmt.Sprintf(format, args...))
}

// String is the match in OVN's language.
func (m *ruleMatch) String() string {
	return strings.Join(append([]string{m.family}, m.parts...), " && ")
}

// peer adds the network of the other side.
func (m *ruleMatch) peer() {
	if t := m.rule.RemoteType; t != v1.RemoteAddress && t != "cidr" {
		m.refuse("remoteType", "%q is neither %s nor %s", t, v1.RemoteAddress, v1.RemoteSecurityGroup)
		return
	}
	m.network("remoteAddress", m.rule.RemoteAddress, m.side)
}

// local adds which of the port's own addresses a rule is about.
func (m *ruleMatch) local() {
	if m.rule.LocalAddress != "" {
		m.network("localAddress", m.rule.LocalAddress, map[string]string{"src": "dst", "dst": "src"}[m.side])
	}
}

// network adds that an address is one of a network.
func (m *ruleMatch) network(field, text, side string) {
	p, err := network(text)
	switch {
	case err != nil:
		m.refuse(field, "%q is neither an address nor a network in CIDR form", text)
	case family(p) != m.family:
		m.refuse(field, "%s is not of ipVersion %s", text, m.rule.IPVersion)
	case p.IsSingleIP():
		m.and(m.family + "." + side + " == " + p.Addr().String())
	case p.Bits() > 0: // OVN has no mask of no bits
		m.and(m.family + "." + side + " == " + p.String())
	}
}

// protocol adds the protocol and its ports.
func (m *ruleMatch) protocol() {
	r := m.rule
	switch r.Protocol {
	case "tcp", "udp":
		m.and(r.Protocol)
		m.ports("portRange", "dst", r.PortRangeMin, r.PortRangeMax)
		m.ports("sourcePortRange", "src", r.SourcePortRangeMin, r.SourcePortRangeMax)
		return
	case "icmp":
		m.and("icmp" + m.family[2:])
	case "", "all":
	default:
		m.refuse("protocol", "%q is none of all, icmp, tcp, udp", r.Protocol)
	}
	if r.PortRangeMin|r.PortRangeMax|r.SourcePortRangeMin|r.SourcePortRangeMax != 0 {
		m.refuse("portRangeMin", "only tcp and udp have ports: leave them out, or name the protocol")
	}
}

// ports adds a range of ports, both ends of which are given, or none.
func (m *ruleMatch) ports(field, side string, first, last int) {
	at := m.rule.Protocol + "." + side
	switch {
	case first == 0 && last == 0:
	case first < 1 || last < first || last > 65535:
		m.refuse(field+"Min", "%d to %d is no range of ports: give %[3]sMin and %[3]sMax", first, last, field)
	case first == last:
		m.and(fmt.Sprintf("%s == %d", at, first))
	default:
		m.and(fmt.Sprintf("%d <= %s <= %d", first, at, last))
	}
}
