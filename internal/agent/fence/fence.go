// Package fence takes what pods of this node have leased off the network when the node
// cannot say any more that it lives, before others may take it for dead (spec/sriov.md, Lease
// rules, 4 and 5), and puts it back when the leases are the node's still. It must not know
// how interfaces are made, nor how leases are kept.
package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/recordfile"
	"github.com/fairlead/fairlead/internal/lib/retry"
)

const (
	// limit is how long after a renewal was sent the fence falls: what is left of the
	// heartbeat's duration, and the margin of others, is for taking the links down.
	limit   = 30 * time.Second
	every   = 10 * time.Second // between two renewals
	again   = time.Second      // after one that failed, and between two looks at the clock
	patient = 30 * time.Second // between two questions whether what is down is ours again
)

// Heartbeat is the node's Lease in the cluster (package source/cluster/lease).
type Heartbeat interface {
	// Renew says that this boot of the node lives. arm is called before the first write, from
	// which on others may see it end. former is the boot before, "" for none known.
	Renew(ctx context.Context, former string, arm func() error) error
	// Retire has nobody take the node for dead by its heartbeat any more.
	Retire(ctx context.Context, former string) error
}

// Links are the interfaces of pods. Each method may be called again at any time; an interface
// that is gone is success.
type Links interface {
	// Look is what Down and Up need to find an interface, and to make it what it is now.
	Look(s core.Spec) (Saved, error)
	// Down has the interface send and receive nothing. An error says that it may do so still.
	Down(s core.Spec, before Saved) error
	Up(s core.Spec, before Saved) error
}

// Config is what a Guard is made of.
type Config struct {
	On     bool // else an earlier process's heartbeat is retired
	BootID string
	File   string // keeps what must be known after a restart
	// Now is CLOCK_BOOTTIME, for which sleep counts.
	Now       func() time.Duration
	Heartbeat func() Heartbeat // gives nil while there is no cluster
	Records   func() []core.Record
	Links     Links
	// Reclaim has the cluster say anew that what an interface has leased is its own. theirs
	// says that it is another's, or nobody's.
	Reclaim func(ctx context.Context, s core.Spec) (theirs string, err error)
	// Tell tells a pod what became of it; only when the API server answers.
	Tell func(pod core.Pod, note string)
	Log  *slog.Logger
}

// state is what the file keeps.
type state struct {
	BootID string `json:"bootID"`
	// Armed: others may see this boot's heartbeat, and its end.
	Armed bool `json:"armed"`
	// Renewed is CLOCK_BOOTTIME before the last renewal that succeeded was sent, in ns; When
	// is that for people.
	Renewed time.Duration    `json:"renewed"`
	When    time.Time        `json:"when"`
	Down    map[string]Saved `json:"down,omitempty"` // interfaces that are down, by their keys' text
}

// Guard is the node's fence. Its methods may be called at the same time.
type Guard struct {
	Config
	former string        // the boot before this one, whose heartbeat may be there
	wake   chan struct{} // something that is down may come up
	links  sync.Mutex    // held while interfaces are taken down or up

	mu      sync.Mutex
	state   state
	refused error // why the last renewal failed
	told    bool  // that the fence has fallen
	making  map[*making]struct{}
	theirs  map[string]string // why what is down stays so
	failed  map[string]error  // why what should be down may not be
}

// New makes a Guard of what the file says. One that cannot be read may have been that of an
// armed node: then it is taken as such, and as not renewed since.
func New(c Config) *Guard {
	g := &Guard{Config: c, wake: make(chan struct{}, 1), making: map[*making]struct{}{}, theirs: map[string]string{}, failed: map[string]error{}}
	there, err := recordfile.Load(c.File, &g.state)
	switch {
	case err != nil:
		c.Log.Error("whether others may take this node for dead is not known: what it leases is off the network until its heartbeat is renewed", "err", err)
		g.state = state{BootID: c.BootID, Armed: true}
	case there && g.state.BootID != c.BootID:
		if g.state.Armed {
			g.former = g.state.BootID
		}
		g.state = state{}
	}
	g.state.BootID = c.BootID
	if g.state.Down == nil {
		g.state.Down = map[string]Saved{}
	}
	return g
}

// Run works until ctx ends. Enforce is to be called once before.
func (g *Guard) Run(ctx context.Context) {
	if !g.active() {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for retry.Sleep(ctx, again) {
			g.Enforce()
		}
	})
	wg.Go(func() { g.recover(ctx) })
	for g.active() && retry.Sleep(ctx, g.beat(ctx)) {
	}
	<-ctx.Done()
}

