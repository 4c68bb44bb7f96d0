package podnet

import (
	"context"
	"net/netip"
)

// Engine is the network that the container engine gives by itself: nothing is
// left to do. Addresses are the engine's to tell.
type Engine struct{}

// Prepare has nothing to tell.
func (Engine) Prepare(context.Context) (string, error) { return "", nil }

// SetUp has nothing to do.
func (Engine) SetUp(context.Context, Pod, string) ([]netip.Addr, error) { return nil, nil }

// TearDown has nothing to do.
func (Engine) TearDown(context.Context, Pod, string) error { return nil }

// Status is always good: an engine without its network refuses the sandbox.
func (Engine) Status(context.Context) error { return nil }

// SetPodCIDR changes nothing: the engine has its own subnet.
func (Engine) SetPodCIDR([]string) {}
