package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Vlan is a VLAN of a provider network. It is cluster-scoped.
type Vlan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   VlanSpec   `json:"spec"`
	Status VlanStatus `json:"status,omitzero"`
}

// VlanSpec is what a user writes.
type VlanSpec struct {
	ID       int    `json:"id"`                 // 802.1Q id 1..4094, 0 is untagged
	Provider string `json:"provider,omitempty"` // name of a ProviderNetwork

	// OldID and OldProvider are the keys that ID and Provider replaced; they
	// count where the new ones are absent.
	OldID       int    `json:"vlanId,omitempty"`
	OldProvider string `json:"providerInterfaceName,omitempty"`
}

// VlanStatus is what was observed.
type VlanStatus struct {
	Subnets    []string    `json:"subnets,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// ProviderNetwork is a physical network that nodes reach through a NIC of
// their own. It is cluster-scoped.
type ProviderNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   ProviderNetworkSpec   `json:"spec"`
	Status ProviderNetworkStatus `json:"status,omitzero"`
}

// ProviderNetworkSpec is what a user writes.
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
type CustomInterface struct {
	Interface string   `json:"interface"`
	Nodes     []string `json:"nodes"`
}

// ProviderNetworkStatus is what was observed.
type ProviderNetworkStatus struct {
	Ready         bool            `json:"ready,omitempty"`
	ReadyNodes    []string        `json:"readyNodes,omitempty"`
	NotReadyNodes []string        `json:"notReadyNodes,omitempty"`
	Vlans         []string        `json:"vlans,omitempty"`
	Conditions    []NodeCondition `json:"conditions,omitempty"`
}

// NodeCondition is a Condition of one node.
type NodeCondition struct {
	Node      string `json:"node"`
	Condition `json:",inline"`
}