// active tells that there is, or may be, a heartbeat, or something is down.
func (g *Guard) active() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.On || g.state.Armed || g.former != "" || len(g.state.Down) > 0
}

// beat renews the heartbeat, or retires it, and says when to do so again.
func (g *Guard) beat(ctx context.Context) time.Duration {
	h := g.Heartbeat()
	if h == nil {
		return again
	}
	sent, when := g.Now(), time.Now()
	err := error(nil)
	if g.On {
		err = h.Renew(ctx, g.former, func() error { return g.arm(sent, when) })
	} else if g.armed() {
		err = h.Retire(ctx, g.former)
	}
	if ctx.Err() != nil {
		return again
	}
	g.mu.Lock()
	if text := fmt.Sprint(err); err != nil && text != fmt.Sprint(g.refused) {
		g.Log.Warn("the node's heartbeat is not renewed; tried again", "err", err)
	}
	g.refused = err
	if err == nil {
		g.state.Armed, g.former = g.On, ""
		g.state.Renewed, g.state.When = max(g.state.Renewed, sent), when
	}
	g.mu.Unlock()
	if err != nil {
		return again
	}
	_ = g.save() // it says so itself; a restart may then fence too early, never too late
	g.poke()
	return every
}

func (g *Guard) armed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.Armed || g.former != ""
}

// arm notes durably that others may see the heartbeat from now on: an agent that does not
// know would not fence.
func (g *Guard) arm(sent time.Duration, when time.Time) error {
	g.mu.Lock()
	if g.state.Armed {
		g.mu.Unlock()
		return nil
	}
	g.state.Armed, g.state.Renewed, g.state.When = true, sent, when
	g.mu.Unlock()
	if err := g.save(); err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.state.Armed = false
		return err
	}
	return nil
}

// save writes the file, or removes it where there is nothing to know.
func (g *Guard) save() error {
	g.mu.Lock()
	now := g.state
	now.Down = maps.Clone(now.Down)
	g.mu.Unlock()
	var err error
	if now.Armed || len(now.Down) > 0 {
		err = recordfile.Save(g.File, now)
	} else {
		err = recordfile.Remove(g.File)
	}
	if err != nil {
		g.Log.Error("what the fence must know after a restart is not written down", "err", err)
	}
	return err
}

func (g *Guard) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Fenced is why nothing that pods lease may be on the network now: code 11. nil: it may.
func (g *Guard) Fenced() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fenced()
}

func (g *Guard) fenced() error {
	if !g.state.Armed || g.Now()-g.state.Renewed < limit {
		return nil
	}
	return core.Reasoned(core.CodeTryAgain, core.ReasonFenced, "fenced: no renewal of the node's heartbeat since %s: others may take what its pods lease",
		g.state.When.UTC().Format(time.RFC3339))
}

// Down is why an interface is off the network; nil: it is not.
func (g *Guard) Down(k core.Key) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, down := g.state.Down[k.String()]; !down {
		return nil
	}
	if err := g.fenced(); err != nil {
		return err
	}
	why := "it is not known yet whether its leases are this node's still"
	if t := g.theirs[k.String()]; t != "" {
		why = t
	}
	return core.Reasoned(core.CodeTryAgain, core.ReasonFenced, "fenced: interface %s is down: %s", k.IfName, why)
}

// Healthy says what is amiss: that the node is fenced, or cannot say that it lives, be it that
// there is no cluster, or that something is down still.
func (g *Guard) Healthy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.fenced(); err != nil {
		for k, one := range g.failed {
			return fmt.Errorf("%w; interface %s may be on the network still: %w", err, k, one)
		}
		return err
	}
	if g.On && g.Heartbeat() == nil {
		return errors.New("there is no API server, and so no heartbeat: the node does not fence itself")
	}
	if g.refused != nil {
		return fmt.Errorf("the node's heartbeat is not renewed: %w", g.refused)
	}
	if n := len(g.state.Down); n > 0 {
		return fmt.Errorf("interfaces that the fence took down and are not up again: %d", n)
	}
	return nil
}

// Count is whether the fence has fallen, and how many interfaces are down by it.
func (g *Guard) Count() (fenced bool, down int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fenced() != nil, len(g.state.Down)
}
