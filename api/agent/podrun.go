package agent

import "time"

// PodRun is what a node without kubelet (`fairlead node`, `fairlead up`) knows of
// a pod that it runs.
type PodRun struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Node      string `json:"node,omitempty"`
	// Source is where the pod comes from: "file", "http" or "api"; Origin the
	// file, URL or server.
	Source string `json:"source"`
	Origin string `json:"origin,omitempty"`
	// Life is RunSyncing ... RunTerminated. Gone tells that the source names the
	// pod no more, Unclaimed that the source has not spoken since
	// this process began.
	Life      string `json:"life"`
	Gone      bool   `json:"gone,omitempty"`
	Unclaimed bool   `json:"unclaimed,omitempty"`
	Phase     string `json:"phase"` // core/v1 PodPhase
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// Addresses are the runtime's word.
	Addresses  []string       `json:"addresses,omitempty"`
	Started    time.Time      `json:"started,omitzero"`
	Containers []ContainerRun `json:"containers"` // init containers first, ephemeral ones last
	Conditions []PodCondition `json:"conditions,omitempty"`
	Events     []PodEvent     `json:"events,omitempty"` // the newest, at the end the last one
	// LastError is why the last step for the pod failed, RetryAt when the next is
	// due; nothing when it went well.
	LastError   string    `json:"lastError,omitempty"`
	LastErrorAt time.Time `json:"lastErrorAt,omitzero"`
	RetryAt     time.Time `json:"retryAt,omitzero"`
}

// Lives of a pod, in their order.
const (
	RunSyncing     = "syncing"     // is to run
	RunTerminating = "terminating" // is to end
	RunTerminated  = "terminated"  // has ended
)

// ContainerRun is one container of a PodRun.
type ContainerRun struct {
	Name string `json:"name"`
	Init bool   `json:"init,omitempty"`
	// Ephemeral tells one that somebody added to look into the pod.
	Ephemeral bool   `json:"ephemeral,omitempty"`
	Image     string `json:"image,omitempty"`
	ID        string `json:"id,omitempty"`    // of the newest instance
	State     string `json:"state,omitempty"` // "running", "waiting" or "terminated"
	// Reason and Message are the state's; ExitCode is that of the newest instance
	// that has ended, nil when none has.
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	ExitCode *int32    `json:"exitCode,omitempty"`
	Ready    bool      `json:"ready"`
	Restarts int32     `json:"restarts"`
	// RetryAt is until when it waits, as in back-off.
	RetryAt time.Time `json:"retryAt,omitzero"`
}
