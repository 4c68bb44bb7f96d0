package nodeagent

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/device"
)

// Part is an agent that is one of several parts of its process. Its fields are
// the flags of `fairlead agent`; the API server is never asked.
type Part struct {
	Socket, StateDir, Objects string
	OVSDB, Bridge             string
	NodeName, Iface, HTTP     string
	ConfDir                   string
	CNIConf                   string // "auto": ConfDir gets the configuration that calls this agent; "" leaves it alone
	CNIBinDirs                []string
	Build                     Build
	Log                       *slog.Logger
}

// Run serves until ctx ends; pods keep their networks. Whoever calls tells
// systemd.
func (p Part) Run(ctx context.Context) error {
	o := agentOptions{
		part: true, build: p.Build, socket: p.Socket, stateDir: p.StateDir, objects: p.Objects,
		ovsdb: p.OVSDB, bridge: p.Bridge, nodeName: p.NodeName, iface: p.Iface, http: p.HTTP,
		confDir: p.ConfDir, cniBinDirs: p.CNIBinDirs, kubeletRoot: device.DefaultRoot,
		clusterOptions: clusterOptions{certDuration: 24 * time.Hour},
		confOptions:    confOptions{cniConf: confOff},
	}
	if p.CNIConf != "" {
		o.cniConf = p.CNIConf
	}
	return runAgent(ctx, o, p.Log)
}

// Defaults of flags that others have too.
const (
	DefaultOVSDB    = "unix:/run/openvswitch/db.sock"
	DefaultBridge   = "br-int"
	DefaultStateDir = "/var/lib/fairlead"
)
