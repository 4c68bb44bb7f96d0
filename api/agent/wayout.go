package agent

import "net/netip"

// WayOut is how the packets of a pod leave its node.
type WayOut struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Node      string    `json:"node,omitempty"`
	Items     []Leaving `json:"items"`
	// Faults are what keeps packets on this node from their way, or may.
	Faults []OutwardFault `json:"faults,omitempty"`
	// Unknown is what could not be told, and who would know.
	Unknown []string `json:"unknown,omitempty"`
}

// Leaving is the way out of one of a pod's addresses, for what goes to no pod.
type Leaving struct {
	Interface   string     `json:"interface"`
	Address     netip.Addr `json:"address"`
	Subnet      string     `json:"subnet,omitempty"`
	GatewayType string     `json:"gatewayType,omitempty"` // distributed, centralized; "" where no node has a part in it
	// By are the nodes that it leaves by: several share the connections.
	By []string `json:"by,omitempty"`
	// SeenAs are the addresses under which the world sees the pod, one for each node of By;
	// empty where that is not known.
	SeenAs []netip.Addr `json:"seenAs,omitempty"`
	// Steps are the packet's way, a sentence each.
	Steps []string `json:"steps"`
}
