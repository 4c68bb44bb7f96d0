package v1

import (
	"encoding/json"
	"strings"

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

// Routed tells that OVN carries the networks of a provider, where there is OVN,
// and that the controller gives their addresses: "ovn", "" (which means it), or
// one that ends in ".ovn".
func Routed(provider string) bool {
	return provider == "" || provider == DefaultProvider || strings.HasSuffix(provider, "."+DefaultProvider)
}

// DefaultSubnet is the Subnet that serves where no other is the default.
const DefaultSubnet = "ovn-default"

// +kubebuilder:validation:XValidation:rule="(has(self.spec.provider) && self.spec.provider != '' ? self.spec.provider : 'ovn') == (has(oldSelf.spec.provider) && oldSelf.spec.provider != '' ? oldSelf.spec.provider : 'ovn') || !has(oldSelf.status) || ((!has(oldSelf.status.v4usingIPrange) || oldSelf.status.v4usingIPrange == '') && (!has(oldSelf.status.v6usingIPrange) || oldSelf.status.v6usingIPrange == ''))",messageExpression="'provider ' + (has(oldSelf.spec.provider) && oldSelf.spec.provider != '' ? oldSelf.spec.provider : 'ovn') + ' cannot become ' + (has(self.spec.provider) && self.spec.provider != '' ? self.spec.provider : 'ovn') + ' while addresses of it are in use'",fieldPath=".spec.provider"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.cidrBlock) ? self.spec.cidrBlock : '') == (has(oldSelf.spec.cidrBlock) ? oldSelf.spec.cidrBlock : '') || !has(oldSelf.status) || ((!has(oldSelf.status.v4usingIPrange) || oldSelf.status.v4usingIPrange == '') && (!has(oldSelf.status.v6usingIPrange) || oldSelf.status.v6usingIPrange == ''))",messageExpression="'cidrBlock ' + (has(oldSelf.spec.cidrBlock) ? oldSelf.spec.cidrBlock : 'none') + ' cannot become ' + (has(self.spec.cidrBlock) ? self.spec.cidrBlock : 'none') + ' while addresses of it are in use'",fieldPath=".spec.cidrBlock"

// Subnet is a pool of addresses with a gateway. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=subnet,categories=fairlead
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
// +kubebuilder:printcolumn:name="U2OInterconnectionIP",type=string,JSONPath=".status.u2oInterconnectionIP",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Subnet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec SubnetSpec `json:"spec"`
	// +optional
	Status SubnetStatus `json:"status,omitzero"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.cidrBlock) || self.cidrBlock == '' || self.cidrBlock.split(',').all(c, isCIDR(c.trim()) && cidr(c.trim()) == cidr(c.trim()).masked())",messageExpression="'cidrBlock ' + self.cidrBlock + ' is not a network in CIDR form, or a comma-separated pair of them, without bits behind the prefix length'",fieldPath=".cidrBlock"
// +kubebuilder:validation:XValidation:rule="!has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || self.cidrBlock.split(',').all(c, cidr(c.trim()).prefixLength() > 0 && cidr(c.trim()).prefixLength() < (c.contains(':') ? 128 : 32) && !cidr(c.trim()).ip().isLoopback() && !c.trim().lowerAscii().matches('^(22[4-9][.]|23[0-9][.]|ff[0-9a-f]{2}:)'))",messageExpression="'cidrBlock ' + self.cidrBlock + ' is no range for pods: it is everything, loopback, multicast or a single address'",fieldPath=".cidrBlock"
// +kubebuilder:validation:XValidation:rule="!has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || size(self.cidrBlock.split(',')) == 1 || (size(self.cidrBlock.split(',')) == 2 && self.cidrBlock.split(',')[0].contains(':') != self.cidrBlock.split(',')[1].contains(':'))",messageExpression="'cidrBlock ' + self.cidrBlock + ' is neither one network nor one of each family'",fieldPath=".cidrBlock"
// +kubebuilder:validation:XValidation:rule="!has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || !has(self.protocol) || self.protocol == '' || self.protocol == (size(self.cidrBlock.split(',')) > 1 ? 'Dual' : (self.cidrBlock.contains(':') ? 'IPv6' : 'IPv4'))",messageExpression="'protocol ' + self.protocol + ' is not that of cidrBlock ' + self.cidrBlock",fieldPath=".protocol"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.gateway == '' || self.gateway.split(',').all(g, isIP(g.trim()))",messageExpression="'gateway ' + self.gateway + ' is not an IP address, or a comma-separated pair of them'",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.gateway == '' || !self.gateway.split(',').all(g, isIP(g.trim())) || !has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || (size(self.gateway.split(',')) == size(self.cidrBlock.split(',')) && self.cidrBlock.split(',').all(c, self.gateway.split(',').exists(g, cidr(c.trim()).containsIP(g.trim()))))",messageExpression="'gateway ' + self.gateway + ' lies outside of cidrBlock ' + self.cidrBlock + ': each network needs one inside'",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || self.gateway == '' || !self.gateway.split(',').all(g, isIP(g.trim())) || !has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || self.cidrBlock.split(',').all(c, cidr(c.trim()).prefixLength() >= (c.contains(':') ? 127 : 31) || !self.gateway.split(',').exists(g, ip(g.trim()) == cidr(c.trim()).ip()))",messageExpression="'gateway ' + self.gateway + ' is the address of the network itself: cidrBlock ' + self.cidrBlock",fieldPath=".gateway"
// +kubebuilder:validation:XValidation:rule="!has(self.excludeIps) || !has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || self.excludeIps.all(e, (!isIP(e.split('..')[0].trim()) || !isIP(e.split('..')[size(e.split('..')) - 1].trim()) || (cidr(self.cidrBlock.split(',')[0].trim()).containsIP(e.split('..')[0].trim()) && cidr(self.cidrBlock.split(',')[0].trim()).containsIP(e.split('..')[size(e.split('..')) - 1].trim())) || (cidr(self.cidrBlock.split(',')[size(self.cidrBlock.split(',')) - 1].trim()).containsIP(e.split('..')[0].trim()) && cidr(self.cidrBlock.split(',')[size(self.cidrBlock.split(',')) - 1].trim()).containsIP(e.split('..')[size(e.split('..')) - 1].trim()))))",messageExpression="'excludeIps ' + self.excludeIps.filter(e, !(!isIP(e.split('..')[0].trim()) || !isIP(e.split('..')[size(e.split('..')) - 1].trim()) || (cidr(self.cidrBlock.split(',')[0].trim()).containsIP(e.split('..')[0].trim()) && cidr(self.cidrBlock.split(',')[0].trim()).containsIP(e.split('..')[size(e.split('..')) - 1].trim())) || (cidr(self.cidrBlock.split(',')[size(self.cidrBlock.split(',')) - 1].trim()).containsIP(e.split('..')[0].trim()) && cidr(self.cidrBlock.split(',')[size(self.cidrBlock.split(',')) - 1].trim()).containsIP(e.split('..')[size(e.split('..')) - 1].trim()))))[0] + ' lies outside of cidrBlock ' + self.cidrBlock",fieldPath=".excludeIps"
// +kubebuilder:validation:XValidation:rule="!has(self.provider) || self.provider == '' || self.provider.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",messageExpression="'provider ' + self.provider + ' is neither ovn nor the name of a network: NAD.NAMESPACE.ovn, or NAD.NAMESPACE'",fieldPath=".provider"
// +kubebuilder:validation:XValidation:rule="!has(self.default) || !self.default || !has(self.provider) || self.provider in ['', 'ovn']",messageExpression="'default is only for Subnets of provider ovn, not of ' + self.provider",fieldPath=".default"
// +kubebuilder:validation:XValidation:rule="!has(self.mtu) || self.mtu == 0 || self.mtu >= (has(self.cidrBlock) && self.cidrBlock.contains(':') ? 1280 : 576)",message="mtu is below the least that the family must carry: 576, with IPv6 1280",fieldPath=".mtu"
// +kubebuilder:validation:XValidation:rule="!has(self.u2oInterconnectionIP) || self.u2oInterconnectionIP == '' || !has(self.cidrBlock) || self.cidrBlock == '' || !self.cidrBlock.split(',').all(c, isCIDR(c.trim())) || self.u2oInterconnectionIP.split(',').all(a, isIP(a.trim()) && self.cidrBlock.split(',').exists(c, cidr(c.trim()).containsIP(a.trim())))",messageExpression="'u2oInterconnectionIP ' + self.u2oInterconnectionIP + ' is not an address of cidrBlock ' + self.cidrBlock",fieldPath=".u2oInterconnectionIP"
// +kubebuilder:validation:XValidation:rule="!has(self.policyRoutingTableID) || !(self.policyRoutingTableID in [252, 253, 254, 255])",message="policyRoutingTableID 252 to 255 are tables of the kernel itself",fieldPath=".policyRoutingTableID"

// SubnetSpec is what a user writes. Dual-stack values are comma-separated
// pairs ("10.16.0.0/16,fd00:10:16::/112"). What cidrBlock is wrong about is told
// once: the other rules leave it alone then.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SubnetSpec struct {
	Default bool   `json:"default,omitempty"` // pods without a choice come here
	Vpc     string `json:"vpc,omitempty"`
	// +kubebuilder:validation:MaxLength=16
	Protocol   string   `json:"protocol,omitempty"`   // IPv4, IPv6 or Dual; "" follows from cidrBlock
	Namespaces []string `json:"namespaces,omitempty"` // their pods come here
	// +kubebuilder:validation:MaxLength=128
	CIDRBlock string `json:"cidrBlock,omitempty"`
	// +kubebuilder:validation:MaxLength=128
	Gateway string `json:"gateway,omitempty"` // "" is the first address of cidrBlock
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:XValidation:rule="size(self.split('..')) <= 2 && isIP(self.split('..')[0].trim()) && isIP(self.split('..')[size(self.split('..')) - 1].trim())",messageExpression="'excludeIps: ' + self + ' is neither an address nor a range from..to'"
	ExcludeIps []string `json:"excludeIps,omitempty"` // "address" or "from..to", never given unasked
	// Provider ties the Subnet to the NADs that name it; "" is "ovn", the
	// default network.
	//
	// +kubebuilder:validation:MaxLength=253
	Provider string `json:"provider,omitempty"`
	Vlan     string `json:"vlan,omitempty"` // name of a Vlan object
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Mtu int `json:"mtu,omitempty"` // bytes, 0 is the node's

	// +kubebuilder:validation:Enum="";distributed;centralized
	GatewayType          string                 `json:"gatewayType,omitempty"`
	GatewayNode          string                 `json:"gatewayNode,omitempty"`
	GatewayNodeSelectors []metav1.LabelSelector `json:"gatewayNodeSelectors,omitempty"`
	NatOutgoing          bool                   `json:"natOutgoing,omitempty"`
	NatOutgoingPolicy    []NatPolicyRule        `json:"natOutgoingPolicyRules,omitempty"`
	LogicalGateway       bool                   `json:"logicalGateway,omitempty"`
	DisableGatewayCheck  bool                   `json:"disableGatewayCheck,omitempty"`

	ExternalEgressGateway string `json:"externalEgressGateway,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32765
	PolicyRoutingPriority uint32 `json:"policyRoutingPriority,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	PolicyRoutingTableID uint32 `json:"policyRoutingTableID,omitempty"`

	Private bool `json:"private,omitempty"` // only allowSubnets may enter
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self.trim())",messageExpression="'allowSubnets: ' + self + ' is not a network in CIDR form'"
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
	// +kubebuilder:validation:MaxLength=128
	U2OInterconnectionIP string `json:"u2oInterconnectionIP,omitempty"`
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

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// GatewayCentralized has a Subnet's pods leave the cluster by the nodes that the
// Subnet names, instead of each by its own.
const GatewayCentralized = "centralized"

// Values of ACL.Direction: FromPort is of what pods send, ToPort of what they get.
const (
	FromPort = "from-lport"
	ToPort   = "to-lport"
)

// ACL is one access rule of a Subnet, in OVN's match language.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ACL struct {
	// +kubebuilder:validation:Enum="";from-lport;to-lport
	Direction string `json:"direction,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32767
	Priority int    `json:"priority,omitempty"`
	Match    string `json:"match,omitempty"`
	// +kubebuilder:validation:Enum="";allow-related;allow-stateless;allow;drop;reject
	Action string `json:"action,omitempty"`
}

// Values of NatPolicyRule.Action.
const (
	NATTranslate = "nat"     // it leaves with the node's address
	NATForward   = "forward" // it keeps its own
)

// NatPolicyRule says which outgoing traffic is translated.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NatPolicyRule struct {
	// +optional
	Match NatPolicyMatch `json:"match"`
	// +kubebuilder:validation:Enum=nat;forward
	Action string `json:"action"`
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
	TunnelKey              int             `json:"tunnelKey,omitempty"`
}

// SubnetList is a list of Subnets.
//
// +kubebuilder:object:root=true
type SubnetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Subnet `json:"items"`
}
