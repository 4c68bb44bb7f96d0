package core

import "encoding/json"

// Uplink is a node's NIC that was given to a bridge of Open vSwitch: what its transfer
// was begun with, and what it takes to give the NIC back.
type Uplink struct {
	Network string `json:"network"` // of the ProviderNetwork
	Bridge  string `json:"bridge"`
	// NIC is the link's name before the transfer; by the rest it is found under another one.
	NIC       string `json:"nic"`
	MAC       MAC    `json:"mac"`
	Permanent MAC    `json:"permanent,omitempty"`
	Bus       string `json:"bus,omitempty"`
	// VLAN is the id of a NIC that is a VLAN link, by which and its name alone it is found: its
	// MAC is that of the link below. Below is that link's name if the NIC was made for the
	// network: it goes with it.
	VLAN  int    `json:"vlan,omitempty"`
	Below string `json:"below,omitempty"`
	// Port is the link's name on the bridge, another one where both change names.
	Port  string      `json:"port"`
	Phase UplinkPhase `json:"phase"`
	// BootID and Index tell the bridge's device, which has what the NIC had; 0: none has it yet.
	BootID string `json:"bootID,omitempty"`
	Index  int    `json:"index,omitempty"`
	// Had is what the NIC had, and the bridge's device has now.
	Had json.RawMessage `json:"had,omitempty"`
}

// UplinkPhase is how far a transfer has come.
type UplinkPhase string

// Phases. A transfer that was begun is finished or taken back, a return goes on.
const (
	Taking    UplinkPhase = "taking"
	Taken     UplinkPhase = "taken"
	Returning UplinkPhase = "returning"
)
