package agent

import "time"

// LeaseList are leases of addresses and MACs.
type LeaseList struct {
	Items []Lease `json:"items"`
}

// Lease is an AddressLease of net.fairlead.io, as people ask about it.
type Lease struct {
	Name       string    `json:"name"`
	Domain     string    `json:"domain"` // of layer 2
	Address    string    `json:"address,omitempty"`
	MAC        string    `json:"mac,omitempty"`
	Phase      string    `json:"phase"`
	Since      time.Time `json:"since,omitzero"`
	Reason     string    `json:"reason,omitempty"` // of phase Conflict
	Message    string    `json:"message,omitempty"`
	Namespace  string    `json:"namespace,omitempty"`
	Pod        string    `json:"pod,omitempty"`
	Interface  string    `json:"interface,omitempty"`
	DeclaredBy string    `json:"declaredBy,omitempty"`
	// Who has it; "" for nobody.
	PodUID  string `json:"podUID,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	Node    string `json:"node,omitempty"`
	BootID  string `json:"bootID,omitempty"`
	Device  string `json:"device,omitempty"`
	// SelfFence: the node takes it off the network by itself when it is cut off.
	SelfFence bool  `json:"selfFence,omitempty"`
	Epoch     int64 `json:"epoch"`
	// Stolen is there when it was taken from a holder by hand.
	Stolen *Stolen `json:"stolen,omitempty"`
}

// Stolen is how a lease was taken from its holder by hand, the last time.
type Stolen struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
	From   string `json:"from"` // the sandbox
	At     string `json:"at"`   // RFC 3339
}
