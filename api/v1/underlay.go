package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Vlan is a VLAN of a provider network. It is cluster-scoped.
//
// +kubebuilder:resource:scope=Cluster,shortName=vlan
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="ID",type=integer,JSONPath=".spec.id"
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".spec.provider"
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
	// +kubebuilder:validation:Maximum=4095
	ID       int    `json:"id"`                 // 802.1Q id 1..4094, 0 is untagged
	Provider string `json:"provider,omitempty"` // name of a ProviderNetwork

	// OldID and OldProvider are the keys that ID and Provider replaced; they
	// count where the new ones are absent.
	OldID       int    `json:"vlanId,omitempty"`
	OldProvider string `json:"providerInterfaceName,omitempty"`
}

// VlanStatus is what was observed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type VlanStatus struct {
	Subnets    []string    `json:"subnets,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// ProviderNetwork is a physical network that nodes reach through a NIC of
// their own. It is cluster-scoped.
//
// +kubebuilder:resource:scope=Cluster,path=provider-networks,singular=provider-network,shortName=pn
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
	DefaultInterface       string                `json:"defaultInterface,omitempty"`
	CustomInterfaces       []CustomInterface     `json:"customInterfaces,omitempty"`
	NodeSelector           *metav1.LabelSelector `json:"nodeSelector,omitempty"`
	ExcludeNodes           []string              `json:"excludeNodes,omitempty"`
	ExchangeLinkName       bool                  `json:"exchangeLinkName,omitempty"` // the bridge takes the NIC's name
	PreserveVlanInterfaces bool                  `json:"preserveVlanInterfaces,omitempty"`
	VlanInterfaces         []string              `json:"vlanInterfaces,omitempty"`
	AutoCreateVlan         bool                  `json:"autoCreateVlanSubinterfaces,omitempty"`
}

// CustomInterface names the NIC for nodes on which it is not the default one.
//
// +kubebuilder:pruning:PreserveUnknownFields
type CustomInterface struct {
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
