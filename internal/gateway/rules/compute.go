package rules

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
)

// Marks of packets, as Kube-OVN and kube-proxy have them.
const (
	markService = 0x4000  // kube-proxy's too: to be masqueraded
	markLocal   = 0x80000 // to a NodePort of a Service with externalTrafficPolicy: Local
	markHide    = 0x90001 // a policy rule says nat
	markKeep    = 0x90002 // a policy rule says forward
	decided     = 0x90000 // either, in the bits of decidedBits
	decidedBits = 0xffffc
	every       = 0xffffffff
)

// Sets of kube-proxy's IPVS mode that rules speak of where they are there; those of IPv6
// have a 6 behind the prefix.
const (
	proxySets        = "KUBE-"
	proxyClusterIP   = "CLUSTER-IP"
	proxyLocalPrefix = "NODE-PORT-LOCAL-" // of TCP and UDP
)

// Ports of tunnels, whose packets are the node's own and bear no mark.
const (
	genevePort = 6081
	vxlanPort  = 4789
)

// Input is what a Ruleset follows from. Families may be mixed everywhere.
type Input struct {
	Subnets []Subnet       // whose pods leave by this node
	Nodes   []netip.Prefix // networks of nodes behind OVN's routers
	Pods    []netip.Addr   // the node's own of Subnets with NAT
	// Services are the networks of cluster IPs; empty ones are not known.
	Services []netip.Prefix
	// Own are addresses of the node, of each family the one that a packet to a Service
	// gets; Others are those of the other nodes.
	Own, Others []netip.Addr
	// Join is the device that leads to OVN's routers, "" on a node without OVN.
	Join string
	// World are devices by which pods' packets leave the node. No rule asks for them: it is
	// for whoever looks at those of others.
	World []string
	// Proxy are the names of kube-proxy's own sets that the node has.
	Proxy  []string
	Clamp  *Clamp // nil: TCP's segments stay as they are
	Probes []Probe
}

// Clamp is what connections that leave by a device may have as their largest segment,
// in bytes; 0 is what the path's MTU allows.
type Clamp struct {
	Device string
	Size   int
}

// Subnet is what matters of one here.
type Subnet struct {
	Name  string
	UID   string // of its object, "" without a cluster
	CIDRs []netip.Prefix
	NAT   bool           // packets to anywhere but pods get the node's address ...
	As    []netip.Addr   // ... or of these the one of their family, an address of the node ...
	Rules []core.NATRule // ... or what these say, in order
	// Centralized: its pods leave the cluster by gateway nodes, and not each by its own.
	Centralized bool
}

// none tells that there is nothing to do.
func (in Input) none() bool { return len(in.Subnets) == 0 && in.Join == "" }

