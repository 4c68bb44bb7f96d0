// Package up runs a folder of pods on one machine: the agent, the CRI shim and the
// node loop as parts of one process that start and end in order, over a runtime
// that it chooses and proves; what is kept on disk about a folder that is up, its
// log, the table of its pods, and its taking down. It knows no flag, and what a
// part does is the part's own.
package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Part is one of the parts of a process.
type Part struct {
	Name string
	// Run works until ctx ends. Any other end is a failure, and Run is called
	// again after a while.
	Run func(ctx context.Context) error
	// Ready is nil once others may build on the part.
	Ready func(ctx context.Context) error
}

// Waits of a Group.
const (
	lookAgain    = 50 * time.Millisecond // between two questions whether a part is ready
	tellEvery    = 5 * time.Second       // that a part is not ready yet
	firstRestart = time.Second
	mostRestart  = 30 * time.Second
	steady       = time.Minute // a part that ran so long fails for the first time
)

// Group runs parts, each upon those before it.
type Group struct {
	Parts []Part
	Log   *slog.Logger
	// Ready is called when all parts are.
	Ready func()

	// starting lets one part start at a time: they share the process's umask.
	starting sync.Mutex
}

// Run starts the parts in order, each once the one before is ready, and keeps
// them until ctx ends; then they end in the reverse order. A part that fails
// before it was ready ends the group with its error; later ones are restarted.
func (g *Group) Run(ctx context.Context) error {
	var started []*keeper
	defer func() {
		for _, k := range slices.Backward(started) {
			k.cancel()
			<-k.done
		}
	}()
	for _, p := range g.Parts {
		k := g.start(ctx, p)
		started = append(started, k)
		select {
		case <-ctx.Done():
			return nil
		case <-k.ready:
			g.Log.Info("part is ready", "name", p.Name)
		case <-k.done:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", p.Name, k.err)
		}
	}
	if g.Ready != nil {
		g.Ready()
	}
	<-ctx.Done()
	return nil
}

// keeper is a part that runs. done is closed when it does no more, with err.
type keeper struct {
	Part
	cancel context.CancelFunc
	ready  chan struct{} // closed when the part has been ready
	done   chan struct{}
	err    error
}

func (g *Group) start(ctx context.Context, p Part) *keeper {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k := &keeper{Part: p, cancel: cancel, ready: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.err = g.keep(ctx, k)
	}()
	return k
}

// keep runs a part again and again, once it has been ready.
func (g *Group) keep(ctx context.Context, k *keeper) error {
	was, wait := false, firstRestart
	for {
		began := time.Now()
		err := g.once(ctx, k.Part, func() {
			if !was {
				was = true
				close(k.ready)
			}
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // asked to end; how it does is in the log
		}
		if err == nil {
			err = errEnded
		}
		if !was {
			return err
		}
		if time.Since(began) > steady {
			wait = firstRestart
		}
		g.Log.Error("part failed and is started again", "name", k.Name, "after", wait.String(), "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, mostRestart)
	}
}

var errEnded = errors.New("it ended by itself")

// once runs a part to its end and tells when it is ready.
func (g *Group) once(ctx context.Context, p Part, ready func()) error {
	done := make(chan error, 1)
	g.starting.Lock()
	go func() { done <- p.Run(ctx) }()
	err, ended := g.awaitReady(ctx, p, done)
	g.starting.Unlock()
	if ended {
		return err
	}
	if ctx.Err() == nil {
		ready()
	}
	return <-done
}

// awaitReady returns when the part is ready, when it has ended, or with ctx.
func (g *Group) awaitReady(ctx context.Context, p Part, done <-chan error) (err error, ended bool) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	tell := time.NewTicker(tellEvery)
	defer tell.Stop()
	var why error
	for {
		select {
		case err := <-done:
			return err, true
		case <-ctx.Done():
			return nil, false
		case <-tell.C:
			g.Log.Warn("part is not ready yet", "name", p.Name, "err", why)
		case <-tick.C:
			if why = p.Ready(ctx); why == nil {
				return nil, false
			}
		}
	}
}
