package driver

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
)

// Run is what an operation gives to the drivers that work for it. The zero Run is
// that of an operation which nobody times and which keeps no record.
type Run struct {
	Time   Timer
	Caller Caller
	// Report, unless it is nil, hears of every plugin's process before the plugin
	// gets its configuration, of a plugin that needs no process with the zero Proc.
	// An error of Report ends the plugin, which has done nothing.
	Report func(context.Context, core.Proc) error
}

// Caller is how a plugin that has us as its IPAM plugin calls back; the zero
// Caller for one that cannot.
type Caller struct {
	Token  string // names the operation that runs it
	Socket string // of this agent
}

// Timer is how a driver reports its inner steps to the operation's timeline. A
// nil Timer reports to nobody.
type Timer func(step string) (done func(err error))

// Step starts a named step; call the result with the step's error.
func (t Timer) Step(name string) func(err error) {
	if t == nil {
		return func(error) {}
	}
	return t(name)
}
