package v1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultVpc is the Vpc of Subnets that name none.
const DefaultVpc = "ovn-cluster"

// Values of StaticRoute.Policy.
const (
	PolicySrc = "policySrc"
	PolicyDst = "policyDst"
)

// Values of PolicyRoute.Action.
const (
	RouteAllow   = "allow"
	RouteDrop    = "drop"
	RouteReroute = "reroute"
)

// Vpc is a network of its own with a router: Subnets of two Vpcs do not reach
// each other and may have the same addresses. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=vpc,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="EnableExternal",type=boolean,JSONPath=".status.enableExternal"
// +kubebuilder:printcolumn:name="EnableBfd",type=boolean,JSONPath=".status.enableBfd"
// +kubebuilder:printcolumn:name="Standby",type=boolean,JSONPath=".status.standby"
// +kubebuilder:printcolumn:name="Subnets",type=string,JSONPath=".status.subnets"
// +kubebuilder:printcolumn:name="ExtraExternalSubnets",type=string,JSONPath=".status.extraExternalSubnets",priority=1
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=".spec.namespaces"
// +kubebuilder:printcolumn:name="DefaultSubnet",type=string,JSONPath=".status.defaultLogicalSwitch"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Vpc struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec VpcSpec `json:"spec"`
	// +optional
	Status VpcStatus `json:"status,omitzero"`
}

// VpcSpec is what a user writes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VpcSpec struct {
	DefaultSubnet string   `json:"defaultSubnet,omitempty"` // for pods without a choice
	Namespaces    []string `json:"namespaces,omitempty"`    // their pods come here
	// +kubebuilder:validation:MaxItems=1000
	StaticRoutes []StaticRoute `json:"staticRoutes,omitempty"`
	// +kubebuilder:validation:MaxItems=1000
	PolicyRoutes []PolicyRoute `json:"policyRoutes,omitempty"`
	// +kubebuilder:validation:MaxItems=1000
	VpcPeerings []VpcPeering `json:"vpcPeerings,omitempty"`

	EnableExternal       bool     `json:"enableExternal,omitempty"`
	ExtraExternalSubnets []string `json:"extraExternalSubnets,omitempty"`
	EnableBfd            bool     `json:"enableBfd,omitempty"`
	BFDPort              *BFDPort `json:"bfdPort,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	DynamicRouting json.RawMessage `json:"dynamicRouting,omitempty"`

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// +kubebuilder:validation:XValidation:rule="isIP(self.cidr) || isCIDR(self.cidr)",messageExpression="'cidr ' + self.cidr + ' is neither an address nor a network in CIDR form'",fieldPath=".cidr"
// +kubebuilder:validation:XValidation:rule="isIP(self.nextHopIP)",messageExpression="'nextHopIP ' + self.nextHopIP + ' is not an IP address'",fieldPath=".nextHopIP"
// +kubebuilder:validation:XValidation:rule="!isIP(self.nextHopIP) || !(isIP(self.cidr) || isCIDR(self.cidr)) || self.cidr.contains(':') == self.nextHopIP.contains(':')",messageExpression="'nextHopIP ' + self.nextHopIP + ' is of another family than cidr ' + self.cidr",fieldPath=".nextHopIP"

// StaticRoute is one route of a Vpc's router.
//
// +kubebuilder:pruning:PreserveUnknownFields
type StaticRoute struct {
	// +kubebuilder:validation:Enum="";policySrc;policyDst
	Policy string `json:"policy,omitempty"` // what cidr is compared with; "" is policyDst
	// +kubebuilder:validation:MaxLength=64
	CIDR string `json:"cidr"` // or one address
	// +kubebuilder:validation:MaxLength=64
	NextHopIP  string `json:"nextHopIP"`
	ECMPMode   string `json:"ecmpMode,omitempty"`
	BfdID      string `json:"bfdId,omitempty"`
	RouteTable string `json:"routeTable,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.nextHopIP) || self.nextHopIP == '' || self.nextHopIP.split(',').all(a, isIP(a.trim()))",messageExpression="'nextHopIP ' + self.nextHopIP + ' is not an IP address, or a comma-separated list of them'",fieldPath=".nextHopIP"
