package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/lib/retry"
	"github.com/fairlead/fairlead/internal/network/record"
)

// workers is how many interfaces are reclaimed at once.
const workers = 4

// Enforce takes down what is to be down by now. It is called again and again: what somebody
// has put up meanwhile is taken down again.
func (g *Guard) Enforce() {
	g.links.Lock()
	defer g.links.Unlock()
	fenced := g.fall()
	if _, down := g.Count(); !fenced && down == 0 {
		return
	}
	specs := claimed(g.Records())
	g.note(specs, fenced)
	for k, s := range specs {
		if before, down := g.known(k); down {
			g.down(k, s, before)
		}
	}
}

// fall tells whether the fence has fallen; who is making interfaces hears of it.
func (g *Guard) fall() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.fenced()
	if err == nil {
		if g.told {
			g.Log.Warn("the node is not fenced any more: its heartbeat is renewed, or retired")
		}
		g.told = false
		return false
	}
	if !g.told {
		g.Log.Error("the node fences itself: what pods lease is taken off the network", "err", err)
	}
	g.told = true
	for m := range g.making {
		m.fall(err)
	}
	return true
}

// claimed are the interfaces that have leased something, by their keys' text.
func claimed(records []core.Record) map[string]core.Spec {
	out := map[string]core.Spec{}
	for _, r := range record.ByAge(records) {
		for _, s := range record.AllSpecs(r) {
			if len(s.Claims) > 0 {
				out[s.Key.String()] = s
			}
		}
	}
	return out
}

// note forgets interfaces that are gone, and notes durably, before anything is touched,
// those that are to go down, and what they are now.
func (g *Guard) note(specs map[string]core.Spec, fenced bool) {
	found := map[string]Saved{}
	for k, s := range specs {
		if _, down := g.known(k); down || !fenced {
			continue
		}
		saved, err := g.Links.Look(s)
		if errors.Is(err, core.ErrNetnsGone) || errors.Is(err, core.ErrNotFound) {
			continue
		}
		if err != nil {
			g.Log.Warn("an interface is taken off the network, and what it is to have later is not known", "container", s.Key.Container, "ifname", s.Key.IfName, "err", err)
		}
		found[k] = saved
	}
	g.mu.Lock()
	gone := 0
	for k := range g.state.Down {
		if _, there := specs[k]; !there {
			g.forget(k)
			gone++
		}
	}
	maps.Copy(g.state.Down, found)
	g.mu.Unlock()
	if len(found)+gone > 0 {
		_ = g.save() // it says so itself; the network comes first
		fail.Here("fence.noted")
	}
}

// known is what an interface had before it went down; false where it is not to be down.
func (g *Guard) known(k string) (before Saved, down bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, down = g.state.Down[k]
	return before, down
}

func (g *Guard) down(k string, s core.Spec, before Saved) {
	err := g.Links.Down(s, before)
	fail.Here("fence.down")
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		delete(g.failed, k)
		return
	}
	if fmt.Sprint(g.failed[k]) != err.Error() {
		g.Log.Error("an interface is on the network still, which the fence is to take off; tried again", "pod", s.Pod, "container", s.Key.Container, "ifname", s.Key.IfName, "err", err)
	}
	g.failed[k] = err
}

// recover puts back what is the node's again, until ctx ends.
func (g *Guard) recover(ctx context.Context) {
	retry.Loop(ctx, g.wake, func(ctx context.Context) time.Duration {
		if g.reclaim(ctx) {
			return patient
		}
		return again
	})
}

// reclaim asks of all that is down whether it is the node's still. It is false where that is
// to be asked again soon.
func (g *Guard) reclaim(ctx context.Context) bool {
	if _, down := g.Count(); down == 0 || g.Fenced() != nil {
		return true
	}
	made := slices.DeleteFunc(g.Records(), func(r core.Record) bool { return r.Phase != core.Added })
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		good = true
		slot = make(chan struct{}, workers)
	)
	for k, s := range claimed(made) {
		if _, down := g.known(k); !down {
			continue
		}
		slot <- struct{}{}
		wg.Go(func() {
			defer func() { <-slot }()
			if err := g.reclaimOne(ctx, k, s); err != nil && ctx.Err() == nil {
				g.Log.Warn("an interface is off the network still; tried again", "pod", s.Pod, "container", s.Key.Container, "ifname", s.Key.IfName, "err", err)
				mu.Lock()
				defer mu.Unlock()
				good = false
			}
		})
	}
	wg.Wait()
	return good
}

func (g *Guard) reclaimOne(ctx context.Context, k string, s core.Spec) error {
	theirs, err := g.Reclaim(ctx, s)
	if err != nil {
		return err
	}
	g.mu.Lock()
	_, down := g.state.Down[k]
	before := g.theirs[k]
	if down {
		g.theirs[k] = theirs
	}
	g.mu.Unlock()
	if !down {
		return nil // another is made in its place
	}
	if theirs == "" {
		return g.raise(k, s)
	}
	if theirs != before {
		g.Log.Error("an interface stays off the network", "pod", s.Pod, "container", s.Key.Container, "ifname", s.Key.IfName, "reason", theirs)
		g.Tell(s.Pod, fmt.Sprintf("interface %s stays down: the node had fenced itself, and %s", s.Key.IfName, theirs))
	}
	return nil
}

// raise puts an interface back, unless the fence has fallen anew.
func (g *Guard) raise(k string, s core.Spec) error {
	g.links.Lock()
	defer g.links.Unlock()
	g.mu.Lock()
	saved, down := g.state.Down[k]
	fenced := g.fenced()
	g.mu.Unlock()
	if !down || fenced != nil {
		return nil
	}
	err := g.Links.Up(s, saved)
	fail.Here("fence.up")
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.forget(k)
	g.mu.Unlock()
	_ = g.save() // it says so itself; a restart takes it down once more, and up
	g.Tell(s.Pod, fmt.Sprintf("interface %s was off the network: the node could not renew its heartbeat, and fenced itself; it is back", s.Key.IfName))
	return nil
}
