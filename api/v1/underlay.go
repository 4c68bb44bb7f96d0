package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Vlan is a VLAN of a provider network. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=vlan,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=".spec.id"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".spec.provider"
// +kubebuilder:printcolumn:name="Conflict",type=boolean,JSONPath=".status.conflict"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type Vlan struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec VlanSpec `json:"spec"`
	// +optional
	Status VlanStatus `json:"status,omitzero"`
}

// VlanSpec is what a user writes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VlanSpec struct {
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	ID       int    `json:"id"`                 // 802.1Q id 1..4094, 0 is untagged
	Provider string `json:"provider,omitempty"` // name of a ProviderNetwork

	// OldID and OldProvider are the keys that ID and Provider replaced; they
	// count where the new ones are absent.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	OldID       int    `json:"vlanId,omitempty"`
	OldProvider string `json:"providerInterfaceName,omitempty"`

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// VlanStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VlanStatus struct {
	Subnets    []string    `json:"subnets,omitempty"`
	Conflict   bool        `json:"conflict,omitempty"` // another Vlan of the network has the id
	Conditions []Condition `json:"conditions,omitempty"`
}

// VlanList is a list of Vlans.
//
// +kubebuilder:object:root=true
type VlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Vlan `json:"items"`
}

// ProviderNetworkNameLimit is how long the name of a ProviderNetwork may be, in bytes: its
// bridge is called br-NAME, and a link's name has at most 15.
const ProviderNetworkNameLimit = 12

// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 12",messageExpression="'name ' + self.metadata.name + ' has more than 12 characters: its bridge, br-' + self.metadata.name + ', would have more than 15'"

// ProviderNetwork is a physical network that nodes reach through a NIC of
// their own. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=provider-networks,singular=provider-network,shortName=pn,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="DefaultInterface",type=string,JSONPath=".spec.defaultInterface"
// +kubebuilder:printcolumn:name="Ready",type=boolean,JSONPath=".status.ready"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type ProviderNetwork struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec ProviderNetworkSpec `json:"spec"`
	// +optional
	Status ProviderNetworkStatus `json:"status,omitzero"`
}

// ProviderNetworkSpec is what a user writes.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderNetworkSpec struct {
	// +kubebuilder:validation:MaxLength=15
	DefaultInterface       string                `json:"defaultInterface,omitempty"`
	CustomInterfaces       []CustomInterface     `json:"customInterfaces,omitempty"`
	NodeSelector           *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	ExcludeNodes           []string              `json:"excludeNodes,omitempty"`
	ExchangeLinkName       bool                  `json:"exchangeLinkName,omitempty"` // the bridge takes the NIC's name
	PreserveVlanInterfaces bool                  `json:"preserveVlanInterfaces,omitempty"`
	VlanInterfaces         []string              `json:"vlanInterfaces,omitempty"`
	AutoCreateVlan         bool                  `json:"autoCreateVlanSubinterfaces,omitempty"`

	// Unknown are the paths of keys that the object has and this version does not know.
	Unknown string `json:"-"`
}

// CustomInterface names the NIC for nodes on which it is not the default one.
//
// +kubebuilder:pruning:PreserveUnknownFields
type CustomInterface struct {
	// +kubebuilder:validation:MaxLength=15
	Interface string   `json:"interface"`
	Nodes     []string `json:"nodes"`
}

// ProviderNetworkStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderNetworkStatus struct {
	Ready         bool            `json:"ready,omitempty"`
	ReadyNodes    []string        `json:"readyNodes,omitempty"`
	NotReadyNodes []string        `json:"notReadyNodes,omitempty"`
	Vlans         []string        `json:"vlans,omitempty"`
	Conditions    []NodeCondition `json:"conditions,omitempty"`
}

// NodeCondition is a Condition of one node.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NodeCondition struct {
	// +optional
	Node      string `json:"node"`
	Condition `json:",inline"`
}

// ProviderNetworkList is a list of ProviderNetworks.
//
// +kubebuilder:object:root=true
type ProviderNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ProviderNetwork `json:"items"`
}
