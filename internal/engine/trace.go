package engine

import (
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// trace times the steps of one operation: for the record, for metrics and for
// `describe pod`.
type trace struct {
	obs   core.Observer
	start time.Time
	mu    sync.Mutex // drivers time steps from several goroutines
	steps []core.Timing
}

func newTrace(obs core.Observer) *trace { return &trace{obs: obs, start: time.Now()} }

// step starts a named step of the whole operation; call the result with its
// error.
func (t *trace) step(name string) func(error) { return t.begin("", name) }

// timer names the steps of one interface: with the interface in the timeline,
// without it in the metrics, whose labels must not grow with what users name.
func (t *trace) timer(ifName string) func(step string) func(error) {
	return func(step string) func(error) { return t.begin(ifName+" ", step) }
}

func (t *trace) begin(prefix, name string) func(error) {
	begin := time.Now()
	return func(err error) {
		took := time.Since(begin)
		timing := core.Timing{Step: prefix + name, Start: begin.Sub(t.start), Took: took}
		if err != nil {
			timing.Error = err.Error()
		}
		t.mu.Lock()
		t.steps = append(t.steps, timing)
		t.mu.Unlock()
		t.obs.StepDone(name, took)
	}
}

// timed runs fn as one step.
func (t *trace) timed(name string, fn func() error) error {
	done := t.step(name)
	err := fn()
	done(err)
	return err
}

func (t *trace) timeline() []core.Timing {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]core.Timing(nil), t.steps...)
}
