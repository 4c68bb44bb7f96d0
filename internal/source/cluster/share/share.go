// Package share decides of which addresses of a Subnet one node of a cluster may
// give new ones, while no controller coordinates the nodes. The decision is pure
// (View): what the Node objects say and which addresses this node holds goes in.
// Keeper has it made when that changes, and has what follows written.
//
// Each node says on its own Node object which parts of which Subnets it gives
// addresses of (Claims). It gives none before it has read its own claim back,
// and none of what another node claims too. All nodes read the changes of Node
// objects in one order, so that of two claims on one part the first alone is
// followed by addresses. A claim on a whole Subnet is made only by the cluster's
// single node, or by one that holds addresses of it from then; it stays over
// reboots, and goes when the node holds no address any more and another claims
// the same. With a controller a node gives no addresses, and claims single ones that
// are in use by pods of which the controller may not know. It knows no API server.
package share

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
)

// Annotation of a Node that holds its Claims, and the type of the Node's
// condition that tells people of them.
const (
	Annotation = "fairlead.io/subnets"
	Condition  = "fairlead.io/Addresses"
)

// ParseBlocks reads a Node's podCIDRs, or its podCIDR where it has none: the server has
// checked them.
func ParseBlocks(one string, all []string) (out []netip.Prefix) {
	if len(all) == 0 {
		all = []string{one}
	}
	for _, text := range all {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Claims are the parts of Subnets, by name, that one node gives addresses of, or the
// single addresses that it holds (Holds).
type Claims map[string][]netip.Prefix

// ParseClaims reads an annotation; none is no claims.
func ParseClaims(text string) (Claims, error) {
	c := Claims{}
	if text == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("%s: %w", Annotation, err)
	}
	return c, nil
}

// String is the annotation, "" without claims.
func (c Claims) String() string {
	if len(c) == 0 {
		return ""
	}
	text, _ := json.Marshal(c) // of texts only: it cannot fail
	return string(text)
}

// covers tells that all of parts are claimed.
func (c Claims) covers(subnet string, parts []netip.Prefix) bool {
	for _, p := range parts {
		if !slices.ContainsFunc(c[subnet], func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) }) {
			return false
		}
	}
	return true
}

// overlaps tells that some of parts is claimed.
func (c Claims) overlaps(subnet string, parts []netip.Prefix) bool {
	return slices.ContainsFunc(c[subnet], func(q netip.Prefix) bool { return slices.ContainsFunc(parts, q.Overlaps) })
}

// Node is what counts of a Node object.
type Node struct {
	Claims Claims
	// Fault is why its claims cannot be read: it may claim anything.
	Fault error
	IPs   string // as v1.AnnNodeIPs has them
	Join  string // as v1.FieldIP has what it is in OVN's network of nodes, "" for nothing
}

// Notes are those annotations of a Node that are OVN's business, and its labels with the
// MTUs of provider networks.
func Notes(annotations, labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, v1.DefaultProvider+v1.ProviderSuffix) {
			out[key] = value
		}
	}
	for key, value := range labels {
		if strings.HasSuffix(key, v1.NetworkMTU) {
			out[key] = value
		}
	}
	return out
}

// ReadNode reads a Node's annotations.
func ReadNode(notes map[string]string) Node {
	claims, err := ParseClaims(notes[Annotation])
	return Node{Claims: claims, Fault: err, IPs: notes[v1.AnnNodeIPs], Join: notes[v1.DefaultProvider+v1.ProviderSuffix+v1.FieldIP]}
}

// View is the cluster as one node sees it.
type View struct {
	Unknown error // why nothing is known, nil when it is
	Soon    bool  // nothing is known, for the first answer is still to come
	Self    string
	Nodes   map[string]Node
	Blocks  []netip.Prefix // node.spec.podCIDRs of Self
	// OVN: a controller gives the addresses. What Self holds is then what it may not know.
	OVN bool
}

// Peer is another node, by both networks in which it may be asked.
type Peer struct {
	Name  string
	Join  netip.Addr // in OVN's network of nodes, through a tunnel
	Below netip.Addr // in the network that the tunnels cross
}

