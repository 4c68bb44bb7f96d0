package nodeagent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/device"
	ovsdriver "github.com/fairlead/fairlead/internal/driver/ovs"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// Part is an agent that is one of several parts of its process. Its fields are
// the flags of `fairlead agent`; the API server is never asked.
type Part struct {
	Socket, StateDir, Objects string
	Folder                    *folder.Folder // of Objects, if other parts read it too
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
		part: true, build: p.Build, socket: p.Socket, stateDir: p.StateDir, objects: p.Objects, folder: p.Folder,
		ovsdb: p.OVSDB, bridge: p.Bridge, nodeName: p.NodeName, iface: p.Iface, http: p.HTTP,
		confDir: p.ConfDir, cniBinDirs: p.CNIBinDirs, kubeletRoot: device.DefaultRoot,
		clusterOptions: clusterOptions{certDuration: 24 * time.Hour},
		confOptions:    confOptions{cniConf: confOff},
		portOptions:    defaultPorts(),
	}
	if p.CNIConf != "" {
		o.cniConf = p.CNIConf
	}
	return runAgent(ctx, o, p.Log)
}

// Clear removes the node's side of every Subnet: gateways, masquerade, and what
// keeps pods from the node's own stack. Nobody may run an agent meanwhile, and no
// pod has a port any more. The bridge stays.
func (p Part) Clear(ctx context.Context) error {
	if err := nft.NewGuard(nil, guardTable, ovsdriver.GroupLive).Remove(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, gatewayLimit)
	connected := make(chan struct{}, 1)
	switcher := ovs.New(ovs.Config{Endpoint: p.OVSDB, Bridge: p.Bridge, Log: p.Log, OnReset: func() {
		select {
		case connected <- struct{}{}:
		default:
		}
	}})
	var running sync.WaitGroup
	running.Go(func() { switcher.Run(ctx) })
	defer running.Wait()
	defer stop()
	select {
	case <-connected:
	case <-ctx.Done():
		return fmt.Errorf("remove gateways: %w", switcher.Connected())
	}
	err := standalone.New(standalone.Config{Ports: switcher, Node: p.NodeName}).Set(ctx, nil)
	if err == nil {
		err = switcher.Settle(ctx) // only then the devices are gone
	}
	if err != nil {
		return fmt.Errorf("remove gateways: %w", err)
	}
	return nil
}

// Defaults of flags that others have too.
const (
	DefaultOVSDB    = "unix:/run/openvswitch/db.sock"
	DefaultBridge   = "br-int"
	DefaultStateDir = "/var/lib/fairlead"
)
