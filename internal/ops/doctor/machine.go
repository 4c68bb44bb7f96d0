package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// machine is what the checks look at: everything that more than one of them
// needs is read once, with its error, so that each can say its own.
type machine struct {
	cfg Config

	ns    *netns.Handle // throw-away; nil with nsErr
	nsErr error

	place    place // of the agent
	agentUp  bool
	agentErr error
	status   agent.Status
	ovs      ovsFacts
	ovsErr   error
	plugins  *explain.Plugins
	// runtimes are those that answer; runtimesErr is why others do not whose
	// sockets are there.
	runtimes    []runtimes.Live
	runtimesErr error
	datapaths   datapaths
}

// errNoAgent: the caller gave no client.
var errNoAgent = errors.New("no agent to ask")

// examine reads the shared facts. It fails at nothing: a fact that cannot be
// read is a finding of the checks that need it.
func examine(ctx context.Context, cfg Config) *machine {
	m := &machine{cfg: cfg}
	m.plugins = explain.NewPlugins(cfg.BinDirs, m.askPlugin)
	m.ns, m.nsErr = throwAway()
	m.datapaths = kernelDatapaths()

	ctx, cancel := context.WithTimeout(ctx, cfg.patience())
	defer cancel()
	m.ovs, m.ovsErr = readOVS(ctx, cfg.OVSDB, cfg.Bridge)
	m.runtimes, m.runtimesErr = runtimes.Running(ctx, cfg.Sockets)
	m.place = placeOf(ctx, cfg.Socket)
	m.agentErr = errNoAgent
	if cfg.Agent != nil {
		m.status, m.agentErr = cfg.Agent.Status(ctx)
	}
	m.agentUp = m.agentErr == nil
	return m
}

func (m *machine) close() {
	if m.ns != nil {
		_ = m.ns.Close() // the last reference: the kernel removes what is inside
	}
}

// throwAway makes a network namespace that nothing but the handle holds.
func throwAway() (*netns.Handle, error) {
	type made struct {
		ns  *netns.Handle
		err error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Current()
		if err != nil {
			result <- made{err: err}
			return
		}
		defer func() { _ = home.Close() }()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- made{err: fmt.Errorf("make a network namespace: %w", err)}
			return
		}
		ns, err := netns.Current()
		// Back home before the thread is used again; one that cannot return
		// stays locked and ends with this goroutine.
		if back := unix.Setns(home.Fd(), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		result <- made{ns, err}
	}()
	r := <-result
	return r.ns, r.err
}

// inside runs a command in the throw-away namespace.
func (m *machine) inside(ctx context.Context, c Command) (out []byte, err error) {
	if m.nsErr != nil {
		return nil, m.nsErr
	}
	err = m.ns.Do(func() error {
		out, err = m.cfg.Run(ctx, c)
		return err
	})
	return out, err
}

// unavailable tells that an error means "nobody answers".
func unavailable(err error) bool { return errors.Is(err, core.ErrUnavailable) }
