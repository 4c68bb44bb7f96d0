package podruntime

import (
	"sync"
	"time"
)

// Delays between restarts of a container and between pulls of an image.
const (
	firstDelay = 10 * time.Second
	mostDelay  = 5 * time.Minute
	// calm is how long something has to be well until its delay is forgotten.
	calm = 2 * mostDelay
)

// backoff gives each key a delay that doubles with each failure.
type backoff struct {
	now func() time.Time

	mu   sync.Mutex
	keys map[string]*wait
}

type wait struct {
	delay time.Duration
	last  time.Time // the failure that the delay counts from
}

func newBackoff(now func() time.Time) *backoff { return &backoff{now: now, keys: map[string]*wait{}} }

// left is how long to wait yet after a failure at a time; 0 when the next try
// may be made. A later failure than the one known doubles the delay, unless
// there was calm between.
func (b *backoff) left(key string, failed time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.keys[key]
	switch {
	case w == nil || failed.Sub(w.last) > calm:
		// The first failure costs nothing: the container is tried at once.
		b.keys[key] = &wait{last: failed}
		return 0
	case failed.After(w.last):
		w.last = failed
		w.delay = min(max(2*w.delay, firstDelay), mostDelay)
	}
	return max(0, w.last.Add(w.delay).Sub(b.now()))
}

// forget drops all keys for which of is true.
func (b *backoff) forget(of func(key string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.keys {
		if of(k) {
			delete(b.keys, k)
		}
	}
}

// failed notes a failure that happened now, and returns how long to wait.
func (b *backoff) failed(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.keys[key]
	if w == nil {
		w = &wait{}
		b.keys[key] = w
	}
	w.last, w.delay = b.now(), min(max(2*w.delay, firstDelay), mostDelay)
	return w.delay
}

// pending is how long a key still has to wait after its last failure (failed), 0
// when it may be tried.
func (b *backoff) pending(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.keys[key]
	if w == nil {
		return 0
	}
	return max(0, w.last.Add(w.delay).Sub(b.now()))
}
