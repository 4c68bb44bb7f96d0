package core

import (
	"sync"
	"time"
)

// Trace is the timeline of one operation: for the record, for metrics and for
// `describe pod`. It knows nothing of what the steps do. Its methods may be called from any
// goroutine.
type Trace struct {
	Start time.Time
	obs   Observer
	mu    sync.Mutex // drivers time steps from several goroutines
	steps []Timing
}

// NewTrace begins an operation's timeline; obs hears of each step.
func NewTrace(obs Observer) *Trace { return &Trace{obs: obs, Start: time.Now()} }

// Step starts a named step of the whole operation; call the result with its
// error.
func (t *Trace) Step(name string) func(error) { return t.begin("", name) }

// Timer names the steps of one interface: with the interface in the timeline,
// without it in the metrics, whose labels must not grow with what users name.
func (t *Trace) Timer(ifName string) func(step string) func(error) {
	return func(step string) func(error) { return t.begin(ifName+" ", step) }
}

func (t *Trace) begin(prefix, name string) func(error) {
	begin := time.Now()
	return func(err error) {
		took := time.Since(begin)
		timing := Timing{Step: prefix + name, Start: begin.Sub(t.Start), Took: took}
		if err != nil {
			timing.Error = err.Error()
		}
		t.mu.Lock()
		t.steps = append(t.steps, timing)
		t.mu.Unlock()
		t.obs.StepDone(name, took)
	}
}

// Timed runs fn as one step.
func (t *Trace) Timed(name string, fn func() error) error {
	done := t.Step(name)
	err := fn()
	done(err)
	return err
}

// Timeline is what is done so far.
func (t *Trace) Timeline() []Timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Timing(nil), t.steps...)
}
