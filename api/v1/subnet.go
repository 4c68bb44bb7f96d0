package v1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of SubnetSpec.Protocol.
const (
	ProtocolIPv4 = "IPv4"
	ProtocolIPv6 = "IPv6"
	ProtocolDual = "Dual"
)

// DefaultProvider is the provider of the pods' default network.
const DefaultProvider = "ovn"

// DefaultSubnet is the Subnet that serves where no other is the default.
const DefaultSubnet = "ovn-default"

// Subnet is a pool of addresses with a gateway. It is cluster-scoped.
//
// +kubebuilder:resource:scope=Cluster,shortName=subnet
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".spec.provider"
// +kubebuilder:printcolumn:name="Vpc",type=string,JSONPath=".spec.vpc"
// +kubebuilder:printcolumn:name="Vlan",type=string,JSONPath=".spec.vlan"
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=".spec.protocol"
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=".spec.cidrBlock"
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=".spec.gateway",priority=1
// +kubebuilder:printcolumn:name="Private",type=boolean,JSONPath=".spec.private"
// +kubebuilder:printcolumn:name="NAT",type=boolean,JSONPath=".spec.natOutgoing"
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=".spec.default"
// +kubebuilder:printcolumn:name="GatewayType",type=string,JSONPath=".spec.gatewayType"
// +kubebuilder:printcolumn:name="V4Used",type=string,JSONPath=".status.v4usingIPs"
// +kubebuilder:printcolumn:name="V4Available",type=string,JSONPath=".status.v4availableIPs"
// +kubebuilder:printcolumn:name="V6Used",type=string,JSONPath=".status.v6usingIPs"
// +kubebuilder:printcolumn:name="V6Available",type=string,JSONPath=".status.v6availableIPs"
// +kubebuilder:printcolumn:name="ExcludeIPs",type=string,JSONPath=".spec.excludeIps",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Subnet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec SubnetSpec `json:"spec"`
	// +optional
	Status SubnetStatus `json:"status,omitzero"`
}

