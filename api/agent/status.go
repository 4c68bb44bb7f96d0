package agent

import "time"

// Names of the readiness checks, in the order Status lists them.
const (
	CheckOVSDB     = "ovsdb"     // connected, cache in sync
	CheckBridge    = "bridge"    // our bridge is there and ovs-vswitchd answers
	CheckGateways  = "gateways"  // the node's side of every Subnet is set
	CheckPorts     = "ports"     // what Open vSwitch has of running pods' ports is as it was made
	CheckJournal   = "journal"   // writable, not quarantined
	CheckAPI       = "api"       // the API server's objects are known, and it takes what we write; only where there is one
	CheckAddresses = "addresses" // this node gives addresses of the default Subnet, or has given some; only in a cluster
	CheckFence     = "fence"     // the node renews its heartbeat, and nothing is down by the fence; only with --self-fence, or while an earlier one is not ended
	CheckOVN       = "ovn"       // the controller in this process leads, and the node reaches OVN's network; only with --objects and --ovn
	CheckObjects   = "objects"   // no file of --objects has a problem; never makes the agent unready
)

// Status answers PathStatus.
type Status struct {
	Version       string    `json:"version"`
	Commit        string    `json:"commit,omitempty"`
	Node          string    `json:"node"`
	Started       time.Time `json:"started"`
	UptimeSeconds float64   `json:"uptimeSeconds"`
	// Ready: an ADD would be served. Every unmet condition has its reason.
	Ready      bool        `json:"ready"`
	Conditions []Condition `json:"conditions"`
	// Problems are the objects that are not in force as written; an earlier
	// good version of each, if any, stays.
	Problems []Problem `json:"problems,omitempty"`

	// Repairs are what somebody else changed and the agent put right, or tried
	// to: the last time each, the newest first.
	Repairs []Repair `json:"repairs,omitempty"`

	Pods        int             `json:"pods"`
	Attachments int             `json:"attachments"`
	Orphans     []OrphanedEntry `json:"orphans,omitempty"`
	Tombstones  int             `json:"tombstones"` // host links that wait for the reaper
	InFlight    int             `json:"inFlight"`   // operations that run now

	Settings Settings `json:"settings"`
}

// Repair is a gateway or a port that was not as it was made.
type Repair struct {
	What  string    `json:"what"`  // "gateway of subnet S", "port P of pod N/P"
	Found string    `json:"found"` // what was not so
	When  time.Time `json:"when"`  // last
	Times int       `json:"times"` // since the agent started
	Error string    `json:"error,omitempty"`
	// Next is when it is put right again at the earliest: somebody goes on
	// changing it.
	Next time.Time `json:"next,omitzero"`
}

// Condition is one readiness check.
type Condition struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"` // always there when not OK
}

// Problem is an object file, or a place in it, that could not be used.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"` // 1-based; absent when the whole file is meant
	Reason string `json:"reason"`
}

// OrphanedEntry is an attachment that is gone for the runtime and still holds
// something on the node.
type OrphanedEntry struct {
	AttachmentRef
	Error string `json:"error"` // why the last removal failed
}

// Underlay is the interface that a node's tunnels leave by, as it is now.
type Underlay struct {
	Name  string `json:"name,omitempty"`  // absent: the machine has no way out, and Ethernet is assumed
	MTU   int    `json:"mtu"`             // bytes
	Encap int    `json:"encap"`           // bytes of these that tunnels take
	Error string `json:"error,omitempty"` // why there is none so far; pods get what they would on Ethernet
}

// Settings are the effective values of the agent's flags that an operator
// asks for. No secret is among them, and none may be added.
type Settings struct {
	Socket        string   `json:"socket"`
	CompatSockets []string `json:"compatSockets,omitempty"`
	StateDir      string   `json:"stateDir"`
	Objects       string   `json:"objects,omitempty"`
	Kubeconfig    string   `json:"kubeconfig,omitempty"` // the file's path
	OVSDB         string   `json:"ovsdb"`
	Bridge        string   `json:"bridge"`
	OVN           bool     `json:"ovn,omitempty"`
	NB            string   `json:"nb,omitempty"` // OVN's northbound database, where the controller is a part of the agent
	Datapath      string   `json:"datapath"`     // system, netdev: what is in use
	Iface         string   `json:"iface,omitempty"`
	MTU           int      `json:"mtu"` // bytes a pod gets
	// Underlay is the interface that tunnels leave by; absent of an agent that does not tell.
	Underlay   *Underlay `json:"underlay,omitempty"`
	CNIBinDirs []string  `json:"cniBinDirs,omitempty"`
	ConfDir    string    `json:"confDir,omitempty"`
	HTTP       string    `json:"http,omitempty"`
}
