// Package agent is the node agent's life: a Config in, and a Daemon that serves
// the CNI plugin until its context ends. It makes the parts, drivers among them,
// and keeps what no single part does: recovery before the first request, the
// node's side of every Subnet, repairs of what somebody else changed. It knows no
// flag and no environment.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/agent/chassis"
	"github.com/fairlead/fairlead/internal/agent/deviceplugin"
	"github.com/fairlead/fairlead/internal/agent/packetfilter"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/hint"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/resolve/annotation"
	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/source/local"
)

// Values of Config.CNIConf beside a path.
const (
	ConfOff  = "off"
	ConfAuto = "auto"
)

// Config is what an agent is told. Its fields are the flags of `fairlead agent`.
type Config struct {
	// Socket is where plugins and operators call; CompatSockets are served too.
	Socket        string
	CompatSockets []string
	// StateDir is the folder of journal and ballast.
	StateDir string
	// Objects is the folder of the desired state, "" for none; Folder reads it, if
	// other parts of the process read it too.
	Objects string
	Folder  *folder.Folder
	// OVSDB is Open vSwitch's database, Bridge the integration bridge.
	OVSDB, Bridge string
	// OVN: there is a controller, which gives the addresses (without a cluster those
	// alone of networks that OVN carries), and ovn-controller makes the bridge's flows.
	OVN     bool
	Chassis chassis.Flags
	// Controller is that of a machine with OVN and without a cluster: it gives the
	// addresses of the objects' pods until ctx ends. Whoever starts the agent has it.
	Controller func(ctx context.Context, m *local.Machine) error
	NB         string // its northbound database
	NodeName   string
	// Iface is the underlay interface, as encap.Find takes it; MTU is that
	// of pods, in bytes, 0 the underlay's less what encapsulation needs.
	Iface  string
	MTU    int
	Filter packetfilter.Flags
	// MirrorAll is whether the bridge's mirror hears all ports.
	MirrorAll chassis.OnOff
	// CNIBinDirs are the folders of foreign plugins, ConfDir that of the runtime's
	// configurations, KubeletRoot kubelet's.
	CNIBinDirs           []string
	ConfDir, KubeletRoot string
	VFs                  deviceplugin.Flags
	// HostPorts are those that pods may ask for by an annotation.
	HostPorts annotation.NodePorts
	// PodNetworkNamespaces are those whose labelled ConfigMaps declare settings of pods;
	// of Fairlead's own they are about pods of all namespaces.
	PodNetworkNamespaces []string
	// SelfFence: what pods have leased is taken off the network when the node cannot renew its
	// heartbeat in the cluster.
	SelfFence bool
	// HTTP is an address for metrics and probes, "" for none; PodMetrics adds counters of
	// each pod's interfaces.
	HTTP       string
	PodMetrics bool

	// Kubeconfig leads to the API server; Bootstrap has credentials for the request
	// of a certificate instead, kept in CertDir ("" is pki in StateDir) and asked to
	// be valid for CertDuration. InCluster tells that the agent runs in a pod with a
	// service account.
	Kubeconfig, Bootstrap, CertDir string
	CertDuration                   time.Duration
	InCluster                      bool

	// CNIConf says who writes the runtime's configuration: ConfOff nobody, ConfAuto
	// the agent, which lies over CNIMaster; else it is a file that is installed.
	CNIConf, CNIMaster string

	// ConfigFile is a file in the form of Multus' daemon-config.json, "" for none,
	// and File what it says.
	ConfigFile string
	File       cniconf.Daemon

	Build Build
	Shell hint.Shell // how those who read its hints call `fairlead`
	Part  bool       // of a process that tells systemd itself how it is
	// Police is nil where this kernel enforces rates from pods, and Netem where it can
	// delay and lose packets.
	Police, Netem func() error
	Log           *slog.Logger
}

// Build is what the program knows of itself.
type Build struct {
	Version string
	Commit  string // "" when not known
}

// complete fills in what follows from the rest.
func (c *Config) complete() error {
	if c.CertDir == "" {
		c.CertDir = filepath.Join(c.StateDir, "pki")
	}
	if strings.HasPrefix(c.OVSDB, "/") { // as the reference's --ovs-socket
		c.OVSDB = "unix:" + c.OVSDB
	}
	if c.Objects == "" {
		return nil
	}
	abs, err := filepath.Abs(c.Objects) // status names it to people in other folders
	if err != nil {
		return fmt.Errorf("--objects: %w", err)
	}
	c.Objects = abs
	return nil
}

// NetworkInFile tells that ConfigFile itself says what the default network is.
func (c *Config) NetworkInFile() bool {
	over := c.File.Over(core.Conf{})
	return over.ClusterNetwork != "" || len(over.Delegates) > 0
}

// foreign tells that the default network is somebody else's.
func (c *Config) foreign() bool { return c.CNIMaster != "" || c.NetworkInFile() }

// Alone tells that a folder of this machine says what OVN is to carry.
func (c *Config) Alone() bool { return c.OVN && c.Objects != "" && !c.clustered() }

// clustered tells that the configuration, or where the agent runs, names an API
// server.
func (c *Config) clustered() bool {
	return c.Kubeconfig != "" || c.Bootstrap != "" || (c.Objects == "" && c.InCluster)
}