// SubnetSpec is what a user writes. Dual-stack values are comma-separated
// pairs ("10.16.0.0/16,fd00:10:16::/112").
//
// +kubebuilder:pruning:PreserveUnknownFields
type SubnetSpec struct {
	Default    bool     `json:"default,omitempty"` // pods without a choice come here
	Vpc        string   `json:"vpc,omitempty"`
	Protocol   string   `json:"protocol,omitempty"`   // IPv4, IPv6 or Dual; "" follows from cidrBlock
	Namespaces []string `json:"namespaces,omitempty"` // their pods come here
	CIDRBlock  string   `json:"cidrBlock,omitempty"`
	Gateway    string   `json:"gateway,omitempty"`    // "" is the first address of cidrBlock
	ExcludeIps []string `json:"excludeIps,omitempty"` // "address" or "from..to", never given unasked
	// Provider ties the Subnet to the NADs that name it; "" is "ovn", the
	// default network.
	Provider string `json:"provider,omitempty"`
	Vlan     string `json:"vlan,omitempty"` // name of a Vlan object
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Mtu int `json:"mtu,omitempty"` // bytes, 0 is the node's

	GatewayType          string                 `json:"gatewayType,omitempty"` // distributed or centralized
	GatewayNode          string                 `json:"gatewayNode,omitempty"`
	GatewayNodeSelectors []metav1.LabelSelector `json:"gatewayNodeSelectors,omitempty"`
	NatOutgoing          bool                   `json:"natOutgoing,omitempty"`
	NatOutgoingPolicy    []NatPolicyRule        `json:"natOutgoingPolicyRules,omitempty"`
	LogicalGateway       bool                   `json:"logicalGateway,omitempty"`
	DisableGatewayCheck  bool                   `json:"disableGatewayCheck,omitempty"`

	ExternalEgressGateway string `json:"externalEgressGateway,omitempty"`
	PolicyRoutingPriority uint32 `json:"policyRoutingPriority,omitempty"`
	PolicyRoutingTableID  uint32 `json:"policyRoutingTableID,omitempty"`

	Private        bool     `json:"private,omitempty"`      // only allowSubnets may enter
	AllowSubnets   []string `json:"allowSubnets,omitempty"` // CIDRs
	Acls           []ACL    `json:"acls,omitempty"`
	AllowEWTraffic bool     `json:"allowEWTraffic,omitempty"`

	Vips                   []string `json:"vips,omitempty"`
	DisableInterConnection bool     `json:"disableInterConnection,omitempty"`
	EnableDHCP             bool     `json:"enableDHCP,omitempty"`
	DHCPv4Options          string   `json:"dhcpV4Options,omitempty"`
	DHCPv6Options          string   `json:"dhcpV6Options,omitempty"`
	EnableIPv6RA           bool     `json:"enableIPv6RA,omitempty"`
	IPv6RAConfigs          string   `json:"ipv6RAConfigs,omitempty"`
	U2OInterconnection     bool     `json:"u2oInterconnection,omitempty"`
	U2OInterconnectionIP   string   `json:"u2oInterconnectionIP,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	U2OFeatures             json.RawMessage        `json:"u2oFeatures,omitempty"`
	EnableLb                *bool                  `json:"enableLb,omitempty"`
	EnableEcmp              bool                   `json:"enableEcmp,omitempty"`
	EnableMulticastSnoop    bool                   `json:"enableMulticastSnoop,omitempty"`
	EnableExternalLBAddress bool                   `json:"enableExternalLBAddress,omitempty"`
	RouteTable              string                 `json:"routeTable,omitempty"`
	NamespaceSelectors      []metav1.LabelSelector `json:"namespaceSelectors,omitempty"`
	NodeNetwork             string                 `json:"nodeNetwork,omitempty"`
}

// ACL is one access rule of a Subnet, in OVN's match language.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ACL struct {
	Direction string `json:"direction,omitempty"` // from-lport or to-lport
	Priority  int    `json:"priority,omitempty"`
	Match     string `json:"match,omitempty"`
	Action    string `json:"action,omitempty"`
}

// NatPolicyRule says which outgoing traffic is translated.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NatPolicyRule struct {
	// +optional
	Match  NatPolicyMatch `json:"match"`
	Action string         `json:"action"` // nat or forward
}

// NatPolicyMatch selects traffic by comma-separated address lists.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NatPolicyMatch struct {
	SrcIPs string `json:"srcIPs,omitempty"`
	DstIPs string `json:"dstIPs,omitempty"`
}

// SubnetStatus is what was observed. Counts are numbers or, where they exceed
// what JSON numbers hold, decimal strings.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SubnetStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V4AvailableIPs     json.RawMessage `json:"v4availableIPs,omitempty"`
	V4AvailableIPRange string          `json:"v4availableIPrange,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V4UsingIPs     json.RawMessage `json:"v4usingIPs,omitempty"`
	V4UsingIPRange string          `json:"v4usingIPrange,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V6AvailableIPs     json.RawMessage `json:"v6availableIPs,omitempty"`
	V6AvailableIPRange string          `json:"v6availableIPrange,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V6UsingIPs            json.RawMessage `json:"v6usingIPs,omitempty"`
	V6UsingIPRange        string          `json:"v6usingIPrange,omitempty"`
	ActivateGateway       string          `json:"activateGateway,omitempty"`
	DHCPv4OptionsUUID     string          `json:"dhcpV4OptionsUUID,omitempty"`
	DHCPv6OptionsUUID     string          `json:"dhcpV6OptionsUUID,omitempty"`
	U2OInterconnectionIP  string          `json:"u2oInterconnectionIP,omitempty"`
	U2OInterconnectionMAC string          `json:"u2oInterconnectionMAC,omitempty"`
	U2OInterconnectionVPC string          `json:"u2oInterconnectionVPC,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	NatOutgoingPolicyRules json.RawMessage `json:"natOutgoingPolicyRules,omitempty"`
	McastQuerierIP         string          `json:"mcastQuerierIP,omitempty"`
	McastQuerierMAC        string          `json:"mcastQuerierMAC,omitempty"`
}
