package v1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IP is the addresses of one logical switch port: a pod's NIC, a node, a Vip. Its
// name is the port's. Who makes one before its pod reserves the address. It is
// cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ip,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="V4IP",type=string,JSONPath=".spec.v4IpAddress"
// +kubebuilder:printcolumn:name="V6IP",type=string,JSONPath=".spec.v6IpAddress"
// +kubebuilder:printcolumn:name="Mac",type=string,JSONPath=".spec.macAddress"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".spec.nodeName"
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=".spec.subnet"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type IP struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec IPSpec `json:"spec"`
	// +optional
	Status IPStatus `json:"status,omitzero"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.ipAddress) || self.ipAddress == '' || self.ipAddress.split(',').all(a, isIP(a.trim()))",messageExpression="'ipAddress ' + self.ipAddress + ' is not an IP address, or a comma-separated pair of them'",fieldPath=".ipAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.v4IpAddress) || self.v4IpAddress == '' || (isIP(self.v4IpAddress) && !self.v4IpAddress.contains(':'))",messageExpression="'v4IpAddress ' + self.v4IpAddress + ' is not an IPv4 address'",fieldPath=".v4IpAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.v6IpAddress) || self.v6IpAddress == '' || (isIP(self.v6IpAddress) && self.v6IpAddress.contains(':'))",messageExpression="'v6IpAddress ' + self.v6IpAddress + ' is not an IPv6 address'",fieldPath=".v6IpAddress"
// +kubebuilder:validation:XValidation:rule="!has(self.macAddress) || self.macAddress == '' || self.macAddress.matches('^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$')",messageExpression="'macAddress ' + self.macAddress + ' is not of the form 0a:00:00:00:00:01'",fieldPath=".macAddress"

// IPSpec is the addresses and who has them.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IPSpec struct {
	PodName       string   `json:"podName,omitempty"`
	Namespace     string   `json:"namespace,omitempty"`
	Subnet        string   `json:"subnet,omitempty"`
	AttachSubnets []string `json:"attachSubnets,omitempty"`
	NodeName      string   `json:"nodeName,omitempty"`
	// +kubebuilder:validation:MaxLength=128
	IPAddress string `json:"ipAddress,omitempty"` // both families, "10.16.0.5,fd00:10:16::5"
	// +kubebuilder:validation:MaxLength=64
	V4IPAddress string `json:"v4IpAddress,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	V6IPAddress string   `json:"v6IpAddress,omitempty"`
	AttachIPs   []string `json:"attachIps,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	MacAddress  string   `json:"macAddress,omitempty"`
	AttachMacs  []string `json:"attachMacs,omitempty"`
	ContainerID string   `json:"containerID,omitempty"`
	PodType     string   `json:"podType,omitempty"` // "", StatefulSet, VirtualMachine ...

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// IPStatus is what was observed. Kube-OVN's IP has none.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IPStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
}

// IPList is a list of IPs.
//
// +kubebuilder:object:root=true
type IPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []IP `json:"items"`
}

// IPPool is a part of a Subnet's addresses that only those get who ask for it, or
// the pods of its namespaces. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ippool,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=".spec.subnet"
// +kubebuilder:printcolumn:name="EnableAddressSet",type=boolean,JSONPath=".spec.enableAddressSet"
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=".spec.ips"
// +kubebuilder:printcolumn:name="V4Used",type=string,JSONPath=".status.v4UsingIPs"
// +kubebuilder:printcolumn:name="V4Available",type=string,JSONPath=".status.v4AvailableIPs"
// +kubebuilder:printcolumn:name="V6Used",type=string,JSONPath=".status.v6UsingIPs"
// +kubebuilder:printcolumn:name="V6Available",type=string,JSONPath=".status.v6AvailableIPs"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type IPPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec IPPoolSpec `json:"spec"`
	// +optional
	Status IPPoolStatus `json:"status,omitzero"`
}

// +kubebuilder:validation:XValidation:rule="self.subnet == oldSelf.subnet",messageExpression="'subnet ' + oldSelf.subnet + ' cannot become ' + self.subnet + ': make another IPPool'",fieldPath=".subnet"

// IPPoolSpec is what a user writes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IPPoolSpec struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Subnet string `json:"subnet"`
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"` // their pods come here
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4096
	IPs []AddressRange `json:"ips"`

	EnableAddressSet bool `json:"enableAddressSet,omitempty"`

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// +kubebuilder:validation:XValidation:rule="isCIDR(self) || (size(self.split('..')) <= 2 && isIP(self.split('..')[0]) && isIP(self.split('..')[size(self.split('..')) - 1]))",messageExpression="self + ' is neither an address, nor a range from..to, nor a network in CIDR form'"
// +kubebuilder:validation:XValidation:rule="size(self.split('..')) != 2 || self.split('..')[0].contains(':') == self.split('..')[1].contains(':')",messageExpression="self + ' goes from one family to the other'"

