package netplugin

import "context"

// noOp leaves pods to the engine's own network. All that it does is to let the
// node's packet filter see what the engine's bridge forwards, as services need it.
type noOp struct{ filter BridgeFilter }

// NewNoOp makes the plugin that leaves pods to the engine's own network.
func NewNoOp(f BridgeFilter) Plugin { return &noOp{f} }

// Name implements Plugin.
func (*noOp) Name() string { return NoOp }

// Init implements Plugin.
func (p *noOp) Init(ctx context.Context, _ Host, _ Settings) error {
	p.filter.Enable(ctx)
	return nil
}

// Event has nothing to change: the engine has its own subnet.
func (*noOp) Event(context.Context, string, map[string]string) error { return nil }

// Capabilities are none.
func (*noOp) Capabilities() map[Capability]bool { return nil }

// SetUpPod has nothing to do.
func (*noOp) SetUpPod(context.Context, Pod) error { return nil }

// TearDownPod has nothing to do.
func (*noOp) TearDownPod(context.Context, Pod) error { return nil }

// GetPodNetworkStatus leaves it to the engine.
func (*noOp) GetPodNetworkStatus(context.Context, Pod) (*PodNetworkStatus, error) {
	return nil, nil
}

// Status is always good: an engine without its network refuses the sandbox.
func (*noOp) Status(context.Context) error { return nil }
