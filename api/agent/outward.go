package agent

import "net/netip"

// PathOutward is a GET of an Outward.
const PathOutward = "/v1/outward"

// Outward answers PathOutward: the node's part in how pods leave it, what does what and
// who wrote it.
type Outward struct {
	Node string `json:"node"`
	// As are the addresses as which packets leave that the node translates, one of a family.
	As       []netip.Addr     `json:"as,omitempty"`
	Subnets  []OutwardSubnet  `json:"subnets"`
	Filter   string           `json:"filter"` // iptables (nft), iptables (legacy), nftables
	Sets     []OutwardSet     `json:"sets"`
	Chains   []OutwardChain   `json:"chains"`
	Ways     []OutwardWay     `json:"ways"`
	Networks []OutwardNetwork `json:"networks"`
	Probes   []OutwardProbe   `json:"probes,omitempty"`
	Faults   []OutwardFault   `json:"faults"`
	Repairs  []Repair         `json:"repairs,omitempty"` // of gateways, rules and sets
	Unread   []string         `json:"unread,omitempty"`  // what could not be looked at, and why
}

// OutwardSubnet is a Subnet whose pods this node leads out.
type OutwardSubnet struct {
	Name  string         `json:"name"`
	CIDRs []netip.Prefix `json:"cidrs"`
	// Device is what leads to its pods: ovn0, or the port that has the gateway's address.
	Device string `json:"device"`
	// GatewayType is distributed or centralized; "" where there is no OVN.
	GatewayType string `json:"gatewayType,omitempty"`
	// NATOutgoing: packets to no pod get the node's address, but for those that Rules of its
	// own spare.
	NATOutgoing bool         `json:"natOutgoing"`
	Rules       int          `json:"rules,omitempty"`
	Egress      []netip.Addr `json:"egress,omitempty"` // externalEgressGateway
	Table       int          `json:"table,omitempty"`  // of its routes
	Priority    int          `json:"priority,omitempty"`
}

// OutwardProbe is a port at which a pod in a Vpc of its own is probed, which the node leads
// to a proxy.
type OutwardProbe struct {
	Pod  string         `json:"pod"`
	To   netip.AddrPort `json:"to"`
	Open bool           `json:"open"` // the pod listens; otherwise the node is refused
	// Why is why probes do not come to the pod, "" where they do.
	Why string `json:"why,omitempty"`
}

// Distributed is the gatewayType of Subnets whose pods leave by their own node.
const Distributed = "distributed"

// Writers of what is on a node.
const (
	WriterOurs    = "fairlead"
	WriterKubeOVN = "Kube-OVN"
	WriterOthers  = "another program"
)

// OutwardSet is a set of the packet filter.
type OutwardSet struct {
	Name    string         `json:"name"`
	Does    string         `json:"does,omitempty"`
	Writer  string         `json:"writer"`
	Members []netip.Prefix `json:"members"`
	Subnets []string       `json:"subnets,omitempty"` // whose networks are among its members
	Missing bool           `json:"missing,omitempty"`
}

// OutwardChain is a chain of rules.
type OutwardChain struct {
	Family  string        `json:"family"` // IPv4 or IPv6
	Table   string        `json:"table"`
	Name    string        `json:"name"`
	Parent  string        `json:"parent,omitempty"` // the kernel's chain that leads to it
	Writer  string        `json:"writer"`
	Missing bool          `json:"missing,omitempty"`
	Rules   []OutwardRule `json:"rules"`
}

// OutwardRule is a rule, in the words of the program that keeps it.
type OutwardRule struct {
	Text string `json:"text"`
	Does string `json:"does,omitempty"`
}

// OutwardWay is a policy rule, which leads to a table of routes, or a route of such a table.
type OutwardWay struct {
	Subnet   string       `json:"subnet,omitempty"`
	From     netip.Prefix `json:"from"`
	Priority int          `json:"priority"`
	Table    int          `json:"table"`
	Via      netip.Addr   `json:"via,omitzero"`     // the gateway
	Device   string       `json:"device,omitempty"` // that leads there
	Writer   string       `json:"writer"`
	Missing  bool         `json:"missing,omitempty"` // the rule, or the route to the gateway
	Taken    string       `json:"taken,omitempty"`   // whose route keeps ours from its place
}

// OutwardNetwork is a provider network.
type OutwardNetwork struct {
	Name   string `json:"name"`
	Bridge string `json:"bridge,omitempty"`
	NIC    string `json:"nic,omitempty"`  // as it is called in the object
	Port   string `json:"port,omitempty"` // the NIC's name on the bridge, where both have changed theirs
	// Phase is taking, taken or returning; "" where the network has no NIC here.
	Phase string `json:"phase,omitempty"`
	// Moved is what the bridge's own device has of the NIC's.
	Moved  []string `json:"moved,omitempty"`
	Gone   bool     `json:"gone,omitempty"`   // the node has no such NIC any more
	Reason string   `json:"reason,omitempty"` // why it is not served, or not wholly
}

// Parts of an OutwardFault.
const (
	PartRules    = "rules"
	PartNetworks = "networks"
	PartSysctls  = "sysctls"
	PartWays     = "ways"
)

// OutwardFault is something that keeps pods' packets from their way, or may.
type OutwardFault struct {
	Part string `json:"part"`
	What string `json:"what"`
	Next string `json:"next"` // what to do
	// Fatal: packets do not go their way; else they may not.
	Fatal bool `json:"fatal,omitempty"`
}