// AddressRange is "address", "from..to" or a network in CIDR form.
//
// +kubebuilder:validation:MaxLength=128
type AddressRange string

// IPPoolStatus is what was observed. Counts are numbers or, where they exceed
// what JSON numbers hold, decimal strings.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IPPoolStatus struct {
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V4AvailableIPs     json.RawMessage `json:"v4AvailableIPs,omitempty"`
	V4AvailableIPRange string          `json:"v4AvailableIPRange,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V4UsingIPs     json.RawMessage `json:"v4UsingIPs,omitempty"`
	V4UsingIPRange string          `json:"v4UsingIPRange,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V6AvailableIPs     json.RawMessage `json:"v6AvailableIPs,omitempty"`
	V6AvailableIPRange string          `json:"v6AvailableIPRange,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	V6UsingIPs     json.RawMessage `json:"v6UsingIPs,omitempty"`
	V6UsingIPRange string          `json:"v6UsingIPRange,omitempty"`
	Conditions     []Condition     `json:"conditions,omitempty"`
}

// IPPoolList is a list of IPPools.
//
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []IPPool `json:"items"`
}

// Vip is an address of a Subnet that no pod has by itself: pods may use it
// besides theirs, or a load balancer answers on it. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=vip,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=".spec.namespace"
// +kubebuilder:printcolumn:name="V4IP",type=string,JSONPath=".status.v4ip"
// +kubebuilder:printcolumn:name="V6IP",type=string,JSONPath=".status.v6ip"
// +kubebuilder:printcolumn:name="Mac",type=string,JSONPath=".status.mac"
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=".spec.subnet"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=".status.type"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Vip struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec VipSpec `json:"spec"`
	// +optional
	Status VipStatus `json:"status,omitzero"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.v4ip) || self.v4ip == '' || (isIP(self.v4ip) && !self.v4ip.contains(':'))",messageExpression="'v4ip ' + self.v4ip + ' is not an IPv4 address'",fieldPath=".v4ip"
// +kubebuilder:validation:XValidation:rule="!has(self.v6ip) || self.v6ip == '' || (isIP(self.v6ip) && self.v6ip.contains(':'))",messageExpression="'v6ip ' + self.v6ip + ' is not an IPv6 address'",fieldPath=".v6ip"
// +kubebuilder:validation:XValidation:rule="!has(self.macAddress) || self.macAddress == '' || self.macAddress.matches('^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$')",messageExpression="'macAddress ' + self.macAddress + ' is not of the form 0a:00:00:00:00:01'",fieldPath=".macAddress"

// VipSpec is what a user writes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VipSpec struct {
	Namespace string `json:"namespace,omitempty"`
	Subnet    string `json:"subnet,omitempty"` // "" is the default Subnet
	Type      string `json:"type,omitempty"`   // "switch_lb_vip", or "" for an address that pods share
	// +kubebuilder:validation:MaxLength=64
	V4ip string `json:"v4ip,omitempty"` // "" is chosen
	// +kubebuilder:validation:MaxLength=64
	V6ip string `json:"v6ip,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	MacAddress    string   `json:"macAddress,omitempty"`
	Selector      []string `json:"selector,omitempty"` // of pods that may use it
	AttachSubnets []string `json:"attachSubnets,omitempty"`

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// VipStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VipStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
	Ready      bool        `json:"ready,omitempty"`
	Type       string      `json:"type,omitempty"`
	V4ip       string      `json:"v4ip,omitempty"`
	V6ip       string      `json:"v6ip,omitempty"`
	Mac        string      `json:"mac,omitempty"`
	Selector   []string    `json:"selector,omitempty"`
}

// VipList is a list of Vips.
//
// +kubebuilder:object:root=true
type VipList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Vip `json:"items"`
}
