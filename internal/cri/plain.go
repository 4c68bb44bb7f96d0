package cri

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	engine "github.com/moby/moby/api/types/container"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EngineLogs leaves containers' output to the engine's own driver.
type EngineLogs struct{}

// Config is the driver that the engine can read back.
func (EngineLogs) Config(string) engine.LogConfig { return engine.LogConfig{Type: "json-file"} }

// Follow has nothing to do.
func (EngineLogs) Follow(context.Context, string) error { return nil }

// Settle has nothing to do.
func (EngineLogs) Settle(context.Context, string) {}

// Forget has nothing to do.
func (EngineLogs) Forget(string) {}

// Reopen is not there: the engine's files are its own.
func (EngineLogs) Reopen(context.Context, string) error {
	return fmt.Errorf("%w: the engine rotates its own logs", errdefs.ErrNotImplemented)
}

// NoStreams refuses streams.
type NoStreams struct{}

// Exec is refused.
func (NoStreams) Exec(context.Context, *cri.ExecRequest) (*cri.ExecResponse, error) {
	return nil, errdefs.ErrNotImplemented
}

// Attach is refused.
func (NoStreams) Attach(context.Context, *cri.AttachRequest) (*cri.AttachResponse, error) {
	return nil, errdefs.ErrNotImplemented
}

// PortForward is refused.
func (NoStreams) PortForward(context.Context, *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return nil, errdefs.ErrNotImplemented
}
