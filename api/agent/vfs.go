package agent

// PathVFs is a GET of a VFList.
const PathVFs = "/v1/vfs"

// VFList answers PathVFs: the virtual functions of the node's cards, by their physical
// functions and numbers.
type VFList struct {
	Items []VF `json:"items"`
	// Failed are what could not be looked at, and why.
	Failed []string `json:"failed,omitempty"`
}

// VF is a virtual function of a card.
type VF struct {
	PF     string `json:"pf"` // network device of its physical function
	Index  int    `json:"index"`
	PCI    string `json:"pci"`
	Driver string `json:"driver,omitempty"`
	Netdev string `json:"netdev,omitempty"` // on the machine; "" while a pod has it
	NUMA   *int   `json:"numa,omitempty"`
	// Resource is what kubelet gives it as, by Policy; "" for none. Place is kubelet's name
	// of it, where it was chosen for that.
	Resource string `json:"resource,omitempty"`
	Policy   string `json:"policy,omitempty"`
	Place    string `json:"place,omitempty"`
	// Unhealthy is why kubelet is not to give it, "" for a healthy one.
	Unhealthy string `json:"unhealthy,omitempty"`
	// The attachment that has it; empty for none.
	AttachmentRef
	Attributes *VFAttributes `json:"attributes,omitempty"`
}

// VFAttributes are what the physical function enforces.
type VFAttributes struct {
	MAC       string `json:"mac,omitempty"` // "": the function may choose
	VLAN      int    `json:"vlan"`
	QoS       int    `json:"qos"`
	Proto     string `json:"proto,omitempty"` // 802.1ad; "" is 802.1q
	MinMbps   int    `json:"minMbps"`
	MaxMbps   int    `json:"maxMbps"`
	SpoofChk  bool   `json:"spoofchk"`
	Trust     bool   `json:"trust"`
	LinkState string `json:"linkState"`
}
