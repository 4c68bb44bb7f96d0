package ovs

import "sync"

// keyLock is a mutex per key that is free of cost while nobody holds it.
type keyLock struct {
	mu   sync.Mutex
	held map[string]*keyMutex
}

type keyMutex struct {
	sync.Mutex
	users int
}

// lock waits for the key and returns its unlock.
func (l *keyLock) lock(key string) func() {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*keyMutex{}
	}
	m := l.held[key]
	if m == nil {
		m = &keyMutex{}
		l.held[key] = m
	}
	m.users++
	l.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(l.held, key)
		}
	}
}
