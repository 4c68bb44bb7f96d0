// Package follow has something done for pods whenever they change, and again
// until it succeeds: at once after a change, later and later after failures. It
// knows pods by name only, and nothing of what is done for them.
package follow

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

const (
	workers    = 4
	firstPause = time.Second // after a failure; it doubles
	maxPause   = 2 * time.Minute
)

// Config is what a Follower is made of.
type Config struct {
	Do  func(context.Context, core.Pod) error
	Log *slog.Logger
}

// Follower keeps pods as Do makes them.
type Follower struct {
	Config
	mu   sync.Mutex
	pods map[core.Pod]*task
	wake chan struct{}
}

// task is one pod for which something is to be done.
type task struct {
	due     time.Time
	pause   time.Duration // after the last failure, 0 without
	running bool
	again   bool // it changed while it was running
}

// New makes a follower; call Run.
func New(c Config) *Follower {
	return &Follower{Config: c, pods: map[core.Pod]*task{}, wake: make(chan struct{}, 1)}
}

// Changed has a pod looked at soon, whatever came of it before. It never blocks.
func (f *Follower) Changed(p core.Pod) {
	p.UID = "" // what is done is done for whoever has the name
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.pods[p]
	if t == nil {
		t = &task{}
		f.pods[p] = t
	}
	t.due, t.pause, t.again = time.Time{}, 0, t.running
	f.notify()
}

func (f *Follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and then waits for what is under way.
func (f *Follower) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	free := make(chan struct{}, workers)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-timer.C:
		}
		next := f.start(time.Now(), func(p core.Pod) bool {
			select {
			case free <- struct{}{}:
			default:
				return false // whoever ends wakes us
			}
			wg.Go(func() {
				err := f.Do(ctx, p)
				<-free
				f.done(p, err)
			})
			return true
		})
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// start begins what is due, as far as begin says, and tells when more will be.
func (f *Follower) start(now time.Time, begin func(core.Pod) bool) (next time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p, t := range f.pods {
		switch {
		case t.running:
		case t.due.After(now):
			if next.IsZero() || t.due.Before(next) {
				next = t.due
			}
		default:
			t.running = begin(p)
		}
	}
	return next
}

// done ends one attempt: a failed one is repeated later.
func (f *Follower) done(p core.Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.notify()
	t := f.pods[p]
	t.running = false
	switch {
	case t.again:
		t.again = false
	case err == nil:
		delete(f.pods, p)
		return
	default:
		t.pause = min(max(2*t.pause, firstPause), maxPause)
		t.due = time.Now().Add(t.pause)
	}
	if err != nil {
		f.Log.Warn("networks of a running pod are not as asked for yet", "pod", p, "again", t.pause, "err", err)
	}
}
