package agent

// PathDetach is a POST of a Detach, answered by a DetachResult.
const PathDetach = "/v1/detach"

// Detach names an attachment to be removed whatever its plugins say
// (`fairlead detach --force`).
type Detach struct {
	Container string `json:"container"` // id
	IfName    string `json:"ifname"`    // the runtime's CNI_IFNAME
}

// DetachResult is what became of it: the agent has forgotten it.
type DetachResult struct {
	AttachmentRef
	// Left is what could not be undone: nobody will try again.
	Left []Undone `json:"left"`
}

// Undone is one step of an attachment that is not undone.
type Undone struct {
	IfName  string `json:"interface"` // in the pod
	Network string `json:"network"`
	// Plugin is the CNI plugin that should have undone it; "" for the agent's own
	// part, Driver.
	Plugin string `json:"plugin,omitempty"`
	Driver string `json:"driver"`
	HostIf string `json:"hostInterface,omitempty"` // of the agent's own
	Error  string `json:"error"`
}
