package kubeletapi

import (
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// mostKept bounds what is remembered: anybody can send another token.
const mostKept = 4096

// cache remembers answers for a time.
type cache[V any] struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

func (c *cache[V]) get(key [sha256.Size]byte) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, has := c.kept[key]
	if !has || time.Now().After(a.until) {
		var none V
		return none, false
	}
	return a.value, true
}

func (c *cache[V]) put(key [sha256.Size]byte, v V, life time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if len(c.kept) >= mostKept {
		maps.DeleteFunc(c.kept, func(_ [sha256.Size]byte, a answer[V]) bool { return now.After(a.until) })
	}
	if c.kept == nil || len(c.kept) >= mostKept {
		c.kept = map[[sha256.Size]byte]answer[V]{} // who fills it pays with the others' next question
	}
	c.kept[key] = answer[V]{v, now.Add(life)}
}
