package agent

import "net/netip"

// DefaultNet is the operator's name of our own default network. Runtimes call
// it by the `name` of their configurations (Attachment.Network); a default
// network that a configuration delegates to keeps the delegate's name.
const DefaultNet = "fairlead"

// NetList answers PathNets.
type NetList struct {
	Items []Net `json:"items"`
}

// Net is a network that a pod can name: the default one or a
// NetworkAttachmentDefinition. Its configuration's content is never shown.
type Net struct {
	Name       string   `json:"name"` // "namespace/name", or DefaultNet
	Default    bool     `json:"default,omitempty"`
	CNIVersion string   `json:"cniVersion,omitempty"`
	Plugins    []string `json:"plugins"`          // types, in the order of the chain
	Subnet     string   `json:"subnet,omitempty"` // of our own NIC in the chain
	Source     string   `json:"source"`           // file the object stands in, "API server", or "built-in"
	Interfaces int      `json:"interfaces"`       // attached on this node, or in the cluster
	// Uncounted: who asked the Kubernetes API may not see all pods, so that
	// Interfaces is not known.
	Uncounted bool `json:"uncounted,omitempty"`
	// Problem says why the network cannot be used; "" when it can.
	Problem string `json:"problem,omitempty"`
}

// SubnetList answers PathSubnets.
type SubnetList struct {
	Items []Subnet `json:"items"`
}

// Subnet is a pool of addresses.
type Subnet struct {
	Name        string         `json:"name"`
	Provider    string         `json:"provider,omitempty"` // "ovn" or "<nad>.<namespace>[.ovn]"
	CIDRs       []netip.Prefix `json:"cidrs"`              // one per family
	Gateways    []netip.Addr   `json:"gateways"`           // one per CIDR, same order
	Exclude     []string       `json:"exclude,omitempty"`  // "a" or "a..b"
	VLAN        int            `json:"vlan,omitempty"`     // 802.1Q id, 0 = untagged
	MTU         int            `json:"mtu,omitempty"`      // bytes; absent: the node's
	NATOutgoing bool           `json:"natOutgoing"`
	Default     bool           `json:"default"`
	// Implied: no object declares it, it follows from annotations on a pod.
	Implied bool    `json:"implied,omitempty"`
	Usage   []Usage `json:"usage"` // one per CIDR, same order; none where it is not known
}

// Usage counts the addresses of one family. Used + Free + Excluded = Total;
// network, broadcast and gateway addresses count as excluded. Counts of IPv6
// stop at 2^63-1, which stands for "more".
type Usage struct {
	Family   string `json:"family"` // ipv4, ipv6
	Total    uint64 `json:"total"`
	Used     uint64 `json:"used"`
	Free     uint64 `json:"free"`
	Excluded uint64 `json:"excluded"`
}

// IPList answers PathIPs.
type IPList struct {
	Items []IP `json:"items"`
}

// States of an address.
const (
	IPHeld     = "held"     // a lease in the journal
	IPReleased = "released" // free, kept for the pod name that held it last
	IPGateway  = "gateway"  // the subnet's own
	IPExcluded = "excluded" // by the subnet's excludeIps
	IPFree     = "free"     // in a subnet, never given

	// Of a cluster with a controller.
	IPKept     = "kept"     // a StatefulSet has it again for its next replica of that ordinal
	IPReserved = "reserved" // by an IP object that a user made
	IPLeft     = "left"     // an IP object has it whose pod is gone, and nothing keeps it
	IPNetwork  = "network"  // the network's own, or its broadcast address
)

// IP is one address and who holds it.
type IP struct {
	Address   netip.Addr `json:"address"`
	Subnet    string     `json:"subnet"` // "": of a foreign IPAM, in no Subnet
	State     string     `json:"state"`  // IPHeld in a list; any of the states in Who
	Namespace string     `json:"namespace,omitempty"`
	Pod       string     `json:"pod,omitempty"`
	Node      string     `json:"node,omitempty"`   // from the Kubernetes API only
	Object    string     `json:"object,omitempty"` // the IP object that has it
	Keeper    string     `json:"keeper,omitempty"` // of one that is kept: the StatefulSet's name
	Container string     `json:"container,omitempty"`
	IfName    string     `json:"ifName,omitempty"`
	MAC       string     `json:"mac,omitempty"`
	HostIf    string     `json:"hostInterface,omitempty"`
	OFPort    int        `json:"ofport,omitempty"`
	VLAN      int        `json:"vlan,omitempty"`
}

// AddressMap is what becomes of each address of a Subnet: parts that follow each
// other, without gaps, one list for each of its networks.
type AddressMap struct {
	Subnet Subnet        `json:"subnet"`
	Parts  []AddressPart `json:"parts"`
	// Counted tells that the IP objects could be seen: without them what nobody's pod
	// has may still be reserved.
	Counted bool `json:"counted"`
}

// AddressPart is some addresses of one state: one that somebody has, or a range.
type AddressPart struct {
	From  netip.Addr `json:"from"`
	To    netip.Addr `json:"to"`
	State string     `json:"state"`
	Pool  string     `json:"pool,omitempty"` // the IPPool that has it
	By    *IP        `json:"by,omitempty"`   // who has it
}

// Who answers PathIP: every meaning the address has on this node, one entry
// per subnet that contains it (subnets of separate VLANs may overlap). An
// address outside all subnets has no entries, and is not an error.
type Who struct {
	Address netip.Addr `json:"address"`
	Items   []IP       `json:"items"`
}
