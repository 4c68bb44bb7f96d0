// Package keylock serialises operations by name: one at a time for each name, in
// no order among those who wait. Whoever has the turn may be told to give way.
// It knows nothing of what the operations do.
package keylock

import (
	"context"
	"fmt"
	"sync"
)

// Queue gives turns. Its methods may be called from any goroutine. The zero value
// is one in which nobody waits.
type Queue struct {
	mu    sync.Mutex
	slots map[string]*slot
}

type slot struct {
	turn   chan struct{} // holds one token; whoever has it has the turn
	users  int
	cancel context.CancelCauseFunc // of the operation that has the turn
}

// New is a queue in which nobody waits.
func New() *Queue { return &Queue{} }

func (q *Queue) enter(name string) *slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.slots == nil {
		q.slots = map[string]*slot{}
	}
	s := q.slots[name]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		q.slots[name] = s
	}
	s.users++
	return s
}

func (q *Queue) leave(name string, s *slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(q.slots, name)
	}
}

// giver gives the turn back.
func (q *Queue) giver(name string, s *slot) func() {
	return func() { s.turn <- struct{}{}; q.leave(name, s) }
}

// Hold waits for the turn however long that takes, for work that ends soon; call
// the returned function to give it back.
func (q *Queue) Hold(name string) func() {
	s := q.enter(name)
	<-s.turn
	return q.giver(name, s)
}

// Lock waits for the turn; call the returned function to give it back. When ctx
// ends first, the error wraps its cause.
func (q *Queue) Lock(ctx context.Context, name string) (func(), error) {
	s := q.enter(name)
	select {
	case <-s.turn:
		return q.giver(name, s), nil
	case <-ctx.Done():
		q.leave(name, s)
		return nil, fmt.Errorf("busy with an earlier operation: %w", context.Cause(ctx))
	}
}

// TryLock takes the turn only when nobody has it.
func (q *Queue) TryLock(name string) (func(), bool) {
	s := q.enter(name)
	select {
	case <-s.turn:
		return q.giver(name, s), true
	default:
		q.leave(name, s)
		return nil, false
	}
}

// GivesWay notes how the operation that has the turn is told to give way; nil
// when it does not any more.
func (q *Queue) GivesWay(name string, cancel context.CancelCauseFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[name]; s != nil {
		s.cancel = cancel
	}
}

// Supersede tells the operation that has the turn to give way, if it does.
func (q *Queue) Supersede(name string, cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.slots[name]; s != nil && s.cancel != nil {
		s.cancel(cause)
	}
}
