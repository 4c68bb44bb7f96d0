package logical

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead/fairlead/internal/ovn"
)

// Priorities of NetworkPolicies' rules (sdn.md, 11), below those of nodes.
const (
	priorityPolicyDrop  = 2000
	priorityPolicyAllow = 2001
)

// keyPolicy is the external id of a NetworkPolicy's rows: "namespace/name".
const keyPolicy = "np"

// ContainerPort is a port of a pod's container.
type ContainerPort struct {
	Name     string
	Protocol string // TCP, UDP, SCTP
	Number   int
}

// Member is a pod as NetworkPolicies see it.
type Member struct {
	Name   string
	Labels map[string]string
	Ports  []ContainerPort
	IPs    []netip.Addr // of its default network
	Vpc    string       // of that network, "" where it is not known
	texts  []string     // of IPs
}

// NetworkPolicy is a policy with its selectors read.
type NetworkPolicy struct {
	namespace, name string
	pods            labels.Selector
	rules           []policyRule
	ingress, egress bool
	undone          []string
}

// policyRule is what one entry of a policy lets pass.
type policyRule struct {
	ingress bool
	all     bool // peers are not restricted
	peers   []selection
	blocks  []netip.Prefix // without what is excepted, none inside another
	ports   []policyPort
	open    bool // ports are not restricted
}

// policyPort is a protocol with its ports: all where there is neither a name nor
// a number.
type policyPort struct {
	path        string
	protocol    string // tcp, udp, sctp
	name        string
	first, last int
}

// GroupOf names a NetworkPolicy's port group. It follows from a hash: names of
// two policies that clean up to the same text must not share one.
func GroupOf(namespace, name string) string {
	return fmt.Sprintf("np.%x", sha256.Sum256([]byte(namespace+"/"+name)))[:35]
}

// Group is the policy's port group.
func (p *NetworkPolicy) Group() string { return GroupOf(p.namespace, p.name) }

// Name is the policy's name within its namespace.
func (p *NetworkPolicy) Name() string { return p.name }

// Namespace is the policy's.
func (p *NetworkPolicy) Namespace() string { return p.namespace }

// Selects tells that the policy governs a pod of its namespace.
func (p *NetworkPolicy) Selects(with map[string]string) bool {
	return p.pods.Matches(labels.Set(with))
}

// selections are those of the pods on which the policy's rows depend: its peers, and
// who says what a named port is.
func (p *NetworkPolicy) selections() (out []selection) {
	for _, r := range p.rules {
		out = append(out, r.peers...)
		if r.named() {
			out = append(out, p.receivers(r)...)
		}
	}
	return out
}

// own selects the pods that the policy governs.
func (p *NetworkPolicy) own() selection { return newSelection(p.namespace, nil, p.pods) }

// receivers select the pods at whose ports a rule lets something pass.
func (p *NetworkPolicy) receivers(r policyRule) []selection {
	switch {
	case r.ingress:
		return []selection{p.own()}
	case r.all:
		return []selection{newSelection(p.namespace, labels.Everything(), labels.Everything())}
	}
	return r.peers
}

// named tells that a rule has a port whose number pods say.
func (r policyRule) named() bool {
	return slices.ContainsFunc(r.ports, func(o policyPort) bool { return o.name != "" })
}

// policySet is a policy's Set in the making.
type policySet struct {
	*ovn.Set
	p      *NetworkPolicy
	seen   Seen
	undone []string
}

// Set is the policy's rows: its port group, into which the pods' own Sets put
// their ports, with rules and address sets. Nodes always reach their pods: they
// are the ones who probe them. seen is what Pods.Seen gives of the policy. undone
// is what it says and what nobody carries out; it lets nothing pass.
func (p *NetworkPolicy) Set(seen Seen, nodes []netip.Prefix) (set *ovn.Set, undone []string) {
	s := policySet{Set: &ovn.Set{Owner: "networkpolicy/" + p.namespace + "/" + p.name}, p: p, seen: seen, undone: slices.Clone(p.undone)}
	s.Put(&ovn.PortGroup{Name: p.Group(), ExternalIDs: s.ids()})
	for ingress, has := range map[bool]bool{true: p.ingress, false: p.egress} {
		if has {
			s.rule(p.Group(), ingress, priorityPolicyDrop, actionDrop, "ip")
			// Without a rule of this action OVN follows no connections, and drops replies.
			s.rule(p.Group(), ingress, priorityPolicyAllow, actionAllow, "ct.est && ct.rpl")
		}
	}
	if p.ingress {
		for _, ip := range Hairpins() { // of a pod that reaches itself by its Service
			s.rule(p.Group(), true, priorityPolicyAllow, actionAllow, family(netip.PrefixFrom(ip, ip.BitLen()))+".src == "+ip.String())
		}
		for _, n := range nodes {
			s.rule(p.Group(), true, priorityOfNodes, actionAllow, family(n)+".src == "+n.String())
		}
	}
	for i, r := range p.rules {
		s.allow(r, fmt.Sprintf("%s.%s%d", p.Group(), direction(r.ingress), i))
	}
	return s.Set, s.undone
}