// Compute is the Ruleset of an Input: the same for the same, whatever its order.
func Compute(in Input) (r Ruleset) {
	if in.none() {
		return r
	}
	for _, v6 := range []bool{false, true} {
		c := computation{Input: in, v6: v6}
		if !c.concerned() {
			continue
		}
		c.sets()
		c.nat()
		c.mangle()
		c.probes()
		c.filter()
		slices.SortFunc(c.out.Sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
		c.out.V6 = v6
		r.Families = append(r.Families, c.out)
	}
	return r
}

// computation makes one family's part.
type computation struct {
	Input
	v6  bool
	out Family
}

// concerned tells that pods or nodes have addresses of the family.
func (c *computation) concerned() bool {
	has := func(p netip.Prefix) bool { return p.Addr().Is6() == c.v6 }
	return len(c.probed()) > 0 || slices.ContainsFunc(c.Nodes, has) || slices.ContainsFunc(c.Subnets, func(s Subnet) bool { return slices.ContainsFunc(s.CIDRs, has) })
}

// Sets that rules speak of, without the prefix of their family.
const (
	setSubnets     = "subnets"
	setNAT         = "subnets-nat"
	setDistributed = "subnets-distributed-gw"
	setServices    = "services"
	setNodes       = "other-node"
	setPolicy      = "subnets-nat-policy"
	setPods        = "local-pod-ip-nat"
	setFrom        = "subnets-out" // not Kube-OVN's, which has two rules for each Subnet instead
	setTo          = "subnets-in"
	setRule        = "natpr-" // and the rule's id, and src or dst
)

// ownSets are all of them, with what they hold.
var ownSets = map[string]string{
	setSubnets: "networks of pods, and of the nodes' own ports", setNAT: "networks with natOutgoing",
	setDistributed: "networks whose pods leave by their own node", setServices: "networks of Services",
	setNodes: "addresses of the other nodes", setPolicy: "networks with natOutgoingPolicyRules",
	setPods: "the node's own pods of networks with natOutgoing: other programs' rules may ask it",
	setFrom: "counts what comes from pods", setTo: "counts what goes to pods",
}

// proxy is a set of kube-proxy's of the family, and whether the node has it.
func (c *computation) proxy(set string) (name string, has bool) {
	if name = proxySets + set; c.v6 {
		name = proxySets + "6-" + set
	}
	return name, slices.Contains(c.Proxy, name)
}

func (c *computation) name(set string) string { return setPrefix(c.v6) + set }

// set adds a set of those networks that are of the family.
func (c *computation) set(name string, members []netip.Prefix) *Set {
	c.out.Sets = append(c.out.Sets, Set{Name: c.name(name), Does: ownSets[name], Members: c.distinct(members)})
	return &c.out.Sets[len(c.out.Sets)-1]
}

// distinct are the networks of the family without those that lie in others. A set
// holds no network of length 0: its halves are there instead.
func (c *computation) distinct(all []netip.Prefix) (out []netip.Prefix) {
	var own []netip.Prefix
	for _, p := range all {
		switch {
		case p.Addr().Is6() != c.v6:
		case p.Bits() == 0:
			own = append(own, halves(p)...)
		default:
			own = append(own, p.Masked())
		}
	}
	slices.SortFunc(own, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range own {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

// halves are the two of everything.
func halves(p netip.Prefix) []netip.Prefix {
	upper := p.Addr().AsSlice()
	upper[0] = 0x80
	high, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(high, 1)}
}

func (c *computation) sets() {
	var all, own, nat, policy []netip.Prefix
	for _, s := range c.Subnets {
		all = append(all, s.CIDRs...)
		if !s.Centralized {
			own = append(own, s.CIDRs...)
		}
		if s.NAT {
			nat = append(nat, s.CIDRs...)
		}
		if s.ruled() {
			policy = append(policy, s.CIDRs...)
		}
	}
	c.set(setPolicy, policy)
	c.set(setFrom, all).Counters = true
	c.set(setTo, all).Counters = true
	c.set(setSubnets, slices.Concat(all, c.Nodes))
	c.set(setNAT, nat)
	c.set(setDistributed, own)
	c.set(setServices, c.Services)
	c.set(setNodes, single(c.Others))
	c.set(setPods, single(c.Pods)).Hosts = true
}

func single(addrs []netip.Addr) (out []netip.Prefix) {
	for _, a := range addrs {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// chain adds a chain; rules that are of no use are nil.
func (c *computation) chain(table, name, parent string, rules ...[]Rule) {
	c.out.Chains = append(c.out.Chains, Chain{Table: table, Name: ChainPrefix + name, Parent: parent, Rules: slices.Concat(rules...)})
}

func (c *computation) in(dir, set string) Match { return Match{Set: c.name(set), Dir: dir} }

func (c *computation) notIn(dir, set string) Match {
	return Match{Set: c.name(set), Dir: dir, Not: true}
}

// Chains of nat that others jump to. Kube-OVN has no OVN-SAME-SUBNET: its pods of one
// Subnet never meet by the node.
const (
	chainMasquerade = ChainPrefix + "MASQUERADE"
	chainSame       = ChainPrefix + "SAME-SUBNET"
)

// nat translates what leaves, and marks before that what kube-proxy will lead
// elsewhere. The letters are those of the rules in the documentation (gateway.md).
func (c *computation) nat() {
	c.chain(NAT, "PREROUTING", "PREROUTING", c.toServices(), c.toNodePorts())
	// The mark goes: a tunnel that takes the packet may read it, too.
	c.chain(NAT, "MASQUERADE", "", []Rule{{Do: mark(0, every), Does: "the mark goes"}, {Do: Action{Verb: Masquerade}, Does: "the packet gets the node's address"}})
	if c.Join == "" {
		c.same()
	}
	policies := c.policies()
	src, dst := func(set string) Match { return c.in("src", set) }, func(set string) Match { return c.in("dst", set) }
	hide := jump(chainMasquerade)
	local := Mark{Value: markLocal, Mask: markLocal}
	c.chain(NAT, "POSTROUTING", "POSTROUTING",
		c.untranslated(),
		c.asNode(), // a
		[]Rule{{Mark: Mark{Value: markService, Mask: markService}, Do: hide, Does: "what kube-proxy marked, and pods' packets to Services by the node, get the node's address"}}, // b
		c.backByNode(hide), // c
		[]Rule{
			{Sets: []Match{dst(setDistributed)}, Mark: local, Do: Action{Verb: Return}, Does: "a NodePort's own pods see the client"}, // d
			{Mark: local, Do: hide, Does: "else a NodePort's client gets the node's address"},                                         // e
		},
		c.backByGateway(hide),
		[]Rule{
			{Proto: "tcp", Flags: NotSYN, State: New, Do: Action{Verb: Return}, Does: "a connection that began elsewhere is left alone"},                                        // f
			{Sets: []Match{c.notIn("src", setSubnets), c.notIn("src", setNodes), dst(setNAT)}, Do: Action{Verb: Return}, Does: "what comes from outside to pods is left alone"}, // g
		},
		policies, // h, i, j
		c.asGateway(),
		[]Rule{{Sets: []Match{src(setNAT), c.notIn("dst", setSubnets)}, Do: hide, Does: "natOutgoing: what leaves for no pod gets the node's address"}}, // k
	)
}

// toServices marks what pods send to cluster IPs by the node.
func (c *computation) toServices() []Rule {
	if c.Join == "" {
		return nil
	}
	r := Rule{In: c.Join, Sets: []Match{c.in("src", setSubnets), c.in("dst", setServices)}, Do: mark(markService, markService), Does: "pods' packets to Services by the node are marked"}
	if set, has := c.proxy(proxyClusterIP); has {
		r.Sets[1] = Match{Set: set, Dir: "dst,dst", Else: c.name(setServices)}
	}
	return []Rule{r}
}

// toNodePorts marks what comes to NodePorts of Services whose endpoints are this
// node's alone, of IPVS: those of other modes leave no set behind.
func (c *computation) toNodePorts() (out []Rule) {
	for _, proto := range []string{"tcp", "udp"} {
		set, has := c.proxy(proxyLocalPrefix + strings.ToUpper(proto))
		if !has {
			continue
		}
		to := Match{Set: set, Dir: "dst"}
		out = append(out,
			Rule{Proto: proto, Sets: []Match{to}, ToNode: true, Do: mark(markLocal, markLocal), Does: "what comes to a NodePort with externalTrafficPolicy: Local is marked"},
			Rule{Proto: proto, Sets: []Match{c.in("src", setNodes), to}, Do: mark(markService, markService), Does: "so is what another node sends there"})
	}
	return out
}

// asNode is that a Service which answers a pod by the node answers as the node.
func (c *computation) asNode() []Rule {
	i := slices.IndexFunc(c.Own, func(a netip.Addr) bool { return a.Is6() == c.v6 })
	if i < 0 || len(c.Services) == 0 {
		return nil
	}
	return []Rule{{
		Sets: []Match{c.in("src", setServices), c.in("dst", setSubnets)}, Mark: Mark{Value: markService, Mask: markService},
		Do: Action{Verb: SNAT, To: c.Own[i]}, Does: "a Service answers pods as the node",
	}}
}

// asGateway has pods leave as whom their Subnet says of this node.
func (c *computation) asGateway() (out []Rule) {
	for _, s := range c.Subnets {
		as := c.as(s)
		if !as.IsValid() {
			continue
		}
		for _, p := range s.CIDRs {
			if p.Addr().Is6() == c.v6 {
				out = append(out, Rule{Src: p.Masked(), Sets: []Match{c.notIn("dst", setSubnets)}, Do: Action{Verb: SNAT, To: as}, Does: "natOutgoing of " + s.Name + ": what leaves for no pod gets the address that gatewayNode gives this node"})
			}
		}
	}
	return out
}

// as is the family's address as which a Subnet's pods leave, none for the node's.
func (c *computation) as(s Subnet) (as netip.Addr) {
	if i := slices.IndexFunc(s.As, func(a netip.Addr) bool { return a.Is6() == c.v6 }); s.NAT && i >= 0 {
		as = s.As[i]
	}
	return as
}

// backByNode has answers come back by the node that led a packet elsewhere. Behind
// OVN a pod answers pods and other nodes past it; without OVN a pod does so to those
// of its own Subnet, and others see who asks.
func (c *computation) backByNode(hide Action) []Rule {
	if c.Join == "" {
		return []Rule{{Sets: []Match{c.in("src", setSubnets), c.in("dst", setSubnets)}, State: Translated, Do: jump(chainSame), Does: "what the node led from pod to pod"}}
	}
	return []Rule{
		{Sets: []Match{c.in("src", setSubnets), c.in("dst", setSubnets)}, Do: hide, Does: "what the node led from pod to pod gets its address: answers come back by it"},
		{Out: c.Join, Sets: []Match{c.in("src", setNodes)}, State: Translated, Do: hide, Does: "so does what it led from another node to a pod"},
	}
}

// backByGateway has the answers of centralized Subnets come back by the node that led a
// packet from outside to them; they would go by the gateway, which knows nothing of it.
func (c *computation) backByGateway(hide Action) []Rule {
	if !slices.ContainsFunc(c.Subnets, func(s Subnet) bool { return s.Centralized }) {
		return nil
	}
	return []Rule{{Out: c.Join, Sets: []Match{c.in("dst", setSubnets), c.notIn("dst", setDistributed)}, State: Translated, Do: hide, Does: "a client of a Service comes to pods of centralized Subnets as the node that let it in, by which answers go back"}}
}

// same hides pods from those of their own Subnet.
func (c *computation) same() {
	var all []netip.Prefix
	for _, s := range c.Subnets {
		all = append(all, s.CIDRs...)
	}
	var out []Rule
	for _, p := range c.distinct(all) {
		out = append(out, Rule{Src: p, Dst: p, Do: jump(chainMasquerade), Does: "within one Subnet it gets the node's address: answers come back by it"})
	}
	c.chain(NAT, "SAME-SUBNET", "", out)
}

// mangle drops what would end a connection that goes past this node, and what would leave
// untranslated of one that another gateway node translated. Where rules of the Subnet
// have some leave untranslated, those go on.
func (c *computation) mangle() {
	out := []Rule{{Proto: "tcp", Flags: RST, Sets: []Match{c.in("src", setSubnets)}, State: Invalid, Do: Action{Verb: Drop}, Does: "pods' resets that belong to no connection are dropped"}}
	for _, s := range c.Subnets {
		for _, p := range s.CIDRs {
			if s.Centralized && s.NAT && !s.ruled() && p.Addr().Is6() == c.v6 {
				out = append(out, Rule{Src: p.Masked(), Proto: "tcp", Flags: NotSYN, Sets: []Match{c.notIn("dst", setSubnets)}, State: New, Do: Action{Verb: Drop}, Does: "what would leave untranslated of a connection that another gateway translated is dropped"})
			}
		}
	}
	if c.Clamp != nil {
		out = append(out, Rule{Out: c.Clamp.Device, Proto: "tcp", Flags: SYN, Do: Action{Verb: MSS, Size: c.Clamp.Size}, Does: "--mss: the largest segment of TCP connections that leave"})
	}
	c.chain(Mangle, "POSTROUTING", "POSTROUTING", out)
}

// filter counts pods' packets and lets them through whatever others have for the rest.
func (c *computation) filter() {
	counts := []Rule{
		{Comment: "ovn-subnet-gateway", Sets: []Match{c.in("src", setFrom)}, Does: "counts what comes from pods"},
		{Comment: "ovn-subnet-gateway", Sets: []Match{c.in("dst", setTo)}, Does: "counts what goes to pods"},
	}
	var pass []Rule
	for _, set := range []string{setSubnets, setServices} {
		for _, dir := range []string{"src", "dst"} {
			pass = append(pass, Rule{Sets: []Match{c.in(dir, set)}, Do: Action{Verb: Accept}, Does: "pods' and Services' packets pass"})
		}
	}
	refuse := c.refused()
	c.chain(Filter, "INPUT", "INPUT", refuse, pass)
	c.chain(Filter, "FORWARD", "FORWARD", counts, pass)
	if c.Join != "" {
		for _, port := range []uint16{genevePort, vxlanPort} {
			refuse = append(refuse, Rule{Proto: "udp", Port: port, Do: mark(0, every), Does: "tunnels' packets bear no mark"})
		}
		c.chain(Filter, "OUTPUT", "OUTPUT", refuse, c.closed())
	}
}

// refused are connections to cluster IPs that IPVS knows no endpoint of: nobody marked them.
// Where pods' packets are not marked there is none.
func (c *computation) refused() []Rule {
	if _, has := c.proxy(proxyClusterIP); !has || c.Join == "" {
		return nil
	}
	return []Rule{{
		Proto: "tcp", Sets: []Match{c.in("dst", setServices)}, State: New, Mark: Mark{Value: markService, Mask: markService, Not: true},
		Do: Action{Verb: Reject}, Does: "a connection to a Service that IPVS does not know is refused",
	}}
}

// OwnSet tells by its name that a set of the kernel is one of a Ruleset's.
func OwnSet(name string) bool {
	for _, prefix := range []string{setPrefix(false), setPrefix(true)} {
		if set, ok := strings.CutPrefix(name, prefix); ok && (ownSets[set] != "" || strings.HasPrefix(set, setRule)) {
			return true
		}
	}
	return false
}

// PodSet tells by its name that a set is the one of the node's own pods.
func PodSet(name string) bool {
	return name == setPrefix(false)+setPods || name == setPrefix(true)+setPods
}

// Made tells by the name of a set of the kernel that a Ruleset of ours was there: Kube-OVN,
// whose names the others are, has none such.
func Made(name string) bool {
	return name == CounterSet(false, true) || name == CounterSet(true, true)
}

// CounterSet is the name of the set that counts what leaves Subnets, or comes to them.
func CounterSet(v6, leaves bool) string {
	if leaves {
		return setPrefix(v6) + setFrom
	}
	return setPrefix(v6) + setTo
}
