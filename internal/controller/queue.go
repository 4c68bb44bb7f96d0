package controller

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/lib/retry"
)

// Pauses after failures: the first, and the longest but for a quarter.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 30 * time.Second
)

// queue has each key worked on by one goroutine at a time, in the order of the
// keys' coming. A key that comes again while it is worked on is worked on once
// more, and one that failed comes again after a pause.
type queue struct {
	pauses *retry.Pauses[Key]
	wake   chan struct{} // holds one item while keys are ready

	mu    sync.Mutex
	ready []Key
	state map[Key]state // of keys that are ready or worked on
}

// state is that of a key in a queue.
type state int

const (
	waits   state = iota + 1 // it is in ready
	running                  // it is worked on
	again                    // it came while it was worked on
)

func newQueue() *queue {
	return &queue{pauses: retry.New[Key](firstPause, mostPause), wake: make(chan struct{}, 1), state: map[Key]state{}}
}

// Add has keys worked on as soon as may be, whatever pause they have.
func (q *queue) Add(keys ...Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, k := range keys {
		switch q.state[k] {
		case waits, again:
		case running:
			q.state[k] = again
		default:
			q.state[k] = waits
			q.ready = append(q.ready, k)
		}
	}
	q.notify()
}

// Len is how many keys are ready or worked on.
func (q *queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.state)
}

// notify wakes a worker where there is a key for one. The caller holds mu.
func (q *queue) notify() {
	if len(q.ready) == 0 {
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take gives the next key, and wakes another worker where there are more.
func (q *queue) take() (Key, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) == 0 {
		return Key{}, false
	}
	k := q.ready[0]
	q.ready = q.ready[1:]
	q.state[k] = running
	q.notify()
	return k, true
}

// done ends the work on a key.
func (q *queue) done(ctx context.Context, k Key, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	came := q.state[k] == again
	delete(q.state, k)
	switch {
	case came:
		q.state[k] = waits
		q.ready = append(q.ready, k)
		q.notify()
	case err == nil:
		q.pauses.Forget(k)
	case ctx.Err() == nil:
		time.AfterFunc(q.pauses.Failed(k, time.Now()), func() { q.Add(k) })
	}
}

// Run has workers do keys until ctx ends, and then waits for what is under way.
func (q *queue) Run(ctx context.Context, workers int, do func(context.Context, Key) error) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-q.wake:
				}
				for k, ok := q.take(); ok && ctx.Err() == nil; k, ok = q.take() {
					q.done(ctx, k, do(ctx, k))
				}
			}
		})
	}
	wg.Wait()
}
