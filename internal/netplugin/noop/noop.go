// Package noop is the network plugin that leaves pods to the engine's own
// network. All that it does is to let the node's packet filter see what the
// engine's bridge forwards, as services need it.
package noop

import (
	"context"

	"github.com/fairlead/fairlead/internal/netplugin"
	"github.com/fairlead/fairlead/internal/netplugin/brfilter"
)

// Plugin is a netplugin.Plugin.
type Plugin struct{ filter brfilter.Filter }

var _ netplugin.Plugin = (*Plugin)(nil)

// New makes the plugin.
func New(f brfilter.Filter) *Plugin { return &Plugin{f} }

// Name implements netplugin.Plugin.
func (*Plugin) Name() string { return netplugin.NoOp }

// Init implements netplugin.Plugin.
func (p *Plugin) Init(ctx context.Context, _ netplugin.Host, _ netplugin.Settings) error {
	p.filter.Enable(ctx)
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
