package engine

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
)

// Undone is a spec that could not be undone, and why.
type Undone struct {
	Spec core.Spec
	Err  error
}

// Force is a Del that an operator has the last word in: what cannot be undone is
// dropped from the journal all the same, with its leases, and returned. The
// error wraps core.ErrNotFound where there is no such attachment.
func (e *Engine) Force(ctx context.Context, key core.Key) (core.Record, []Undone, error) {
	e.inflight.Add(1)
	defer e.inflight.Add(-1)
	ctx, stop := context.WithTimeout(ctx, delDeadline)
	defer stop()
	e.queue.Supersede(key.Container, errSuperseded)
	unlock, err := e.Lock(ctx, key.Container)
	if err != nil {
		return core.Record{Key: key}, nil, err
	}
	defer unlock()
	rec, ok := e.Journal.Get(key)
	if !ok {
		return core.Record{Key: key}, nil, fmt.Errorf("attachment %s: %w", key, core.ErrNotFound)
	}
	r, err := e.undoWhole(ctx, nil, &rec)
	if err != nil {
		return rec, nil, err
	}
	var left []Undone
	for i, s := range r.specs {
		if !r.done[i] {
			left = append(left, Undone{s, r.errs[i]})
			e.Log.Warn("attachment dropped by force: something of it is left", "container", key.Container,
				"ifname", s.Key.IfName, "network", s.Network, "err", r.errs[i])
		}
	}
	if len(left) > 0 {
		err = e.forget(context.WithoutCancel(ctx), &rec)
	}
	return rec, left, err
}
