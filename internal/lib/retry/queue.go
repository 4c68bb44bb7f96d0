package retry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Queue has each key worked on by one goroutine at a time, in the order of the
// keys' coming. A key that comes again while it is worked on is worked on once
// more, and one that failed comes again after its pause. It is client-go's queue
// with pauses of ours: client-go's own repeats need a goroutine from the moment
// a queue is made, and cannot be taken back.
type Queue[K comparable] struct {
	pauses *Pauses[K]
	keys   workqueue.TypedInterface[K]
	open   atomic.Int64 // keys that are ready or worked on

	mu      sync.Mutex
	repeats map[K]*time.Timer // of keys that failed
}

// NewQueue makes a Queue whose pauses begin with first and grow to most, and a
// quarter.
func NewQueue[K comparable](first, most time.Duration) *Queue[K] {
	q := &Queue[K]{pauses: New[K](first, most), repeats: map[K]*time.Timer{}}
	q.keys = workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{
		Queue: counted[K]{Queue: workqueue.DefaultQueue[K](), open: &q.open},
	})
	return q
}

// counted counts the keys that became ready.
type counted[K comparable] struct {
	workqueue.Queue[K]
	open *atomic.Int64
}

// Push implements workqueue.Queue.
func (c counted[K]) Push(k K) {
	c.open.Add(1)
	c.Queue.Push(k)
}

// Add has keys worked on as soon as may be, and forgets that they failed. It
// never blocks, and does nothing once Run has ended.
func (q *Queue[K]) Add(keys ...K) {
	for _, k := range keys {
		q.pauses.Forget(k)
		q.keys.Add(k)
	}
}

// Len is how many keys are ready or worked on. Keys that rest are not counted.
func (q *Queue[K]) Len() int { return int(q.open.Load()) }

// Run has workers do keys until ctx ends, and then waits for what is under way.
// Call it once.
func (q *Queue[K]) Run(ctx context.Context, workers int, do func(context.Context, K) error) {
	defer context.AfterFunc(ctx, q.keys.ShutDown)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for k, ended := q.keys.Get(); !ended; k, ended = q.keys.Get() {
				q.work(ctx, k, do)
			}
		})
	}
	wg.Wait()
}

// work does one key, if ctx has not ended meanwhile.
func (q *Queue[K]) work(ctx context.Context, k K, do func(context.Context, K) error) {
	defer q.open.Add(-1) // after Done, so that a key which came again counts all the time
	defer q.keys.Done(k)
	if ctx.Err() != nil {
		return
	}
	q.cancel(k)
	switch err := do(ctx, k); {
	case err == nil:
		q.pauses.Forget(k)
	case ctx.Err() == nil:
		q.later(k)
	}
}

// cancel takes a key's repeat back: the key is worked on now.
func (q *Queue[K]) cancel(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if repeat := q.repeats[k]; repeat != nil {
		repeat.Stop()
		delete(q.repeats, k)
	}
}

// later has a key that failed come again.
func (q *Queue[K]) later(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.repeats[k] = time.AfterFunc(q.pauses.Failed(k, time.Now()), func() { q.keys.Add(k) })
}
