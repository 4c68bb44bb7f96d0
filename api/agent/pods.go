package agent

import (
	"encoding/json"
	"net/netip"
	"time"
)

// PodList answers PathPods. Its pods carry neither Timeline nor LastFailure;
// PathPod gives those.
type PodList struct {
	Items []Pod `json:"items"`
}

// Pod is one pod of this node, as the journal knows it, or of the cluster, as
// the Kubernetes API knows it: then its one attachment, if it has any, holds what
// the annotation network-status says, which names no container. A pod whose only ADD
// failed has no attachments and a LastFailure; a list does not show it.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	// Node, State (PodAdded ...) and Created are what the Kubernetes API says;
	// an agent leaves them out.
	Node    string    `json:"node,omitempty"`
	State   string    `json:"state,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// Known: an object tells what networks the pod wants. PathPod only.
	Known       bool         `json:"known,omitempty"`
	Attachments []Attachment `json:"attachments"`
	LastFailure *Failure     `json:"lastFailure,omitempty"`
	// Requested are the annotations that ask for networks; with Conditions and
	// Events, oldest first, they are the Kubernetes API's, of one pod only.
	Requested  map[string]string `json:"requested,omitempty"`
	Conditions []PodCondition    `json:"conditions,omitempty"`
	Events     []PodEvent        `json:"events,omitempty"`
	// Run is what the node loop knows, where one runs: `fairlead describe pod`
	// asks it too.
	Run *PodRun `json:"run,omitempty"`
}

// Phases of an attachment (internal/core, Phase).
const (
	Adding   = "adding"
	Added    = "added"
	Deleting = "deleting"
)

// Attachment is one record of the journal: what one call of the runtime made.
type Attachment struct {
	Container string `json:"container"` // the runtime's container id
	IfName    string `json:"ifName"`    // the runtime's CNI_IFNAME
	Network   string `json:"network"`   // `name` of the runtime's configuration
	Netns     string `json:"netns"`     // path
	Phase     string `json:"phase"`     // Adding, Added or Deleting
	// Delivered: the runtime has the answer, so that a second ADD is a duplicate.
	Delivered bool `json:"delivered"`
	// Orphan: DEL was answered, the namespace is gone, and some removal still
	// fails; Error says why. The agent goes on trying.
	Orphan bool   `json:"orphan,omitempty"`
	Error  string `json:"error,omitempty"`
	// NetnsGone: nothing is at the path of the namespace any more; the runtime's
	// DEL, or `fairlead gc`, removes the attachment.
	NetnsGone  bool        `json:"netnsGone,omitempty"`
	Created    time.Time   `json:"created"`
	Interfaces []Interface `json:"interfaces"`
	// NetworkStatus is what a cluster writes into the pod's network-status
	// annotation, in order.
	NetworkStatus []NetworkStatus `json:"networkStatus,omitempty"`
	Timeline      []Step          `json:"timeline,omitempty"` // of the ADD
	// HotPlugged are the networks that came while the pod ran; Problem is why its
	// networks are not as its annotation asks.
	HotPlugged []HotPlugged `json:"hotPlugged,omitempty"`
	Problem    string       `json:"amiss,omitempty"`
}

// HotPlugged is how one interface came to a running pod.
type HotPlugged struct {
	IfName   string    `json:"ifName"`
	When     time.Time `json:"when"`
	Timeline []Step    `json:"timeline,omitempty"`
}

// NetworkStatus is an element of k8s.v1.cni.cncf.io/network-status, under the
// standard's own keys (NPWG v1.3, section 4.1).
type NetworkStatus struct {
	Name      string   `json:"name"`
	Interface string   `json:"interface,omitempty"`
	IPs       []string `json:"ips,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	MTU       int      `json:"mtu,omitempty"` // bytes
	Default   bool     `json:"default,omitempty"`
	DNS       DNS      `json:"dns,omitzero"`
	// DeviceInfo is the network's device, an object of NPWG's device information
	// specification v1.1.
	DeviceInfo   json.RawMessage `json:"device-info,omitempty"`
	Gateway      []string        `json:"gateway,omitempty"`
	DefaultRoute []string        `json:"default-route,omitempty"`
}

