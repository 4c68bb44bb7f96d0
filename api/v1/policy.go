package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Values of SecurityGroupRule.RemoteType.
const (
	RemoteAddress       = "address"
	RemoteSecurityGroup = "securityGroup"
)

// Values of SecurityGroupRule.Policy.
const (
	RuleAllow = "allow"
	RuleDrop  = "drop"
	RulePass  = "pass" // to the rules of the next tier
)

// SecurityGroup is a list of rules for the ports of those pods that name it. It
// is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=security-groups,singular=security-group,shortName=sg,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="PortGroup",type=string,JSONPath=".status.portGroup"
// +kubebuilder:printcolumn:name="AllowSameGroup",type=boolean,JSONPath=".spec.allowSameGroupTraffic"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type SecurityGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec SecurityGroupSpec `json:"spec"`
	// +optional
	Status SecurityGroupStatus `json:"status,omitzero"`
}

// SecurityGroupSpec is what a user writes. What no rule allows is dropped.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SecurityGroupSpec struct {
	// +kubebuilder:validation:MaxItems=500
	IngressRules []SecurityGroupRule `json:"ingressRules,omitempty"` // towards the pod
	// +kubebuilder:validation:MaxItems=500
	EgressRules           []SecurityGroupRule `json:"egressRules,omitempty"`
	AllowSameGroupTraffic bool                `json:"allowSameGroupTraffic,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3
	Tier int `json:"tier,omitempty"` // of OVN's ACLs

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// +kubebuilder:validation:XValidation:rule="self.ipVersion.lowerAscii() in ['ipv4', 'ipv6']",messageExpression="'ipVersion ' + self.ipVersion + ' is neither ipv4 nor ipv6'",fieldPath=".ipVersion"
// +kubebuilder:validation:XValidation:rule="!has(self.remoteAddress) || self.remoteAddress == '' || isIP(self.remoteAddress) || isCIDR(self.remoteAddress)",messageExpression="'remoteAddress ' + self.remoteAddress + ' is neither an address nor a network in CIDR form'",fieldPath=".remoteAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.localAddress) || self.localAddress == '' || isIP(self.localAddress) || isCIDR(self.localAddress)",messageExpression="'localAddress ' + self.localAddress + ' is neither an address nor a network in CIDR form'",fieldPath=".localAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.remoteAddress) || self.remoteAddress == '' || self.remoteAddress.contains(':') == (self.ipVersion.lowerAscii() == 'ipv6')",messageExpression="'remoteAddress ' + self.remoteAddress + ' is not of ipVersion ' + self.ipVersion",fieldPath=".remoteAddress"
// +kubebuilder:validation:XValidation:rule="self.remoteType != 'securityGroup' || (has(self.remoteSecurityGroup) && self.remoteSecurityGroup != '')",message="remoteType securityGroup needs remoteSecurityGroup",fieldPath=".remoteSecurityGroup"
// +kubebuilder:validation:XValidation:rule="self.remoteType != 'address' || (has(self.remoteAddress) && self.remoteAddress != '')",message="remoteType address needs remoteAddress",fieldPath=".remoteAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.portRangeMin) || !has(self.portRangeMax) || self.portRangeMin <= self.portRangeMax",message="portRangeMin is above portRangeMax",fieldPath=".portRangeMin"
// +kubebuilder:validation:XValidation:rule="!has(self.sourcePortRangeMin) || !has(self.sourcePortRangeMax) || self.sourcePortRangeMin <= self.sourcePortRangeMax",message="sourcePortRangeMin is above sourcePortRangeMax",fieldPath=".sourcePortRangeMin"

// SecurityGroupRule is one rule.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SecurityGroupRule struct {
	// +kubebuilder:validation:MaxLength=16
	IPVersion string `json:"ipVersion"` // ipv4 or ipv6
	// +kubebuilder:validation:Enum="";all;icmp;tcp;udp
	Protocol string `json:"protocol,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16384
	Priority int `json:"priority,omitempty"` // the lowest counts first
	// +kubebuilder:validation:Enum=address;cidr;securityGroup
	RemoteType string `json:"remoteType"`
	// +kubebuilder:validation:MaxLength=64
	RemoteAddress       string `json:"remoteAddress,omitempty"` // or a network
	RemoteSecurityGroup string `json:"remoteSecurityGroup,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PortRangeMin int `json:"portRangeMin,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PortRangeMax int `json:"portRangeMax,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	LocalAddress string `json:"localAddress,omitempty"` // or a network
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	SourcePortRangeMin int `json:"sourcePortRangeMin,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	SourcePortRangeMax int `json:"sourcePortRangeMax,omitempty"`
	// +kubebuilder:validation:Enum=allow;drop;pass
	Policy string `json:"policy"`
}

// SecurityGroupStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SecurityGroupStatus struct {
	Conditions             []Condition `json:"conditions,omitempty"`
	PortGroup              string      `json:"portGroup,omitempty"` // of OVN
	AllowSameGroupTraffic  bool        `json:"allowSameGroupTraffic,omitempty"`
	IngressMd5             string      `json:"ingressMd5,omitempty"`
	EgressMd5              string      `json:"egressMd5,omitempty"`
	IngressLastSyncSuccess bool        `json:"ingressLastSyncSuccess,omitempty"`
	EgressLastSyncSuccess  bool        `json:"egressLastSyncSuccess,omitempty"`
}

// SecurityGroupList is a list of SecurityGroups.
//
// +kubebuilder:object:root=true
type SecurityGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []SecurityGroup `json:"items"`
}

// QoSPolicy is rates that others refer to. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=qos-policies,singular=qos-policy,shortName=qos,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Shared",type=string,JSONPath=".spec.shared"
// +kubebuilder:printcolumn:name="BindingType",type=string,JSONPath=".spec.bindingType"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type QoSPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec QoSPolicySpec `json:"spec"`
	// +optional
	Status QoSPolicyStatus `json:"status,omitzero"`
}

// QoSPolicySpec is what a user writes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type QoSPolicySpec struct {
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	BandwidthLimitRules []BandwidthLimitRule `json:"bandwidthLimitRules,omitempty"`
	Shared              bool                 `json:"shared,omitempty"`
	BindingType         string               `json:"bindingType,omitempty"` // EIP or NATGW
}

// +kubebuilder:validation:XValidation:rule="!has(self.rateMax) || self.rateMax == '' || self.rateMax.matches('^[0-9]+([.][0-9]+)?$')",messageExpression="'rateMax ' + self.rateMax + ' is not a number of 0 or more (Mbit/s)'",fieldPath=".rateMax"
// +kubebuilder:validation:XValidation:rule="!has(self.burstMax) || self.burstMax == '' || self.burstMax.matches('^[0-9]+([.][0-9]+)?$')",messageExpression="'burstMax ' + self.burstMax + ' is not a number of 0 or more (megabytes)'",fieldPath=".burstMax"

// BandwidthLimitRule is one rate.
//
// +kubebuilder:pruning:PreserveUnknownFields
type BandwidthLimitRule struct {
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	// +kubebuilder:validation:MaxLength=32
	RateMax string `json:"rateMax,omitempty"` // Mbit/s, decimal
	// +kubebuilder:validation:MaxLength=32
	BurstMax string `json:"burstMax,omitempty"` // megabytes, decimal
	// +kubebuilder:validation:Minimum=0
	Priority int `json:"priority,omitempty"`
	// +kubebuilder:validation:Enum="";ingress;egress
	Direction  string `json:"direction,omitempty"`
	MatchType  string `json:"matchType,omitempty"` // ip
	MatchValue string `json:"matchValue,omitempty"`
}

// QoSPolicyStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type QoSPolicyStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
	// Schemaless: what is observed is told, not checked.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	BandwidthLimitRules []BandwidthLimitRule `json:"bandwidthLimitRules,omitempty"`
	Shared              bool                 `json:"shared,omitempty"`
	BindingType         string               `json:"bindingType,omitempty"`
}

// QoSPolicyList is a list of QoSPolicies.
//
// +kubebuilder:object:root=true
type QoSPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []QoSPolicy `json:"items"`
}
