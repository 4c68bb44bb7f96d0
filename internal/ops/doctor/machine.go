package doctor

import (
	"context"
	"errors"
	"sync"

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
	outward  agent.Outward
	// outwardErr is why the agent did not tell it; nil where none runs.
	outwardErr error
	ovs        ovsFacts
	ovsErr     error
	plugins    *explain.Plugins
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
	m.ns, m.nsErr = netns.New()
	m.datapaths = kernelDatapaths()

	// Each has its own time, and nobody waits for another: one that is silent does not
	// make the others look so.
	var wg sync.WaitGroup
	for _, read := range []func(context.Context){
		func(ctx context.Context) { m.ovs, m.ovsErr = readOVS(ctx, cfg.OVSDB, cfg.Bridge) },
		func(ctx context.Context) { m.runtimes, m.runtimesErr = runtimes.Running(ctx, cfg.Sockets) },
		func(ctx context.Context) { m.place = placeOf(ctx, cfg.Socket) },
		m.askAgent,
	} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, cfg.patience())
			defer cancel()
			read(ctx)
		})
	}
	wg.Wait()
	return m
}

// askAgent asks the agent how it is.
func (m *machine) askAgent(ctx context.Context) {
	if m.agentErr = errNoAgent; m.cfg.Agent != nil {
		m.status, m.agentErr = m.cfg.Agent.Status(ctx)
	}
	if m.agentUp = m.agentErr == nil; m.agentUp {
		m.outward, m.outwardErr = m.cfg.Agent.Outward(ctx)
	}
}

func (m *machine) close() {
	if m.ns != nil {
		_ = m.ns.Close() // the last reference: the kernel removes what is inside
	}
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