// Interface is one interface inside the pod and its far end on the node. While
// the attachment is being added the planned values are shown.
type Interface struct {
	Name    string `json:"name"`    // in the pod
	Network string `json:"network"` // NAD "namespace/name", DefaultNet, or a delegate's name
	Default bool   `json:"default,omitempty"`
	Driver  string `json:"driver"` // ovs, exec
	// Plugins are the types of the foreign CNI plugins that made or changed the
	// interface, in the order they ran.
	Plugins   []string       `json:"plugins,omitempty"`
	Subnet    string         `json:"subnet,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"` // with the subnet's prefix length; from the Kubernetes API, which has none, with the whole
	Gateways  []netip.Addr   `json:"gateways,omitempty"`
	Routes    []Route        `json:"routes,omitempty"`
	DNS       *DNS           `json:"dns,omitempty"`
	MAC       string         `json:"mac,omitempty"`
	MTU       int            `json:"mtu,omitempty"`           // bytes
	HostIf    string         `json:"hostInterface,omitempty"` // on the node
	NICType   string         `json:"nicType,omitempty"`       // veth-pair, internal-port
	VLAN      int            `json:"vlan,omitempty"`          // 802.1Q id, 0 = untagged
	QoS       *QoS           `json:"qos,omitempty"`
	// EgressUnenforced: the kernel polices nothing, so that the rates from the
	// pod are stored in OVSDB and no more.
	EgressUnenforced bool `json:"egressUnenforced,omitempty"`
	// DelayUnenforced: the kernel has no netem, so that latency, jitter, limit and loss
	// are stored in OVSDB and no more.
	DelayUnenforced bool `json:"delayUnenforced,omitempty"`
	Mirror          bool `json:"mirror,omitempty"`
	// PortSecurity is "on" where the switch takes from the pod only what comes from its
	// own MAC and addresses, and VIPs; "off"; or "" where that is another's affair.
	PortSecurity string       `json:"portSecurity,omitempty"`
	VIPs         []netip.Addr `json:"vips,omitempty"`
	// HostPorts are the node's ports that lead to the pod by this interface.
	HostPorts []HostPort `json:"hostPorts,omitempty"`
	Port      *Port      `json:"port,omitempty"`
	// PortMissing: OVSDB answers and has no such port.
	PortMissing bool `json:"portMissing,omitempty"`
	// Warnings: what was asked for and cannot be had, in words.
	Warnings []string `json:"warnings,omitempty"`
}

// HostPort is a port of the node that leads to a pod; without HostIP it is on
// all of the node's addresses.
type HostPort struct {
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
	Protocol      string     `json:"protocol"` // tcp, udp, sctp
	HostIP        netip.Addr `json:"hostIP,omitzero"`
}

// Route is a route inside the pod; without a gateway it is on-link.
type Route struct {
	Dst netip.Prefix `json:"dst"`
	GW  netip.Addr   `json:"gw,omitzero"`
}

// DNS is the resolver part of the CNI result.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// QoS are the rates of an interface seen from the pod: ingress is towards it.
// Zero means unlimited (sdn.md, section 4).
type QoS struct {
	IngressMbps      int `json:"ingressMbps,omitempty"`      // Mbit/s
	IngressBurstMbit int `json:"ingressBurstMbit,omitempty"` // Mbit
	EgressMbps       int `json:"egressMbps,omitempty"`       // Mbit/s
	EgressBurstMbit  int `json:"egressBurstMbit,omitempty"`  // Mbit
	LatencyMs        int `json:"latencyMs,omitempty"`
	JitterMs         int `json:"jitterMs,omitempty"`
	LimitPackets     int `json:"limitPackets,omitempty"`
	LossPercent      int `json:"lossPercent,omitempty"`
}

