package agent

import "net/url"

// PathPodNetworks lists what PodNetworks declare. GET: PodNetworkList; ?namespace= limits it.
const PathPodNetworks = "/v1/podnetworks"

// PodNetworkList answers PathPodNetworks.
type PodNetworkList struct {
	Items []PodNetwork `json:"items"`
}

// PodNetwork is one with the pods that it is about, as far as they are there.
type PodNetwork struct {
	Namespace   string                `json:"namespace"`
	Name        string                `json:"name"`
	StatefulSet string                `json:"statefulSet,omitempty"`
	Interfaces  []PodNetworkInterface `json:"interfaces"`
	Pods        []PodNetworkPod       `json:"pods"`
	// Conditions are the Kubernetes API's.
	Conditions []PodCondition `json:"conditions,omitempty"`
}

// PodNetworkInterface is what is declared of one interface, as a PodNetwork says it.
type PodNetworkInterface struct {
	Name    string            `json:"name"`
	Network string            `json:"network,omitempty"`
	Address string            `json:"address,omitempty"` // or a range
	Fields  map[string]string `json:"fields"`
}

// PodNetworkPod is a pod, the node that says so, and whether it has what is declared:
// Applied, RestartNeeded, or the reason why it is refused.
type PodNetworkPod struct {
	Name    string `json:"name"`
	Node    string `json:"node,omitempty"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// PathSettings is followed by {namespace}/{name}. GET: PodSettings.
const PathSettings = "/v1/settings/"

// SettingsPath is the path that tells what is declared of one pod.
func SettingsPath(namespace, name string) string {
	return PathSettings + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// PodSettings is what is declared of a pod's interfaces from outside of the pod, be it
// there or not.
type PodSettings struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Known: the pod is there, and its annotations were looked at.
	Known bool `json:"known"`
	// Sources are the objects that speak of the pod, the strongest first.
	Sources    []string            `json:"sources"`
	Interfaces []InterfaceSettings `json:"interfaces"`
	// Refusal is why the pod is not given its networks, or would not be.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Notes are what could not be looked at.
	Notes []string `json:"notes,omitempty"`
}

// InterfaceSettings is what counts of one interface.
type InterfaceSettings struct {
	Name    string         `json:"name"`
	Network string         `json:"network"`
	Fields  []FieldSetting `json:"fields"`
}

// FieldSetting is a field as a PodNetwork calls it, its value, and the object that says it.
type FieldSetting struct {
	Field  string      `json:"field"`
	Value  string      `json:"value"`
	Source string      `json:"source"`
	Lost   []LostValue `json:"lost,omitempty"`
}

// LostValue is what somebody else says of the field, which does not count.
type LostValue struct {
	Value  string `json:"value"`
	Source string `json:"source"`
}

// Refusal is a CNI error: its code, the reason (a word, "" for most) and the message,
// which begins with it.
type Refusal struct {
	Code    uint   `json:"code"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message"`
}
