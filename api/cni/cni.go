// Package cni is what the plugin and the agent say to each other over the
// agent's unix socket, and the table of CNI error codes. It imports only what
// the plugin may carry: the standard library, no net/http.
//
// The plugin sends HTTP/1.1 by hand:
//
//	POST /v1/cni with `Expect: 100-continue`. No `100 Continue` within
//	AcceptLimit means that no agent is there. The body is a Request as JSON.
//	The answer is 200 with a Response; the plugin prints it and then sends
//	one more byte (Ack) on the same connection: the answer is delivered.
//
// A foreign plugin that the agent runs may have us as its IPAM plugin. It finds
// EnvToken in its environment and hands it on; such a call goes to PathJoin and
// belongs to the operation that runs the foreign plugin, which holds all locks.
// Its DEL needs no agent: the addresses go with the record of that operation.
//
// The same listener serves Kube-OVN's plugin: POST /api/v1/add and
// /api/v1/del with a KubeOVNRequest.
package cni

import "time"

// Paths and marks of the wire.
const (
	PathCNI        = "/v1/cni"
	PathJoin       = "/v1/join" // as PathCNI, for a Request with a Token
	PathKubeOVNAdd = "/api/v1/add"
	PathKubeOVNDel = "/api/v1/del"

	// DefaultSocket is where the agent listens unless a conf names another.
	DefaultSocket = "/run/fairlead/agent.sock"
	// IntentsDir, beside the socket, holds the DELs that found no agent.
	IntentsDir = "intents"
	// EnvToken names the operation of the agent that a plugin runs for, and
	// EnvSocket where that agent listens, whatever the configuration says.
	EnvToken  = "FAIRLEAD_TOKEN"
	EnvSocket = "FAIRLEAD_SOCKET"
	// Ack is the plugin's last byte: it has printed the answer.
	Ack byte = '\n'
	// AcceptLimit is how long a caller waits for `100 Continue`. Where CPU or
	// memory is short, an agent that lives gets no turn for seconds.
	AcceptLimit = 5 * time.Second
	// MaxBody bounds a request and an answer, in bytes.
	MaxBody = 1 << 20
)

// Request is a plugin call: the CNI environment and standard input.
type Request struct {
	Command     string `json:"command"`
	ContainerID string `json:"containerID,omitempty"`
	Netns       string `json:"netns,omitempty"`
	IfName      string `json:"ifName,omitempty"`
	Args        string `json:"args,omitempty"`
	Path        string `json:"path,omitempty"`
	Token       string `json:"token,omitempty"` // of EnvToken
	// Boottime is CLOCK_BOOTTIME when the plugin began, in ns: it orders calls
	// that reach the agent late, and nobody can set it. BootID says of which
	// boot; only a DEL that is left for the agent has it.
	Boottime int64  `json:"boottime,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	Config   []byte `json:"config"` // standard input, byte for byte (base64 in JSON)
}

// Response is the agent's answer: the exact bytes for standard output and
// whether the call failed (exit status 1).
type Response struct {
	Output []byte `json:"output,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// Error is the CNI error object (CNI spec 1.1, "Error").
type Error struct {
	CNIVersion string `json:"cniVersion,omitempty"`
	Code       uint   `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details,omitempty"`
}

// Codes is the one table of error codes that Fairlead uses, for documentation
// and for `fairlead` to explain an error.
var Codes = map[uint]string{
	1:   "incompatible CNI version",
	2:   "unsupported field in the network configuration",
	3:   "container or attachment unknown",
	4:   "invalid environment variable",
	5:   "I/O failure",
	6:   "content cannot be decoded",
	7:   "invalid network configuration",
	8:   "network namespace gone or not a network namespace",
	11:  "try again later",
	50:  "not ready: cannot serve ADD",
	51:  "not ready: existing pods may have limited connectivity",
	101: "denied by policy",
	102: "invalid value in a request or annotation",
	103: "address not available",
	104: "device not available",
	105: "conflict of declarations, or already attached",
	106: "what is there differs from what was made (CHECK)",
}

// KubeOVNRequest is what Kube-OVN's CNI plugin posts; field names and meaning
// are theirs (sdn.md, section 1).
type KubeOVNRequest struct {
	CNIType                    string         `json:"cni_type"`
	PodName                    string         `json:"pod_name"`
	PodNamespace               string         `json:"pod_namespace"`
	ContainerID                string         `json:"container_id"`
	NetNs                      string         `json:"net_ns"`
	IfName                     string         `json:"if_name"`
	Provider                   string         `json:"provider"`
	Routes                     []KubeOVNRoute `json:"routes,omitempty"`
	DNS                        KubeOVNDNS     `json:"dns,omitzero"`
	VfDriver                   string         `json:"vf_driver,omitempty"`
	DeviceID                   string         `json:"deviceID,omitempty"`
	VhostUserSocketVolumeName  string         `json:"vhost_user_socket_volume_name,omitempty"`
	VhostUserSocketName        string         `json:"vhost_user_socket_name,omitempty"`
	VhostUserSocketConsumption string         `json:"vhost_user_socket_consumption,omitempty"`
}

// KubeOVNRoute is a route in Kube-OVN's wire format.
type KubeOVNRoute struct {
	Destination string `json:"dst"`
	Gateway     string `json:"gw"`
}

// KubeOVNDNS is the resolver part of Kube-OVN's wire format.
type KubeOVNDNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// KubeOVNResponse answers an add; on failure only Error is set. Addresses stand in
// it twice: as Kube-OVN's plugin of 1.17 reads them, and as that of 1.13 does.
type KubeOVNResponse struct {
	IPs        []KubeOVNIP    `json:"ips"`
	Protocol   string         `json:"protocol,omitempty"` // IPv4, IPv6 or Dual; then each of the next three has both, with a comma between
	IPAddress  string         `json:"address,omitempty"`
	CIDR       string         `json:"cidr,omitempty"`
	Gateway    string         `json:"gateway,omitempty"`
	MacAddress string         `json:"mac_address"`
	Routes     []KubeOVNRoute `json:"routes"`
	Mtu        int            `json:"mtu"`
	PodNicName string         `json:"nicname"`
	DNS        KubeOVNDNS     `json:"dns,omitzero"`
	Err        string         `json:"error"`
}

// KubeOVNIP is one address in Kube-OVN's wire format; CIDR is the subnet's.
type KubeOVNIP struct {
	Protocol string `json:"protocol"` // IPv4 or IPv6
	IP       string `json:"ip"`
	CIDR     string `json:"cidr"`
	Gateway  string `json:"gateway,omitempty"`
}