// +kubebuilder:validation:XValidation:rule="!has(self.action) || self.action != 'reroute' || (has(self.nextHopIP) && self.nextHopIP != '')",message="action reroute needs nextHopIP",fieldPath=".nextHopIP"

// PolicyRoute is one routing policy of a Vpc's router, in OVN's match language.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PolicyRoute struct {
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=32767
	Priority int    `json:"priority,omitempty"` // the highest that matches counts
	Match    string `json:"match,omitempty"`
	// +kubebuilder:validation:Enum="";allow;drop;reroute
	Action string `json:"action,omitempty"`
	// +kubebuilder:validation:MaxLength=512
	NextHopIP string `json:"nextHopIP,omitempty"` // for reroute; several by commas
}

// +kubebuilder:validation:XValidation:rule="self.localConnectIP.split(',').all(c, isCIDR(c.trim()))",messageExpression="'localConnectIP ' + self.localConnectIP + ' is not an address with a prefix length (169.254.0.1/30), or a comma-separated pair of them'",fieldPath=".localConnectIP"

// VpcPeering connects two routers by a network of their own.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VpcPeering struct {
	// +kubebuilder:validation:MinLength=1
	RemoteVpc string `json:"remoteVpc"`
	// +kubebuilder:validation:MaxLength=128
	LocalConnectIP string `json:"localConnectIP"` // this side's address, "169.254.0.1/30"
}

// +kubebuilder:validation:XValidation:rule="!has(self.ip) || self.ip == '' || self.ip.split(',').all(a, isIP(a.trim()))",messageExpression="'ip ' + self.ip + ' is not an IP address, or a comma-separated pair of them'",fieldPath=".ip"
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || !self.enabled || (has(self.ip) && self.ip != '')",message="an enabled BFD port needs ip",fieldPath=".ip"

// BFDPort is the router port that answers BFD for gateways.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BFDPort struct {
	Enabled bool `json:"enabled,omitempty"`
	// +kubebuilder:validation:MaxLength=128
	IP           string                `json:"ip,omitempty"`
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// VpcStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VpcStatus struct {
	Conditions              []Condition `json:"conditions,omitempty"`
	Standby                 bool        `json:"standby,omitempty"` // the router is ready
	Default                 bool        `json:"default,omitempty"`
	DefaultLogicalSwitch    string      `json:"defaultLogicalSwitch,omitempty"`
	Router                  string      `json:"router,omitempty"`
	TCPLoadBalancer         string      `json:"tcpLoadBalancer,omitempty"`
	UDPLoadBalancer         string      `json:"udpLoadBalancer,omitempty"`
	SctpLoadBalancer        string      `json:"sctpLoadBalancer,omitempty"`
	TCPSessionLoadBalancer  string      `json:"tcpSessionLoadBalancer,omitempty"`
	UDPSessionLoadBalancer  string      `json:"udpSessionLoadBalancer,omitempty"`
	SctpSessionLoadBalancer string      `json:"sctpSessionLoadBalancer,omitempty"`
	Subnets                 []string    `json:"subnets,omitempty"`
	VpcPeerings             []string    `json:"vpcPeerings,omitempty"`
	EnableExternal          bool        `json:"enableExternal,omitempty"`
	ExtraExternalSubnets    []string    `json:"extraExternalSubnets,omitempty"`
	EnableBfd               bool        `json:"enableBfd,omitempty"`
	// +optional
	BFDPort BFDPortStatus `json:"bfdPort,omitzero"`
}

// BFDPortStatus is where a BFDPort is.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BFDPortStatus struct {
	Name  string   `json:"name,omitempty"`
	IP    string   `json:"ip,omitempty"`
	Nodes []string `json:"nodes,omitempty"`
}

// VpcList is a list of Vpcs.
//
// +kubebuilder:object:root=true
type VpcList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Vpc `json:"items"`
}
