// Package pleg tells what happened to the pods of a runtime: it lists them
// again and again, at once when somebody says that there is news, and compares.
// It knows neither the runtime's interface nor what anybody does about an event.
package pleg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State of a container or sandbox.
type State int

// The states of which a change is told.
const (
	Unknown State = iota // also: made and not started
	Running
	Exited
)

// Key is one container or sandbox of a pod.
type Key struct {
	UID types.UID
	ID  string
}

// Kind says what happened.
type Kind int

// What may happen to a container or sandbox.
const (
	Started Kind = iota
	Died
	Removed
	Changed // its state is not known any more
)

func (k Kind) String() string {
	return [...]string{"started", "died", "removed", "changed"}[k]
}

// Event is one change.
type Event struct {
	UID       types.UID
	Kind      Kind
	Container string // id; of a sandbox too
}

// Lister reads the states of all containers and sandboxes.
type Lister interface {
	States(ctx context.Context) (map[Key]State, error)
}

// room is how many events may wait for the consumer.
const room = 1000

// PLEG is safe for concurrent use.
type PLEG struct {
	lister Lister
	period time.Duration
	log    *slog.Logger
	events chan Event
	news   chan struct{}
	last   map[Key]State

	mu     sync.Mutex
	listed time.Time // zero: never
	failed error     // of the last look
}

// New lists each period, once Run runs.
func New(lister Lister, period time.Duration, log *slog.Logger) *PLEG {
	return &PLEG{lister: lister, period: period, log: log, events: make(chan Event, room), news: make(chan struct{}, 1), last: map[Key]State{}}
}

// Events is the stream of changes. What is there at the first look is told too.
// It is never closed.
func (p *PLEG) Events() <-chan Event { return p.events }

// News makes the next look due now; it never blocks.
func (p *PLEG) News() {
	select {
	case p.news <- struct{}{}:
	default: // a look is due already
	}
}

// threshold is for how long the runtime need not be listed (kubelet's).
const threshold = 3 * time.Minute

// Stale says why nothing is known of the runtime's containers, or only what was
// so too long ago: it never answered, does not answer any more, or its news are
// not taken. It is nil while they are known.
func (p *PLEG) Stale() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := ""
	if p.failed != nil {
		why = ": " + p.failed.Error()
	}
	if p.listed.IsZero() {
		return errors.New("the runtime has not answered yet" + why)
	}
	if age := time.Since(p.listed); age >= threshold {
		return fmt.Errorf("the runtime's containers were last listed %s ago, and %s are allowed%s", age.Round(time.Second), threshold, why)
	}
	return nil
}

// Run looks until ctx ends.
func (p *PLEG) Run(ctx context.Context) {
	tick := time.NewTicker(p.period)
	defer tick.Stop()
	failing := false
	for {
		err := p.look(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			p.log.Warn("the runtime does not list its containers: deaths of containers go unnoticed until it does", "err", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.news:
		}
	}
}

// look lists once and sends what differs.
func (p *PLEG) look(ctx context.Context) error {
	now, err := p.lister.States(ctx)
	p.mu.Lock()
	if p.failed = err; err == nil {
		p.listed = time.Now()
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	for _, e := range differ(p.last, now) {
		select {
		case p.events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	p.last = now
	return nil
}

// differ is what happened between two looks. One that came and went between
// them was not seen.
func differ(before, now map[Key]State) []Event {
	var out []Event
	for k, s := range now {
		was, known := before[k]
		switch {
		case known && was == s:
		case s == Running:
			out = append(out, Event{k.UID, Started, k.ID})
		case s == Exited:
			out = append(out, Event{k.UID, Died, k.ID})
		case known:
			out = append(out, Event{k.UID, Changed, k.ID})
		}
	}
	for k, was := range before {
		if _, there := now[k]; there {
			continue
		}
		if was == Running {
			out = append(out, Event{k.UID, Died, k.ID})
		}
		out = append(out, Event{k.UID, Removed, k.ID})
	}
	return out
}