func direction(ingress bool) string {
	if ingress {
		return "in"
	}
	return "out"
}

func (s *policySet) ids() map[string]string {
	return map[string]string{keyPolicy: s.p.namespace + "/" + s.p.name}
}

// rule adds a rule about the policy's pods. Rules of one name differ in what
// they match.
func (s *policySet) rule(name string, ingress bool, priority int, action, match string) {
	grouped{s.Set, s.p.Group(), s.ids()}.rule(name, ingress, priority, action, match)
}

// addresses adds an address set for each family, and gives what matches one
// side of a packet by them.
func (s *policySet) addresses(name, side string, of []string) (matches []string) {
	four, six := []string{}, []string{}
	for _, a := range of {
		if strings.Contains(a, ":") {
			six = append(six, a)
		} else {
			four = append(four, a)
		}
	}
	for fam, list := range map[string][]string{"4": four, "6": six} {
		set := name + ".ip" + fam
		slices.Sort(list)
		s.Put(&ovn.AddressSet{Name: set, Addresses: slices.Compact(list), ExternalIDs: s.ids()})
		matches = append(matches, "ip"+fam+"."+side+" == $"+set)
	}
	slices.Sort(matches)
	return matches
}

// allow adds what one entry of the policy lets pass.
func (s *policySet) allow(r policyRule, name string) {
	side := map[bool]string{true: "src", false: "dst"}[r.ingress]
	peers := []string{"ip"}
	if !r.all {
		peers = s.addresses(name, side, s.peers(r))
	}
	seen := map[string]bool{}
	put := func(match string) {
		if !seen[match] {
			seen[match] = true
			s.rule(name, r.ingress, priorityPolicyAllow, actionAllow, match)
		}
	}
	for _, peer := range peers {
		if r.open {
			put(peer)
		}
		for _, o := range r.ports {
			if o.name == "" {
				put(peer + " && " + o.match())
			}
		}
	}
	for i, o := range r.ports {
		if o.name != "" {
			s.named(r, o, fmt.Sprintf("%s.p%d", name, i), peers, put)
		}
	}
}

// match is a port in OVN's match language.
func (o policyPort) match() string {
	switch o.first {
	case 0:
		return o.protocol
	case o.last:
		return fmt.Sprintf("%s.dst == %d", o.protocol, o.first)
	}
	return fmt.Sprintf("%d <= %s.dst <= %d", o.first, o.protocol, o.last)
}

// named adds rules for a port that has a name: who receives says which number
// that is, and each may say another.
func (s *policySet) named(r policyRule, o policyPort, name string, peers []string, put func(match string)) {
	if len(r.blocks) > 0 && !r.ingress {
		s.undone = append(s.undone, fmt.Sprintf("%s: addresses of an ipBlock name no ports: %q lets only pods pass", o.path, o.name))
	}
	by := s.numbers(r, o)
	for _, number := range slices.Sorted(maps.Keys(by)) {
		port := policyPort{protocol: o.protocol, first: number, last: number}
		for _, to := range s.addresses(fmt.Sprintf("%s.%d", name, number), "dst", by[number]) {
			if !r.ingress {
				put(to + " && " + port.match())
				continue
			}
			for _, peer := range peers {
				if peer == "ip" || peer[:3] == to[:3] { // of one family
					put(peer + " && " + to + " && " + port.match())
				}
			}
		}
	}
}

// numbers are what a port's name means, with the addresses where it means that.
func (s *policySet) numbers(r policyRule, o policyPort) map[int][]string {
	by := map[int][]string{}
	for _, to := range s.p.receivers(r) {
		for _, m := range s.seen[to.key] {
			for _, c := range m.Ports {
				if c.Name == o.name && strings.EqualFold(c.Protocol, o.protocol) {
					by[c.Number] = append(by[c.Number], m.texts...)
				}
			}
		}
	}
	return by
}

// peers are the addresses of a rule's peers: networks, and pods that are in
// none of these.
func (s *policySet) peers(r policyRule) (out []string) {
	for _, b := range r.blocks {
		switch {
		case b.IsSingleIP():
			out = append(out, b.Addr().String())
		case b.Bits() == 0: // OVN has no mask of no bits
			half := netip.PrefixFrom(b.Addr(), 1)
			out = append(out, half.String(), netip.PrefixFrom(netipx.PrefixLastIP(b), 1).Masked().String())
		default:
			out = append(out, b.String())
		}
	}
	within := inAny(r.blocks)
	for _, o := range r.peers {
		out = slices.Grow(out, len(s.seen[o.key]))
		for _, m := range s.seen[o.key] {
			for i, ip := range m.IPs {
				if !within(ip) {
					out = append(out, m.texts[i])
				}
			}
		}
	}
	return out
}

func texts(ips []netip.Addr) (out []string) {
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return out
}
