// Package retry says when what failed is to be tried again: a first pause that
// doubles with each further failure up to a limit, for each thing by its name,
// until there is news of it. Pauses are not alike, so that what failed together
// is not tried together for ever. Queue works things off in that way, Pauses are
// for those who do it in their own. It knows no purpose.
package retry

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// spread is by how much of a pause it may be longer.
const spread = 0.25

// Pauses are those of many things. It is safe for concurrent use.
type Pauses[K comparable] struct {
	first, most time.Duration

	mu  sync.Mutex
	all map[K]wait
}

type wait struct {
	last  time.Duration // without its spread
	until time.Time
}

// New makes Pauses that begin with first and grow to most, and a quarter.
func New[K comparable](first, most time.Duration) *Pauses[K] {
	return &Pauses[K]{first: first, most: most, all: map[K]wait{}}
}

// Failed notes that k failed, and tells how long it is to rest.
func (p *Pauses[K]) Failed(k K, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.all[k]
	w.last = min(max(2*w.last, p.first), p.most)
	rest := w.last + time.Duration(spread*rand.Float64()*float64(w.last))
	w.until = now.Add(rest)
	p.all[k] = w
	return rest
}

// Due tells that k need not rest any more, or never had to.
func (p *Pauses[K]) Due(k K, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.all[k].until)
}

// Forget ends the pause of k: it is done, or there is news of it.
func (p *Pauses[K]) Forget(k K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, k)
}

// Reset ends all pauses.
func (p *Pauses[K]) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.all)
}

// Sleep waits; false when ctx ended before the time was over.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Loop has do work until ctx ends: at once, when it is woken, and after the pause that it gave
// last.
func Loop(ctx context.Context, wake <-chan struct{}, do func(context.Context) time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		timer.Reset(do(ctx))
	}
}
