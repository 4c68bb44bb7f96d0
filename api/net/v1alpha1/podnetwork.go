// Package v1alpha1 holds the objects of API group net.fairlead.io/v1alpha1: what a
// network team declares of pods from outside of them. Types only: it must not know
// who carries them out.
//
// The CRDs in deploy and the deep copies are generated from the types and their
// markers (test/chart).
//
// +groupName=net.fairlead.io
// +kubebuilder:object:generate=true
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// APIVersion is group and version of every object in this package.
const APIVersion = "net.fairlead.io/v1alpha1"

// GroupVersion is APIVersion as clients want it.
var GroupVersion = schema.GroupVersion{Group: "net.fairlead.io", Version: "v1alpha1"}

// AddToScheme makes the package's objects and their lists known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PodNetwork{}, &PodNetworkList{}, &AddressLease{}, &AddressLeaseList{}, &NodeVFPolicy{}, &NodeVFPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// LabelPodNetwork is the label, with the value "true", of ConfigMaps that declare settings
// by the names of pods.
const LabelPodNetwork = "net.fairlead.io/pod-network"

// AnnAllowPodOverride is on a NetworkAttachmentDefinition: the settings that pods'
// annotations may ask for there, with commas between, of bandwidth, pf, spoofchk, trust
// and vlan. With it, and without it on networks of virtual functions, those that it does
// not name are refused.
const AnnAllowPodOverride = "net.fairlead.io/allow-pod-override"

// PodNetwork declares settings of a pod's interfaces, by the name of the pod: the
// object's own, or each name that a StatefulSet gives. It is namespaced, as pods are.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=pnet,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:printcolumn:name="StatefulSet",type=string,JSONPath=".spec.statefulSet"
// +kubebuilder:printcolumn:name="Interfaces",type=string,JSONPath=".spec.interfaces[*].name"
// +kubebuilder:printcolumn:name="Networks",type=string,JSONPath=".spec.interfaces[*].network"
// +kubebuilder:printcolumn:name="IPs",type=string,JSONPath=".spec.interfaces[*].ips",priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type PodNetwork struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec PodNetworkSpec `json:"spec"`
	// +optional
	Status PodNetworkStatus `json:"status,omitzero"`
}

// Types of conditions.
const (
	// ConditionReady: the pods that are there have what is declared. Its reason is
	// ReasonApplied, ReasonNoPod, ReasonRestartNeeded, or why a pod is refused.
	ConditionReady = "Ready"
	// ConditionRestartNeeded: a running pod has addresses, a MAC, a network or a physical
	// function that are declared otherwise now: these change with a new pod.
	ConditionRestartNeeded = "RestartNeeded"
)

// Reasons of pods and of conditions; others are those of refusals.
const (
	ReasonApplied       = "Applied"
	ReasonNoPod         = "NoPod"
	ReasonRestartNeeded = "RestartNeeded"
	ReasonRefused       = "Refused" // for a reason that has no name
)

// PodNetworkStatus is what the agents of the nodes say that have pods of it.
type PodNetworkStatus struct {
	// ObservedGeneration is the spec's that the last agent which wrote had read.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Nodes are those that have pods of it; each agent writes its own element.
	//
	// +listType=map
	// +listMapKey=name
	Nodes []PodNetworkNode `json:"nodes,omitempty"`
}

// PodNetworkNode is what one node's agent says.
type PodNetworkNode struct {
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// ObservedGeneration is the spec's that the agent had read.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +listType=map
	// +listMapKey=name
	Pods []PodNetworkPod `json:"pods"`
}

