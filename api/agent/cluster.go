package agent

import "time"

// States of a pod as the Kubernetes API shows it (Pod.State).
const (
	PodAdded       = "added"        // it has a network-status
	PodTerminating = "terminating"  // it is being deleted; until that is done it keeps its addresses
	PodEnded       = "ended"        // its containers have ended for good: it holds nothing
	PodHost        = "host-network" // it uses the node's network
	PodUnscheduled = "unscheduled"  // no node has it yet
	PodPending     = "pending"      // its node makes it ready
	PodNoStatus    = "no-status"    // it runs, and nobody has published its networks
)

// PodCondition is one condition of a pod (core/v1 PodCondition).
type PodCondition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"` // True, False or Unknown
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"lastTransitionTime,omitzero"`
}

// PodEvent is one event about a pod and its networks (events.k8s.io/v1).
type PodEvent struct {
	When     time.Time `json:"when"` // the last of Count times
	Type     string    `json:"type"` // Normal or Warning
	Reason   string    `json:"reason"`
	Note     string    `json:"note"`
	Reporter string    `json:"reporter,omitempty"`
	Count    int       `json:"count,omitempty"` // how often, where it was more than once
}
