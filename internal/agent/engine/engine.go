// Package engine is the heart of the agent: it turns one request of a runtime
// into resolved wants, leases, specs, a journal entry and driver calls, in an
// order that a crash at any instant cannot break. It knows no wire format, no
// flag and no metric library; sources, drivers and observers are given to it.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fairlead/fairlead/internal/agent/callback"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/journal"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/lib/filewatch"
	"github.com/fairlead/fairlead/internal/lib/keylock"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/cniconf"
	"github.com/fairlead/fairlead/internal/network/ipam"
	"github.com/fairlead/fairlead/internal/network/plan"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Deadlines of one operation. ADD's leaves room below the shortest runtime
// time-out; a roll-back has its own (undo.go), because the ADD's context may be
// over.
const (
	addDeadline    = 50 * time.Second
	delDeadline    = 50 * time.Second // and GC's
	statusDeadline = 20 * time.Second // runtimes ask often
)

// GatewayChecker proves a subnet's node-side gateway (CHECK).
type GatewayChecker interface {
	Check(ctx context.Context, s core.Subnet) error
}

// Leases says who has what interfaces claim for themselves, on this node and beyond.
type Leases interface {
	// Bind makes the Specs' interfaces the holders of all that they claim, or of nothing. It
	// may be called again. AddressHeld (11), MACInUse (103): another has it.
	Bind(ctx context.Context, specs []core.Spec) error
	// Free gives back what Specs claim, whose interfaces are gone or were never made; what
	// they do not have is left alone. It waits for nobody.
	Free(specs []core.Spec)
	// Unusable notes why an interface that is its holder cannot have what it claims, before
	// that is given back: a core.WireConflict. Other errors say nothing about it.
	Unusable(s core.Spec, err error)
}

// Fence takes what interfaces have leased off the network while others may take this node for
// dead.
type Fence interface {
	// Fenced is why nothing that is leased may be on the network now (11), nil where it may.
	Fenced() error
	// Within is ctx for as long as what Specs claim may be on the network. end is called once
	// their record is durable, and is why they are to be unmade.
	Within(ctx context.Context, specs []core.Spec) (within context.Context, end func() error)
	// Down is why an interface is off the network (11), nil where it is not.
	Down(k core.Key) error
}

// Config is what an Engine is made of; all fields but Devices, Declared, Leases, Fence, Gateway,
// Socket, Notices and Conditions are required.
type Config struct {
	Journal    *journal.Journal
	IPAM       *ipam.Allocator
	Source     resolve.Source
	Devices    resolve.Devices // nil: nobody gives pods devices
	PFOf       func(device string) (string, error)
	Declared   resolve.Declarer  // nil: nothing is declared of pods by their names
	Leases     Leases            // nil: nothing is claimed
	Fence      Fence             // nil: nothing is fenced
	NodePorts  resolve.NodePorts // which of the node's ports annotations may ask for; none: all
	OVN        bool              // a controller gives the addresses
	Alone      bool              // without a cluster: but for those of interfaces that plugins make
	Drivers    driver.Set
	Gateway    GatewayChecker
	Node       plan.Node      // without Carriers, which are among the Drivers
	MTU        func() int     // that of Node by now; nil: it stays
	ConfDir    string         // NADs without spec.config look here, unless the conf names another
	Daemon     cniconf.Daemon // the agent's file, which says more than any conf
	BootID     string
	Socket     string // of this agent, for foreign plugins that call back; may be empty
	Observer   core.Observer
	Notices    core.Notices                              // nil: nobody wants to know
	Conditions core.Conditions                           // nil: likewise
	Tune       func(context.Context, *core.Record) error // a running pod's rates follow its annotations; nil: they do not
	Log        *slog.Logger
}

// Engine serves Add, Del, Check, GC and Status; all methods may be called at
// the same time.
type Engine struct {
	Config
	queue    *keylock.Queue // by container
	inflight atomic.Int64
	retry    chan struct{} // wakes the background worker
	// pauses are of records that it could not finish; of a container that has
	// none the interface is empty.
	pauses *retry.Pauses[core.Key]
	hosts  callback.Hosts // foreign plugins that run
	// plugging is held, once, by each hot plug, which no runtime knows of, and whole by the GC of
	// a network, whose plugin frees what it is not told of.
	plugging *semaphore.Weighted
	// resolving are the pods whose ADD is under way.
	resolving sync.Map          // adding -> nothing
	awaited   filewatch.Awaited // files that ADDs wait for
	remains   journal.Remains
	// timelines are those of this process's ADDs with their last steps, which the record lacks.
	timelines sync.Map // core.Key -> []core.Timing
}

