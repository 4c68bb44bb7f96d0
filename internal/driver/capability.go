package driver

import (
	"context"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/plan"
)

// A capability is an interface that a Driver may have beside its own methods. Who
// needs one asks the Set, and passes over drivers without it; so nobody above
// knows an implementation. The suite of drivertest proves each for every driver.

// Carrier is a Driver of NICs: those of networks whose type names it (core.NICDriver).
// The engine has plan ask it in ADD, for each such NIC.
type Carrier interface {
	Driver
	plan.Carrier
}

// Starter is a Driver whose last wait can run beside the caller's own work. The
// engine asks it in ADD.
type Starter interface {
	Driver
	// Start is Attach without that wait. The Link is final; settled returns
	// once it is known that the interface works, or why it does not.
	Start(ctx context.Context, r Run, s core.Spec) (l core.Link, settled func(context.Context) error, err error)
}

// Prover is a Driver that knows of some Specs beforehand that Attach would refuse
// them. The engine asks it in ADD, before the first Spec of the pod is attached.
type Prover interface {
	Driver
	// Prove tells why Attach of s cannot succeed, and makes nothing. nil promises
	// nothing.
	Prove(ctx context.Context, s core.Spec) error
}

// Insider is a Driver that runs programs for some of its Specs; others run none. The
// engine asks it in ADD: a program's record must be durable before it starts, and
// says of which process it is.
type Insider interface {
	Driver
	// Inside tells that Attach of s starts no process.
	Inside(s core.Spec) bool
}

// Refuser is a Driver whose Detach depends on how Attach failed: what was refused
// need not be undone. The engine asks it in ADD, after a failed Attach.
type Refuser interface {
	Driver
	// Refused is s as it is to be recorded, and to be detached, after its Attach
	// failed with err.
	Refused(s core.Spec, err error) core.Spec
}

// Killer is a Driver that tells a Run's Report of processes. The engine asks it
// when it undoes what an agent that died left half done: nothing may be undone
// beside a program that still works on it.
type Killer interface {
	Driver
	// Kill ends what is left of a process that was reported, by this agent or a
	// former one, with its children. A process that is another's by now is never
	// touched; nothing left to be ended is success.
	Kill(p core.Proc) error
}

// Delegator is the Driver of foreign plugins, which have verbs that belong to no
// attachment. The engine asks it in GC and STATUS.
type Delegator interface {
	Driver
	// GC has the plugin of call free what belongs to none of the live attachments
	// of its network. A plugin without that verb does nothing.
	GC(ctx context.Context, r Run, call core.Exec, live []core.Key) error
	// Status is nil when the plugin of call can serve ADD.
	Status(ctx context.Context, r Run, call core.Exec) error
}

// Lister is the Driver of foreign plugins as far as it knows what their IPAM plugins
// keep on the node. The server asks it for the addresses of which nobody lives.
type Lister interface {
	Driver
	// Kept are the addresses that are kept for the networks of these calls, of which
	// it reads Network and Conf; failed is what could not be read.
	Kept(calls []core.Exec) (kept []Kept, failed []error)
}

// Dependent is a Driver that works on something of the node which may be away, as a
// switch. A driver that is no Dependent works always.
type Dependent interface {
	Driver
	// Ready is nil when Specs can be attached, else it says why not. It may wait
	// for a while after the agent's start. The engine asks it in ADD.
	Ready(ctx context.Context) error
	// Running is nil when Specs can be attached now, and whoever carries them
	// answers. It asks, which takes up to two seconds if there is no answer. The
	// engine asks it in STATUS.
	Running(ctx context.Context) error
	// Connected is nil when what was attached can be changed and removed, be it
	// that nothing works yet. The engine asks it before it undoes or sweeps.
	Connected() error
}

// Sweeper is a Driver whose work on the node can be compared with the journal. The
// engine asks it at the start, after what a Dependent needs came back, and in GC.
type Sweeper interface {
	Driver
	// Resync makes again what was lost of these Specs, which are all of the
	// driver's that are attached. Attachments made or removed meanwhile are left
	// as they are.
	Resync(ctx context.Context, specs []core.Spec) error
	// Strays are what carries our mark and belongs to none of keep, under the same
	// condition: the driver's Specs of all records, also of those that come or go.
	// An error comes with those that could be told.
	Strays(ctx context.Context, keep []core.Spec) ([]Stray, error)
}

// Guesser is a Driver whose interfaces follow from their key. The engine asks it in
// a DEL of a container that the journal has not.
type Guesser interface {
	Driver
	// Guess is the Spec of an interface of that key in ns, as far as Detach, and
	// Left of a Finder, need it. There may be none such.
	Guess(key core.Key, ns core.Netns) core.Spec
}

// Recoverer is a Driver that can tell from the node alone what is attached. The
// engine asks it when the journal was lost, until it answers.
type Recoverer interface {
	Driver
	// Recover gives the Specs of what is attached, as far as it can be read back.
	// A Spec whose namespace cannot be proved to be the pod's has none, which is
	// enough to detach it.
	Recover() ([]core.Spec, error)
}

// Restorer is a Driver that keeps one whole of all its Specs on the node, as a table
// of the packet filter. The engine asks it once, at the start, before it looks at
// any attachment.
type Restorer interface {
	Driver
	// Restore makes the whole of exactly these Specs, those of older records first.
	// Of two that contradict each other the later one counts.
	Restore(ctx context.Context, specs []core.Spec) error
}

// Finder is a Driver that can tell by the kernel alone whether anything is left
// to be detached. The engine asks it in a DEL of what a lost journal has known.
type Finder interface {
	Driver
	// Left tells that a device of the Spec is there. A port without a device
	// forwards nothing and does not count.
	Left(s core.Spec) bool
}

// Changer is a Driver of foreign plugins, some of which can change what a running pod
// has. The agent's upkeep asks it when what is declared of the pod has changed.
type Changer interface {
	Driver
	// Change makes of what Attach made of Exec.Former what Exec.Conf says. It may be called
	// again at any time. After an error with a reason (core.ReasonOf) Exec.Former is in force
	// again: the plugin cannot, or the card refuses. After others nothing is known.
	Change(ctx context.Context, r Run, s core.Spec) error
}

// Repairer is a Driver that can put right what stands outside of a pod while
// the pod runs, also after the Spec was changed in what stands there. The agent's
// upkeep asks it, by events, by the clock and when a pod's rates change.
type Repairer interface {
	Driver
	// Repair makes it as the Spec says and leaves what is so already as it is.
	// found joins a core.Difference for each thing that was not, nil where
	// nothing was to be done.
	Repair(ctx context.Context, r Run, s core.Spec) (found, err error)
}