// Peers are the other nodes that have both, by name.
func (v View) Peers() (out []Peer) {
	first := func(list string) netip.Addr {
		text, _, _ := strings.Cut(list, ",")
		ip, _ := netip.ParseAddr(text) // what is none is the zero value
		return ip
	}
	for name, n := range v.Nodes {
		if p := (Peer{name, first(n.Join), first(n.IPs)}); name != v.Self && p.Join.IsValid() && p.Below.IsValid() {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Others are the addresses of the other nodes, sorted; what is none is left out.
func (v View) Others() []netip.Addr { return v.addresses(false) }

// Own are those of Self.
func (v View) Own() []netip.Addr { return v.addresses(true) }

func (v View) addresses(self bool) (out []netip.Addr) {
	for name, n := range v.Nodes {
		if self != (name == v.Self) {
			continue
		}
		for text := range strings.SplitSeq(n.IPs, ",") {
			if ip, err := netip.ParseAddr(text); err == nil {
				out = append(out, ip.Unmap())
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// Answer is what Self may do with one Subnet.
type Answer struct {
	// Within are the parts whose addresses may be given: none for all of it.
	Within []netip.Prefix
	// Unclaimed: it may, once the claim Want is on its Node object.
	Unclaimed bool
	// Want is the claim that should be there, be addresses given or not.
	Want []netip.Prefix
	// Refused is why no address may be given.
	Refused error
	// Conflict: another node claims addresses that Self holds, or may.
	Conflict bool
	// Held: Want is what Self holds, and becomes less with that.
	Held bool
}

// Of answers for one Subnet, of which Self holds addresses. asked tells that a
// pod wants an address of it.
func (v View) Of(s core.Subnet, held []netip.Addr, asked bool) Answer {
	if v.OVN {
		return keeps(held)
	}
	return v.of(s, held, asked)
}

// keeps is the answer where a controller gives addresses: what this node holds that the
// controller may not know of is nobody else's.
func keeps(held []netip.Addr) Answer {
	a := Answer{Held: len(held) > 0}
	for _, ip := range held {
		a.Want = append(a.Want, netip.PrefixFrom(ip, ip.BitLen()))
	}
	slices.SortFunc(a.Want, netip.Prefix.Compare)
	return a
}

// Holds are the claims on single addresses, by Subnet: a node holds these, and gives
// none. Gives are the Subnets of the others.
func (c Claims) Holds() (holds map[string][]netip.Addr, gives []string) {
	holds = map[string][]netip.Addr{}
	for _, subnet := range slices.Sorted(maps.Keys(c)) {
		if slices.ContainsFunc(c[subnet], func(p netip.Prefix) bool { return !p.IsSingleIP() }) {
			gives = append(gives, subnet)
			continue
		}
		for _, p := range c[subnet] {
			holds[subnet] = append(holds[subnet], p.Addr())
		}
	}
	return holds, gives
}

func (v View) of(s core.Subnet, held []netip.Addr, asked bool) Answer {
	if err := v.blind(s); err != nil {
		return Answer{Refused: err}
	}
	self := v.Nodes[v.Self]
	claimed := len(self.Claims[s.Name]) > 0
	parts, err := v.parts(s)
	claim := widened(s, parts, held)
	others := v.claimants(s.Name, parts)
	a := Answer{Conflict: len(others) > 0 && (len(held) > 0 || self.Claims.overlaps(s.Name, parts)), Refused: err}
	if err == nil {
		a.Refused = v.refused(s, others, a.Conflict, claimed || len(held) > 0)
	}
	if s.NodeBlock {
		a.Within = parts
	}
	if len(held) > 0 || a.Refused == nil && (asked || claimed) {
		a.Want = claim
	}
	a.Unclaimed = a.Refused == nil && !self.Claims.covers(s.Name, claim)
	return a
}

// blind is why nothing can be told of a Subnet; nil when it can.
func (v View) blind(s core.Subnet) error {
	if v.Unknown != nil {
		return refusal(core.CodeTryAgain, v.Self, s, "whether this cluster has other nodes is not known: "+v.Unknown.Error()+rightsHint)
	}
	if _, registered := v.Nodes[v.Self]; !registered {
		return refusal(core.CodeTryAgain, v.Self, s, "the cluster has no Node of this name, so that other nodes cannot know of its addresses; "+
			"it comes when kubelet registers it, or --node-name is another than kubelet's")
	}
	return nil
}

// refused is why Self may give no address of a Subnet that others claim, or that
// neither its claim or leases (mine) nor its block makes its own.
func (v View) refused(s core.Subnet, others []string, conflict, mine bool) error {
	switch {
	case len(others) > 0:
		return v.taken(s, others, conflict)
	case !mine && !s.NodeBlock && len(v.Nodes) > 1:
		return refusal(core.CodeAddress, v.Self, s,
			fmt.Sprintf("the cluster has %d nodes, and nothing tells them apart yet which addresses each may give; %s", len(v.Nodes), blockHint(s)))
	}
	return nil
}

// parts are what Self would give addresses of.
func (v View) parts(s core.Subnet) ([]netip.Prefix, error) {
	if !s.NodeBlock {
		return s.CIDRs, nil
	}
	var out []netip.Prefix
	for _, cidr := range s.CIDRs {
		at := slices.IndexFunc(v.Blocks, func(b netip.Prefix) bool { return cidr.Bits() <= b.Bits() && cidr.Contains(b.Addr()) })
		if at < 0 {
			return nil, refusal(core.CodeAddress, v.Self, s, fmt.Sprintf("fairlead.io/allocate is node-block, and node.spec.podCIDRs %v has no block inside cidrBlock %s; "+
				"set the cluster's pod CIDR (kube-controller-manager --cluster-cidr) and cidrBlock to the same network", v.Blocks, cidr))
		}
		out = append(out, v.Blocks[at].Masked())
	}
	return out, nil
}

// widened adds to parts the whole network of each family of which addresses
// outside of them are held.
func widened(s core.Subnet, parts []netip.Prefix, held []netip.Addr) []netip.Prefix {
	out := slices.Clone(parts)
	for _, cidr := range s.CIDRs {
		stray := slices.ContainsFunc(held, func(a netip.Addr) bool {
			return cidr.Contains(a) && !slices.ContainsFunc(parts, func(p netip.Prefix) bool { return p.Contains(a) })
		})
		if stray {
			out = append(out, cidr)
		}
	}
	return out
}

// claimants are the other nodes that claim some of parts, by name.
func (v View) claimants(subnet string, parts []netip.Prefix) []string {
	var out []string
	for name, n := range v.Nodes {
		if name != v.Self && (n.Fault != nil || n.Claims.overlaps(subnet, parts)) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// taken tells that others give, or hold, what Self would give.
func (v View) taken(s core.Subnet, others []string, conflict bool) error {
	who := strings.Join(others[:min(len(others), 3)], ", ")
	if more := len(others) - 3; more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	if !conflict {
		return refusal(core.CodeAddress, v.Self, s, "node "+who+" gives them, and nothing coordinates the nodes yet; run the pod there, or "+blockHint(s))
	}
	next := "`kubectl drain` all of them but one"
	if s.NodeBlock {
		next = "restart the pods whose addresses are outside of their node's block"
	}
	return refusal(core.CodeAddress, v.Self, s, "node "+who+" holds addresses of it too, and either could give one that a pod of the other has; "+next)
}

// rightsHint is the next step where Nodes cannot be read.
const rightsHint = "; the agent needs get, list and watch of nodes and patch of nodes/status (`fairlead install` gives them)"

// blockHint is the way to have every node give addresses.
func blockHint(s core.Subnet) string {
	if s.NodeBlock {
		return "restart the pods there whose addresses are outside of that node's block"
	}
	return "give each node its own part of it, where the nodes' podCIDRs lie in its cidrBlock: `kubectl annotate subnet " + s.Name + " fairlead.io/allocate=node-block`"
}

func refusal(code uint, node string, s core.Subnet, why string) error {
	return &core.Error{Code: code, Msg: "node " + node + " gives no new addresses of Subnet " + s.Name, Details: why}
}

// Summary is the Node's condition: what Self gives addresses of, and what not.
type Summary struct {
	Status, Reason, Message string
}

// Summarize makes the condition of answers by Subnet; none has no condition.
func Summarize(answers map[string]Answer) (Summary, bool) {
	out := Summary{Status: "True", Reason: "Given"}
	var good, bad []string
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		a := answers[name]
		if a.Refused == nil {
			good = append(good, name)
			continue
		}
		bad = append(bad, a.Refused.Error())
		out.Status, out.Reason = "False", cmp.Or(map[bool]string{true: "Conflict"}[a.Conflict || out.Reason == "Conflict"], "Refused")
	}
	out.Message = strings.Join(bad, "; ")
	if len(bad) == 0 {
		out.Message = "addresses of Subnet " + strings.Join(good, ", ")
	}
	return out, len(answers) > 0
}