// Delays tells that packets towards the pod are delayed, lost, or few at a time.
func (q QoS) Delays() bool {
	return q.LatencyMs != 0 || q.JitterMs != 0 || q.LimitPackets != 0 || q.LossPercent != 0
}

// Port is the Open vSwitch side of an interface, as OVSDB tells it now.
type Port struct {
	Name      string `json:"name"`
	IfaceID   string `json:"ifaceID,omitempty"`   // external_ids:iface-id
	OFPort    int    `json:"ofport"`              // OpenFlow port; -1: vswitchd could not make it; 0: not known yet
	LinkState string `json:"linkState,omitempty"` // up, down
	Error     string `json:"error,omitempty"`     // vswitchd's own words
}

// Step is one timed step of an operation.
type Step struct {
	Name    string  `json:"name"`    // e.g. "journal.begin", "ovs.ofport"
	StartMs float64 `json:"startMs"` // since the operation began
	TookMs  float64 `json:"tookMs"`
	Error   string  `json:"error,omitempty"`
}

// Failure is the last operation on a pod that failed.
type Failure struct {
	Op        string    `json:"op"` // ADD, DEL, CHECK
	Container string    `json:"container"`
	IfName    string    `json:"ifName"`
	When      time.Time `json:"when"`
	Code      uint      `json:"code"`           // table of api/cni
	Cause     string    `json:"cause"`          // what failed and why, as the runtime was told
	Hint      string    `json:"hint,omitempty"` // what to do next: Hint(Code), or better
	Timeline  []Step    `json:"timeline,omitempty"`
}

// AttachmentRef names an attachment and its pod.
type AttachmentRef struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container"`
	IfName    string `json:"ifName"`
}

// CheckResult answers PathCheck: every attachment of the pod, proved against
// the kernel and OVSDB (CNI CHECK on the record). A difference is not an HTTP
// error: the status is 200 and OK false.
type CheckResult struct {
	Namespace   string            `json:"namespace"`
	Pod         string            `json:"pod"`
	OK          bool              `json:"ok"`
	Attachments []CheckAttachment `json:"attachments"`
}

// CheckAttachment is the outcome for one attachment.
type CheckAttachment struct {
	AttachmentRef
	OK          bool     `json:"ok"`
	Interfaces  []string `json:"interfaces"`            // that were checked
	Differences []string `json:"differences,omitempty"` // one line per difference
}

// GCResult answers PathGC: the agent's own collection. It removes the records
// whose network namespace is gone and everything they hold; it never touches
// an attachment whose namespace lives.
type GCResult struct {
	// DryRun: nothing was done. Removed and Strays are what would be tried.
	DryRun  bool        `json:"dryRun,omitempty"`
	Removed []GCRemoved `json:"removed"`
	// Strays are ports and links that carry the agent's mark and belong to no
	// attachment; Unswept is why these were not looked for.
	Strays  []GCStray   `json:"strays,omitempty"`
	Unswept string      `json:"unswept,omitempty"`
	Failed  []GCFailure `json:"failed,omitempty"` // not removed: orphans, retried by the agent, and what could not be looked at
	Kept    int         `json:"kept"`             // attachments with a living namespace, or in flight
}

// GCRemoved is an attachment, why it is collected, and what goes with it: ports,
// addresses, host ports, what plugins made.
type GCRemoved struct {
	AttachmentRef
	Reason     string      `json:"reason"`
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// GCStray is a port or a link of no attachment.
type GCStray struct {
	Kind      string `json:"kind"` // port, link
	Name      string `json:"name"` // on the node
	Container string `json:"container,omitempty"`
	IfName    string `json:"ifName,omitempty"`
}

// GCFailure is a record whose removal failed.
type GCFailure struct {
	AttachmentRef
	Error string `json:"error"`
}
