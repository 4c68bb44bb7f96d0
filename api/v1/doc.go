// Package v1 holds the objects of API group kubeovn.io/v1 that Fairlead reads,
// and the annotation keys through which pods ask for their networks. Types and
// constants only: it must not know how they are checked, stored or acted upon.
//
// Names and JSON keys are Kube-OVN's (spec/sdn.md, sections 3 and 11) and
// NPWG's (multi-network de-facto standard v1.3), so that existing manifests
// work as they stand.
package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIVersion is group and version of every object in this package.
const APIVersion = "kubeovn.io/v1"

// Condition is one observed fact about an object.
type Condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"` // True, False or Unknown
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
	LastUpdateTime     metav1.Time `json:"lastUpdateTime,omitzero"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
}
