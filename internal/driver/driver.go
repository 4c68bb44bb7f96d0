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
// again at any time, also after a crash half-way through. The Run is the
// operation's and differs from call to call.
type Driver interface {
	// Attach makes what the Spec says and returns what is really there. A
	// second Attach of the same Spec finds its own work and completes it.
	Attach(ctx context.Context, r Run, s core.Spec) (core.Link, error)
	// Check proves that what Attach made is still so: an error that wraps
	// core.ErrDrift names every difference.
	Check(ctx context.Context, r Run, s core.Spec, l core.Link) error
	// Detach removes it. Nothing left to remove is success; a namespace that
	// is gone, or that is not the one of the Spec any more, is never touched.
	Detach(ctx context.Context, r Run, s core.Spec) error
}

// Kinds of a Stray.
const (
	StrayPort = "port"
	StrayLink = "link"
	// StrayFlows are flows of a switch; their name is the cookie.
	StrayFlows = "flows"
)

// Stray is a port or a link that carries our mark and belongs to no attachment.
type Stray struct {
	Kind string
	Name string   // on the node
	Key  core.Key // of the attachment that made it, as its mark says; zero where it says nothing
	// Remove removes it, unless an attachment has come to it meanwhile.
	Remove func(context.Context) error
}