// New makes an engine. Call Recover once before the first request.
func New(c Config) *Engine {
	if c.Notices == nil {
		c.Notices = unheard{}
	}
	if c.Leases == nil {
		c.Leases = unclaimed{}
	}
	if c.Fence == nil {
		c.Fence = unfenced{}
	}
	return &Engine{Config: c, queue: keylock.New(), plugging: semaphore.NewWeighted(allPlugs), retry: make(chan struct{}, 1), pauses: retry.New[core.Key](auditEvery, longestPause)}
}

// unheard is a Notices that nobody listens to.
type unheard struct{}

func (unheard) Attached(core.Record) {}
func (unheard) Detached(core.Record) {}
func (unheard) Failed(core.Attempt)  {}

// unclaimed is a Leases for which all is everybody's.
type unclaimed struct{}

func (unclaimed) Bind(context.Context, []core.Spec) error { return nil }
func (unclaimed) Free([]core.Spec)                        {}
func (unclaimed) Unusable(core.Spec, error)               {}

// unfenced is a Fence that never falls.
type unfenced struct{}

func (unfenced) Fenced() error       { return nil }
func (unfenced) Down(core.Key) error { return nil }
func (unfenced) Within(ctx context.Context, _ []core.Spec) (context.Context, func() error) {
	return ctx, func() error { return nil }
}

// InFlight is the number of operations that are running or waiting.
func (e *Engine) InFlight() int { return int(e.inflight.Load()) }

// Timeline is that of the ADD which made rec.
func (e *Engine) Timeline(rec core.Record) []core.Timing {
	if t, ok := e.timelines.Load(rec.Key); ok {
		return t.([]core.Timing)
	}
	return rec.Timeline
}

// Kick makes the background worker try all unfinished work at once, however often
// it has failed: after OVSDB came back, for example.
func (e *Engine) Kick() {
	e.pauses.Reset()
	e.wake()
}

// wake makes the background worker look at once for work that is due.
func (e *Engine) wake() {
	select {
	case e.retry <- struct{}{}:
	default:
	}
}

// driver is the one that a Spec names. The journal may hold Specs of a newer
// agent, with drivers that this one has not.
func (e *Engine) driver(s core.Spec) (driver.Driver, error) {
	if d, ok := e.Drivers[s.Driver]; ok {
		return d, nil
	}
	if s.Kind() == core.KindLent {
		return lentDriver{}, nil
	}
	return nil, core.Errorf(core.CodeConfig, "no driver %q for %s", s.Driver, s.Key)
}

// mainDriver names the driver of a record's first interface, for metrics.
func mainDriver(rec core.Record) string {
	if len(rec.Specs) == 0 {
		return "none"
	}
	return rec.Specs[0].Driver
}

var errHostNetns = errors.New("the host's own network namespace")

// identify opens the pod's namespace and refuses the host's own.
func (e *Engine) identify(path string) (core.Netns, error) {
	ns, err := netns.Open(path)
	if err != nil {
		return core.Netns{}, core.WithCode(core.CodeNetns, "CNI_NETNS", err)
	}
	defer func() { _ = ns.Close() }()
	if netns.IsHost(ns) {
		return core.Netns{}, core.Errorf(core.CodeNetns, "CNI_NETNS %q is %w", path, errHostNetns)
	}
	cookie, err := ns.Cookie()
	if err != nil {
		return core.Netns{}, core.WithCode(core.CodeNetns, "CNI_NETNS "+path, err)
	}
	return core.Netns{Path: path, Cookie: cookie, BootID: e.BootID}, nil
}

// gone tells that the namespace of a record is proven not to be there any more:
// its path is, or names another one, or it is of an earlier boot. The error says
// that this could not be looked at (too many open files, for example), which
// proves nothing.
func gone(n core.Netns) (bool, error) {
	ns, err := netns.Verify(n)
	if errors.Is(err, core.ErrNetnsGone) {
		return true, nil
	}
	if err != nil {
		return false, core.WithCode(core.CodeIO, "whether its namespace is gone cannot be told", err)
	}
	_ = ns.Close()
	return false, nil
}

// Lock waits for the container's turn; call the returned function to give it
// back. A DEL that arrives during an ADD has it give way.
func (e *Engine) Lock(ctx context.Context, id string) (func(), error) {
	unlock, err := e.queue.Lock(ctx, id)
	return unlock, core.WithCode(core.CodeTryAgain, "container "+id, err)
}

// TryLock is Lock that does not wait.
func (e *Engine) TryLock(id string) (func(), bool) { return e.queue.TryLock(id) }

var errSuperseded = errors.New("a DEL of the same container arrived")
