// Package migrate takes a node over from Multus, and gives it back: it says what
// is there and what would happen, puts our plugin and our configuration in
// Multus' place, and has the agent take the running containers into its journal.
// Nothing is done to a pod. Whatever is replaced is kept; every step may be
// repeated, so that a take-over that was killed goes on where it was.
//
// The order is such that a runtime has a valid configuration at any instant, and
// a plugin behind it that knows every container: our configuration, which sorts
// before Multus', comes before Multus' plugin goes; and until a container is in
// the journal its DEL goes by Multus' files, which stay. It knows no flags.
//
// Sources: Multus v4.3.0 (cmd/install_multus, pkg/server/config); spec/multinet.md.
package migrate

import (
	"context"
	"path/filepath"

	"github.com/fairlead/fairlead/api/agent"
)

// Config says where things are on the node.
type Config struct {
	ConfDir  string // the runtime's configurations
	BinDir   string // the runtime's plugins
	StateDir string // how far we are, and the backup
	Plugin   string // our plugin's binary
	Socket   string // the agent's, "" for where the plugin looks anyway
	Proc     string // /proc
	Agent    Agent
}

// Agent is the running agent.
type Agent interface {
	Status(context.Context) (agent.Status, error)
	Adopt(context.Context, agent.Multus) (agent.AdoptResult, error)
	Export(context.Context, agent.Multus) (agent.ExportResult, error)
	Release(context.Context, agent.Multus) (agent.AdoptResult, error)
}

// Migration plans, does and undoes the take-over of one node.
type Migration struct{ Config }

// New makes a Migration; nothing is touched.
func New(c Config) *Migration { return &Migration{c} }

// ours is the configuration that we write (conf.Name).
const ours = "00-fairlead.conflist"

func (m *Migration) ours() string { return filepath.Join(m.ConfDir, ours) }

// Plan is what is there, and what Apply would do. Its keys are an interface:
// `-o json` prints it.
type Plan struct {
	Phase    string    `json:"phase"` // none, applying, applied, rolling-back
	Runtime  Runtime   `json:"runtime"`
	Keys     []Key     `json:"keys"`
	Networks []Network `json:"networks"`
	Binaries []Binary  `json:"binaries"`
	// Kubeconfig is absent where Multus' configuration names none.
	Kubeconfig *Kubeconfig `json:"kubeconfig,omitempty"`
	Multus     Running     `json:"multus"`
	Agent      Answer      `json:"agent"`
	Records    []Record    `json:"records"`
	Notes      []string    `json:"notes,omitempty"`  // worth knowing; nothing waits for them
	Blocks     []Block     `json:"blocks,omitempty"` // why Apply refuses
	Verdict    string      `json:"verdict"`
	Next       string      `json:"next"` // command

	multus  multusConf
	network string // `name` of the configuration by which the runtime will call us
	state   state
}

// Runtime is which configuration the runtime takes: the first by name.
type Runtime struct {
	Dir    string `json:"dir"`
	Winner string `json:"winner,omitempty"` // file name
	Type   string `json:"type,omitempty"`   // of its first plugin
	Whose  string `json:"whose"`            // multus, fairlead, other, broken, none
	// Multus is the path of Multus' configuration, "" without one; Name is the
	// network's, which stays: what runtimes keep of containers hangs on it.
	Multus string `json:"multus,omitempty"`
	Name   string `json:"name,omitempty"`
	Writes string `json:"writes,omitempty"` // path of the file that Apply writes
}

// Key is a key of Multus' configuration.
type Key struct {
	Name   string `json:"name"`
	Effect bool   `json:"effect"`
	Note   string `json:"note,omitempty"`
}

// Network is one that the configuration gives to every pod.
type Network struct {
	Role    string   `json:"role"` // default, further
	Name    string   `json:"name"`
	Plugins []string `json:"plugins,omitempty"` // types, IPAM's too
	Missing []string `json:"missing,omitempty"` // of them, without a binary
	Note    string   `json:"note,omitempty"`
}

// Binary is a plugin's file by which configurations call Multus or us.
type Binary struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Is   string `json:"is"`   // multus, fairlead, other, absent
	Then string `json:"then"` // install, replace, keep
}

// Kubeconfig is the one that Multus' configuration names.
type Kubeconfig struct {
	Path   string `json:"path"`
	Usable bool   `json:"usable"`
	Why    string `json:"why,omitempty"`
}

// Running is what runs of Multus on the node.
type Running struct {
	Socket    string   `json:"socket"` // of the thick daemon
	Listening bool     `json:"listening"`
	Processes []string `json:"processes,omitempty"` // "PID NAME"
}

// Here tells that something of Multus runs.
func (r Running) Here() bool { return r.Listening || len(r.Processes) > 0 }

// Answer is whether the agent can do its part.
type Answer struct {
	Socket  string `json:"socket,omitempty"`
	OK      bool   `json:"ok"`
	Why     string `json:"why,omitempty"`
	Version string `json:"version,omitempty"`
}

// Record is one container that Multus attached.
type Record struct {
	Container   string       `json:"container"`
	Namespace   string       `json:"namespace,omitempty"`
	Pod         string       `json:"pod,omitempty"`
	Netns       string       `json:"netns,omitempty"`
	Alive       bool         `json:"alive"`
	Adoptable   bool         `json:"adoptable"`
	Why         string       `json:"why,omitempty"` // not, and what comes of it
	Attachments []Attachment `json:"attachments,omitempty"`
}

// Attachment is one interface of a Record.
type Attachment struct {
	IfName  string   `json:"ifName"`
	Network string   `json:"network"`
	Plugins []string `json:"plugins"`
	Missing []string `json:"missing,omitempty"` // without a binary: DEL fails unless the agent needs none
}

// Block is why Apply refuses, and the next command.
type Block struct {
	What string `json:"what"`
	Next string `json:"next"`
}
