package core

import "net/netip"

// Subnet is a pool of addresses and how its pods reach the world.
type Subnet struct {
	Name     string         `json:"name"`
	UID      string         `json:"uid,omitempty"`      // of the cluster's object
	Provider string         `json:"provider,omitempty"` // "ovn" or "<nad>.<ns>[.ovn]"
	CIDRs    []netip.Prefix `json:"cidrs"`              // one per family
	Gateways []netip.Addr   `json:"gateways"`           // one per CIDR, same order
	Exclude  []AddrRange    `json:"exclude,omitempty"`
	VLAN     int            `json:"vlan,omitempty"` // 802.1Q id, 0 = untagged
	// Underlay is the provider network on whose VLAN its pods are; "" for none.
	Underlay string `json:"underlay,omitempty"`
	// LogicalGateway: of an underlay Subnet OVN's router is the gateway, no physical one.
	LogicalGateway bool `json:"logicalGateway,omitempty"`
	// Interconnected: of an underlay Subnet with a physical gateway OVN's router has an
	// address too, by which its pods and those of other Subnets reach each other.
	Interconnected bool `json:"interconnected,omitempty"`
	// Unchecked: a physical gateway need not answer before a pod is served.
	Unchecked   bool      `json:"unchecked,omitempty"`
	MTU         int       `json:"mtu,omitempty"` // bytes, 0 = the node's
	NATOutgoing bool      `json:"natOutgoing,omitempty"`
	NATRules    []NATRule `json:"natRules,omitempty"` // which of it keeps its address; the first that matches counts
	Egress      *Egress   `json:"egress,omitempty"`   // nil: its pods leave the cluster as their node does
	// Centralized: its pods leave the cluster by gateway nodes, whatever node they are on,
	// which does not know of them with OVN; people are told.
	Centralized bool `json:"centralized,omitempty"`
	// Exits are those of the gateway nodes by which its pods leave under an address of
	// their own, in order.
	Exits      []Exit   `json:"exits,omitempty"`
	Open       bool     `json:"open,omitempty"` // its NICs are without port security
	Default    bool     `json:"default,omitempty"`
	Namespaces []string `json:"namespaces,omitempty"` // whose pods come here unasked
	// Vpc is the router behind which it is; "" is the default one, as is its name.
	Vpc string `json:"vpc,omitempty"`
	// NodeBlock: each node of a cluster gives the addresses of its own
	// node.spec.podCIDRs, and no others.
	NodeBlock bool `json:"nodeBlock,omitempty"`
	// Implied marks a subnet that no object declares: it follows from the
	// annotations a controller left on a pod. It has no gateway of ours.
	Implied bool `json:"implied,omitempty"`
	// Builtin marks the one that no object declares and that serves where no other
	// is the default.
	Builtin bool `json:"builtin,omitempty"`
}

// Exit is a node by which pods of a centralized Subnet leave the cluster, and as whom they
// are to be seen then, one address for each family at most.
type Exit struct {
	Node string       `json:"node"`
	IPs  []netip.Addr `json:"ips,omitempty"`
}

// OnRouter tells that OVN's router has a port in the Subnet, where there is OVN.
func (s Subnet) OnRouter() bool { return s.ByNodes() || s.Interconnected }

// ByNodes tells that nodes have a way of OVN's to the Subnet's pods, and they by nodes.
func (s Subnet) ByNodes() bool { return s.Underlay == "" || s.LogicalGateway }

// Join is what a node has in OVN's network of nodes: the port by which it and the
// pods of all nodes reach each other.
type Join struct {
	MAC      MAC
	Addrs    []netip.Prefix    // with their networks' lengths, one for each family
	Gateways []netip.Addr      // of the same families, in the same order
	Nodes    []netip.Addr      // of the other nodes, in their own network; sorted
	Own      []netip.Addr      // of this node there, as its Node says; sorted
	QoS      QoS               // rates of its port: ingress is towards the pods, egress from them
	Labels   map[string]string // of the node
}
