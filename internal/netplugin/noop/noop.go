// Package noop is the network plugin that leaves pods to the engine's own
// network. All that it does is to let the node's packet filter see what the
// engine's bridge forwards, as services need it.
package noop

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/internal/kernel/sysfs"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// filters are the sysctls of br_netfilter.
var filters = []string{"net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"}

// Plugin is a netplugin.Plugin.
type Plugin struct {
	load func(ctx context.Context, module string) error
	log  *slog.Logger
}

var _ netplugin.Plugin = (*Plugin)(nil)

// New makes the plugin. load loads a kernel module; nil: nobody does.
func New(load func(ctx context.Context, module string) error, log *slog.Logger) *Plugin {
	return &Plugin{load, log}
}

// Name implements netplugin.Plugin.
func (*Plugin) Name() string { return netplugin.NoOp }

// Init never fails: a node without the module has pods too. A kernel without IPv6
// has one of the sysctls only.
func (p *Plugin) Init(ctx context.Context, _ netplugin.Host, _ netplugin.Settings) error {
	if p.load != nil {
		if err := p.load(ctx, "br_netfilter"); err != nil {
			p.log.Info("br_netfilter not loaded", "err", err)
		}
	}
	for _, f := range filters {
		v, err := sysfs.ReadSysctl(f)
		if err == nil && v != "1" {
			err = sysfs.WriteSysctl(f, "1")
		}
		if err != nil && !sysfs.SysctlMissing(err) {
			p.log.Warn("bridged packets may pass the packet filter by", "err", err)
		}
	}
	return nil
}

// Event has nothing to change: the engine has its own subnet.
func (*Plugin) Event(context.Context, string, map[string]string) error { return nil }

// Capabilities are none.
func (*Plugin) Capabilities() map[netplugin.Capability]bool { return nil }

// SetUpPod has nothing to do.
func (*Plugin) SetUpPod(context.Context, netplugin.Pod) error { return nil }

// TearDownPod has nothing to do.
func (*Plugin) TearDownPod(context.Context, netplugin.Pod) error { return nil }

// GetPodNetworkStatus leaves it to the engine.
func (*Plugin) GetPodNetworkStatus(context.Context, netplugin.Pod) (*netplugin.PodNetworkStatus, error) {
	return nil, nil
}

// Status is always good: an engine without its network refuses the sandbox.
func (*Plugin) Status(context.Context) error { return nil }