// PodNetworkPod is one pod on that node.
type PodNetworkPod struct {
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Reason is Applied where the pod has what is declared, else why not.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="has(self.statefulSet) || self.interfaces.all(i, !has(i.ipRange) && !has(i.macBase))",message="ipRange and macBase are for the pods of a statefulSet",fieldPath=".interfaces"
// +kubebuilder:validation:XValidation:rule="has(self.statefulSet) || self.interfaces.all(i, !has(i.retain) || i.retain != 'UntilScaleDown')",message="retain UntilScaleDown is for the pods of a statefulSet",fieldPath=".interfaces"
// +kubebuilder:validation:XValidation:rule="!has(self.statefulSet) || self.interfaces.all(i, !has(i.ips) && !has(i.mac))",message="ips and mac are of one pod: those of a statefulSet have an ipRange and a macBase",fieldPath=".interfaces"

// PodNetworkSpec is what a user writes.
type PodNetworkSpec struct {
	// StatefulSet is the one whose pods are meant, in the object's namespace; "" for the
	// pod of the object's name.
	//
	// +kubebuilder:validation:MaxLength=253
	StatefulSet string `json:"statefulSet,omitempty"`
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Interfaces []PodInterface `json:"interfaces"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.ips) || self.ips.all(p, isIP(p) || isCIDR(p))",message="an element of ips is neither an address nor one with its prefix length",fieldPath=".ips"
// +kubebuilder:validation:XValidation:rule="!has(self.ips) || size(self.ips) < 2 || self.ips[0].contains(':') != self.ips[1].contains(':')",message="ips are at most one of each family",fieldPath=".ips"
// +kubebuilder:validation:XValidation:rule="!has(self.mac) || self.mac.matches('^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$') && self.mac != '00:00:00:00:00:00'",messageExpression="'mac ' + self.mac + ' is no unicast Ethernet address'",fieldPath=".mac"
// +kubebuilder:validation:XValidation:rule="!has(self.macBase) || self.macBase.matches('^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$') && self.macBase != '00:00:00:00:00:00'",messageExpression="'macBase ' + self.macBase + ' is no unicast Ethernet address'",fieldPath=".macBase"
// +kubebuilder:validation:XValidation:rule="!has(self.ipRange) || self.ipRange.matches('^[0-9a-fA-F.:]+-[0-9a-fA-F.:]+(/[0-9]{1,3})?$') && self.ipRange.split('/')[0].split('-').all(a, isIP(a)) && self.ipRange.split('-')[0].contains(':') == self.ipRange.split('-')[1].contains(':')",messageExpression="'ipRange ' + self.ipRange + ' is not of the form 10.9.0.16-10.9.0.31'",fieldPath=".ipRange"
// +kubebuilder:validation:XValidation:rule="!has(self.retain) || self.retain == 'WhileDeclared' || has(self.ips) || has(self.ipRange) || has(self.mac) || has(self.macBase)",message="no address or MAC is declared that could be retained",fieldPath=".retain"

// PodInterface is what is declared of one interface. What is left out is decided by
// who comes next: other declarations, the pod's annotations, the network.
type PodInterface struct {
	// Name is that of the interface in the pod.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/:%\s]+$`
	Name string `json:"name"`
	// Network is what the interface is in: NAMESPACE/NAME of a
	// NetworkAttachmentDefinition, which the pod gets if it does not ask for it itself;
	// without a slash, a Subnet. "": the network that the pod has there.
	//
	// +kubebuilder:validation:MaxLength=317
	Network string `json:"network,omitempty"`
	// IPs are at most one address of each family, with or without a prefix length,
	// which is the Subnet's where the network has one.
	//
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=64
	IPs []string `json:"ips,omitempty"`
	// IPRange, FIRST-LAST, gives the pod of ordinal i its address FIRST + i - the
	// StatefulSet's ordinals.start; FIRST-LAST/LENGTH with a prefix length, which networks
	// without a Subnet need.
	//
	// +kubebuilder:validation:MaxLength=128
	IPRange string `json:"ipRange,omitempty"`
	// +kubebuilder:validation:MaxLength=17
	MAC string `json:"mac,omitempty"`
	// MACBase gives the pod of ordinal i the MAC that is i - ordinals.start above it.
	//
	// +kubebuilder:validation:MaxLength=17
	MACBase   string     `json:"macBase,omitempty"`
	VLAN      *VLAN      `json:"vlan,omitempty"`
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
	SRIOV     *SRIOV     `json:"sriov,omitempty"`
	// Retain says how long addresses and MAC are kept for the pod while it is not there:
	// WhileDeclared, which is the default; UntilScaleDown, as long as its StatefulSet has a
	// pod of that ordinal, too; Forever, until somebody deletes the AddressLease. The latter
	// two are for networks without a Subnet.
	//
	// +kubebuilder:validation:Enum=WhileDeclared;UntilScaleDown;Forever
	Retain string `json:"retain,omitempty"`
}

// Values of Retain.
const (
	RetainWhileDeclared  = "WhileDeclared"
	RetainUntilScaleDown = "UntilScaleDown"
	RetainForever        = "Forever"
)

// +kubebuilder:validation:XValidation:rule="self.id != 0 || (!has(self.qos) || self.qos == 0)",message="qos is a tag's priority: it needs an id",fieldPath=".qos"
// +kubebuilder:validation:XValidation:rule="self.id != 0 || !has(self.proto) || self.proto != '802.1ad'",message="802.1ad needs an id",fieldPath=".proto"

// VLAN is the tag of an interface's packets on the wire.
type VLAN struct {
	// ID is 1 to 4094; 0 is untagged.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4094
	ID int `json:"id"`
	// QoS is the tag's priority (PCP).
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	QoS int `json:"qos,omitempty"`
	// +kubebuilder:validation:Enum="802.1q";"802.1ad"
	Proto string `json:"proto,omitempty"` // "" is 802.1q
}

// +kubebuilder:validation:XValidation:rule="!has(self.minMbps) || !has(self.maxMbps) || self.maxMbps == 0 || self.minMbps <= self.maxMbps",message="minMbps is more than maxMbps",fieldPath=".minMbps"

// Bandwidth are rates in Mbit/s; 0 is none.
type Bandwidth struct {
	// MinMbps is what the interface can always send.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MinMbps *int `json:"minMbps,omitempty"`
	// MaxMbps is the most that it may send, and where the network can do that also
	// receive.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxMbps *int `json:"maxMbps,omitempty"`
}

// SRIOV are settings that only a virtual function has.
type SRIOV struct {
	SpoofChk *bool `json:"spoofchk,omitempty"`
	Trust    *bool `json:"trust,omitempty"`
	// +kubebuilder:validation:Enum=auto;enable;disable
	LinkState string `json:"linkState,omitempty"`
	// PF are the physical functions of which it may be.
	//
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	PF []string `json:"pf,omitempty"`
}

// PodNetworkList is a list of PodNetworks.
//
// +kubebuilder:object:root=true
type PodNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []PodNetwork `json:"items"`
}
