// Package driver defines what a NIC kind must be able to do. Implementations
// live in folders below; the conformance suite that each must pass is
// driver/drivertest. The package knows no kernel and no implementation.
package driver

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
)

// Driver makes, proves and removes one interface (or one step of one). Every
// method takes the same Spec, reads only it and the system, and may be called
// again at any time, also after a crash half-way through.
type Driver interface {
	// Attach makes what the Spec says and returns what is really there. A
	// second Attach of the same Spec finds its own work and completes it.
	Attach(ctx context.Context, s core.Spec) (core.Link, error)
	// Check proves that what Attach made is still so: an error that wraps
	// core.ErrDrift names every difference.
	Check(ctx context.Context, s core.Spec, l core.Link) error
	// Detach removes it. Nothing left to remove is success; a namespace that
	// is gone, or that is not the one of the Spec any more, is never touched.
	Detach(ctx context.Context, s core.Spec) error
}

// Starter is a Driver whose last wait can run beside the caller's own work.
type Starter interface {
	Driver
	// Start is Attach without that wait. The Link is final; settled returns
	// once it is known that the interface works, or why it does not.
	Start(ctx context.Context, s core.Spec) (l core.Link, settled func(context.Context) error, err error)
}

// Finder is a Driver that can tell by the kernel alone whether anything is left
// to be detached.
type Finder interface {
	Driver
	// Left tells that a device of the Spec is there. A port without a device
	// forwards nothing and does not count.
	Left(s core.Spec) bool
}

// Repairer is a Driver that can put right what stands outside of a pod while
// the pod runs, also after the Spec was changed in what stands there.
type Repairer interface {
	Driver
	// Repair makes it as the Spec says and leaves what is so already as it is.
	// found joins a core.Difference for each thing that was not, nil where
	// nothing was to be done.
	Repair(ctx context.Context, s core.Spec) (found, err error)
}

// Kinds of a Stray.
const (
	StrayPort = "port"
	StrayLink = "link"
)

// Stray is a port or a link that carries our mark and belongs to no attachment.
type Stray struct {
	Kind string
	Name string   // on the node
	Key  core.Key // of the attachment that made it, as its mark says; zero where it says nothing
	// Remove removes it, unless an attachment has come to it meanwhile.
	Remove func(context.Context) error
}

// Set maps a Spec's Driver name to its implementation.
type Set map[string]Driver

// Timer is how a driver reports its inner steps to the operation's timeline.
type Timer func(step string) (done func(err error))

type timerKey struct{}

// WithTimer puts t where Time finds it.
func WithTimer(ctx context.Context, t Timer) context.Context {
	return context.WithValue(ctx, timerKey{}, t)
}

// Time starts a named step of the operation in ctx; call the result with the
// step's error. Without a Timer it does nothing.
func Time(ctx context.Context, step string) func(err error) {
	if t, ok := ctx.Value(timerKey{}).(Timer); ok {
		return t(step)
	}
	return func(error) {}
}
