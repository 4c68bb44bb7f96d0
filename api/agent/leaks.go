package agent

import "net/netip"

// PathLeaks is a GET of a LeakList.
const PathLeaks = "/v1/leaks"

// LeakList answers PathLeaks: the addresses that no living attachment holds.
type LeakList struct {
	Items []Leak `json:"items"`
	// Failed are places that could not be looked at, and why: what they hold is
	// not among the items.
	Failed []string `json:"failed,omitempty"`
}

// Leak is an address that is held for nobody who lives.
type Leak struct {
	AttachmentRef            // the owner, as it is recorded
	Address       netip.Addr `json:"address"`
	Subnet        string     `json:"subnet,omitempty"`  // of the agent's own pools
	Network       string     `json:"network,omitempty"` // of host-local, with File
	File          string     `json:"file,omitempty"`
	Reason        string     `json:"reason"`
	// Unproven: the agent does not know the owner. It may be somebody else's and
	// live.
	Unproven bool   `json:"unproven,omitempty"`
	Free     string `json:"free"` // the command that frees it
}
