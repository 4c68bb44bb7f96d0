// Package v1 holds the objects of API group kubeovn.io/v1 that Fairlead reads
// or writes, and the annotation keys through which pods ask for their networks.
// Types, constants and their registration only: it must not know how objects are
// stored or acted upon. What the API server refuses stands in the markers.
//
// Names and JSON keys are Kube-OVN's (spec/sdn.md, sections 3 and 11) and
// NPWG's (multi-network de-facto standard v1.3), so that existing manifests
// work as they stand.
//
// The CRDs in deploy/crds and deploy/cluster and the deep copies are generated
// from the types and their markers (test/chart). The CRDs are lenient where
// Kube-OVN's are: keys that Fairlead does not read are kept, since another
// controller may.
//
// +groupName=kubeovn.io
// +kubebuilder:object:generate=true
package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIVersion is group and version of every object in this package.
const APIVersion = "kubeovn.io/v1"

// Types of Condition that objects have in common.
const (
	ConditionReady = "Ready"
	// ConditionNotImplemented is True on an object of which Fairlead carries out
	// nothing, or not the fields that its message names.
	ConditionNotImplemented = "NotImplemented"
	// ConditionConflict is True on an object that cannot be beside an older one.
	ConditionConflict = "Conflict"
	// ConditionGateway is True on a centralized Subnet of which a gateway is ready.
	ConditionGateway = "GatewayReady"
)

// Condition is one observed fact about an object.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Condition struct {
	// +optional
	Type string `json:"type"`
	// +optional
	Status  string `json:"status"` // True, False or Unknown
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitzero"`
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// ObservedGeneration is the metadata.generation that the condition is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
