package agent

import (
	"net/netip"
	"time"
)

// SubnetDetail is all that the Kubernetes API tells of a Subnet.
type SubnetDetail struct {
	Subnet
	Vpc        string   `json:"vpc"`
	Namespaces []string `json:"namespaces,omitempty"` // whose pods come here
	Pools      []string `json:"pools,omitempty"`      // its IPPools
	// Who reaches it.
	Private      bool     `json:"private"`
	AllowSubnets []string `json:"allowSubnets,omitempty"`
	ACLs         []string `json:"acls,omitempty"` // as the object has them, the highest priority first
	// The way out.
	GatewayType string   `json:"gatewayType,omitempty"`
	GatewayNode string   `json:"gatewayNode,omitempty"`
	NATRules    []string `json:"natOutgoingPolicyRules,omitempty"`
	// ActivateGateway is the gateway node of a centralized Subnet; "" with enableEcmp.
	ActivateGateway       string `json:"activateGateway,omitempty"`
	ExternalEgressGateway string `json:"externalEgressGateway,omitempty"`
	// Physical: under OVN its pods leave by a machine of its VLAN, and by no node.
	Physical bool `json:"physicalGateway,omitempty"`
	// States counts the addresses that somebody has by IPHeld, IPKept, IPReserved and
	// IPLeft.
	States     map[string]int `json:"states"`
	Conditions []PodCondition `json:"conditions,omitempty"`
}

// NodeDetail is all that the Kubernetes API tells of a node's network.
type NodeDetail struct {
	Name       string       `json:"name"`
	Addresses  []netip.Addr `json:"addresses"`            // InternalIPs
	Join       []netip.Addr `json:"join,omitempty"`       // of the Subnet join, on ovn0
	MAC        string       `json:"mac,omitempty"`        // of ovn0
	Chassis    string       `json:"chassis,omitempty"`    // as the Node's annotation says it
	Tunnel     string       `json:"tunnel,omitempty"`     // type of the tunnels, and where they end, as the southbound database says it
	Configured int          `json:"configured,omitempty"` // the last change that the chassis has carried out (nb_cfg)
	// Certificate is the last one that the chassis asked for; nil: none is known.
	Certificate *Certificate   `json:"certificate,omitempty"`
	Conditions  []PodCondition `json:"conditions,omitempty"`
	Pods        []NodePod      `json:"pods"`
	// Outward is what the node's agent tells, where it is this node's.
	Outward *Outward `json:"outward,omitempty"`
}

// Certificate is a request for one, and what it got.
type Certificate struct {
	Request string    `json:"request"` // name of the CertificateSigningRequest
	State   string    `json:"state"`   // issued, approved, denied, pending
	Reason  string    `json:"reason,omitempty"`
	End     time.Time `json:"end,omitzero"`
}

// NodePod is a pod of a node.
type NodePod struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	State     string       `json:"state"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// LostList is what nobody has in a cluster, and what has nothing that tells of it.
type LostList struct {
	Items []Lost `json:"items"`
	// Unseen is what could not be looked at, and why.
	Unseen []string `json:"unseen,omitempty"`
}

// Kinds of Lost.
const (
	LostObject = "ip-object" // of a pod or node that is gone, kept by nothing
	LostLease  = "lease"     // an AddressLease of a pod that is gone, kept by nothing
	LostPod    = "pod"       // it was told addresses, and no IP object has them
	LostRow    = "row"       // of OVN's northbound database, a port of a pod that is gone
)

// Lost is one finding.
type Lost struct {
	Kind      string       `json:"kind"`
	Name      string       `json:"name"` // of the object, pod or row
	Subnet    string       `json:"subnet,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Reason    string       `json:"reason"`
	Next      string       `json:"next,omitempty"` // what to do
	// Removed: it was nobody's, as was seen at the moment of its removal.
	Removed bool `json:"removed,omitempty"`
	// Stays is why it was not removed although it was asked for.
	Stays string `json:"stays,omitempty"`
}
