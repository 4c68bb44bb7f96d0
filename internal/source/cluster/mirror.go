package cluster

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/core"
)

// id names an object; the namespace is empty for kinds of the whole cluster.
type id = types.NamespacedName

// mirror holds what this agent needs of all objects of one kind, as the API
// server last told. A reflector feeds it; values are never changed, only
// replaced. It outlives sessions with the server: what was known stays.
type mirror[T any] struct {
	kind string // plural, as in the API
	read func(metav1.Object) T
	// heard is told of each change, in order, without a lock held; before or
	// now is nil when the object appeared or went.
	heard func(i id, before, now *T)
	// passed is called after each event and after each list as a whole.
	passed func()
	// alive is called at each sign of life of the server, with its resourceVersion.
	alive func(version string)

	mu      sync.RWMutex
	items   map[id]T
	waiters map[id][]chan struct{}
	fault   error // why the kind is not being watched, nil while it is
	known   bool  // listed once, be it as not served
}

var (
	_ cache.TransformingStore      = (*mirror[pod])(nil)
	_ cache.ReflectorBookmarkStore = (*mirror[pod])(nil)
)

func newMirror[T any](kind string, read func(metav1.Object) T, heard func(id, *T, *T)) *mirror[T] {
	return &mirror[T]{
		kind: kind, read: read, heard: heard, passed: func() {}, alive: func(string) {},
		items: map[id]T{}, waiters: map[id][]chan struct{}{},
	}
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(obj any) error {
	i, o, err := identify(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", m.kind, err)
	}
	m.alive(o.GetResourceVersion())
	m.set(i, m.read(o))
	return nil
}

func (m *mirror[T]) set(i id, now T) {
	m.mu.Lock()
	before, was := m.items[i]
	m.items[i] = now
	m.wake(i)
	m.mu.Unlock()
	if was {
		m.heard(i, &before, &now)
	} else {
		m.heard(i, nil, &now)
	}
	m.passed()
}

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(obj any) error {
	i, o, err := identify(obj)
	if err != nil {
		return fmt.Errorf("%s: %w", m.kind, err)
	}
	m.alive(o.GetResourceVersion())
	m.mu.Lock()
	before, was := m.items[i]
	delete(m.items, i)
	m.mu.Unlock()
	if was {
		m.heard(i, &before, nil)
	}
	m.passed()
	return nil
}

// Replace implements cache.ReflectorStore: the first list, and each one after
// the server forgot where the watch stood (410).
func (m *mirror[T]) Replace(list []any, version string) error {
	fresh := make(map[id]T, len(list))
	for _, obj := range list {
		i, o, err := identify(obj)
		if err != nil {
			return fmt.Errorf("%s: %w", m.kind, err)
		}
		fresh[i] = m.read(o)
	}
	m.mu.Lock()
	before := m.items
	m.items = fresh
	m.known = true
	for i := range m.waiters {
		m.wake(i)
	}
	m.mu.Unlock()
	m.alive(version)
	m.tell(before, maps.Clone(fresh))
	m.passed()
	return nil
}

// tell reports the difference of two states.
func (m *mirror[T]) tell(before, fresh map[id]T) {
	for i, old := range before {
		if _, stays := fresh[i]; !stays {
			m.heard(i, &old, nil)
		}
	}
	for i, now := range fresh {
		if old, was := before[i]; was {
			m.heard(i, &old, &now)
		} else {
			m.heard(i, nil, &now)
		}
	}
}

// Transformer implements cache.TransformingStore: a first list that comes as a
// stream is gathered without what servers note for themselves, which is most of
// a small object.
func (m *mirror[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if o, err := meta.Accessor(obj); err == nil {
			o.SetManagedFields(nil)
		}
		return obj, nil
	}
}

// Bookmark implements cache.ReflectorBookmarkStore: the server says every minute
// that nothing happened.
func (m *mirror[T]) Bookmark(version string) error {
	m.alive(version)
	return nil
}

// Resync implements cache.ReflectorStore; nothing here needs repetition.
func (m *mirror[T]) Resync() error { return nil }

// absent notes that the server does not serve the kind: there is none of it.
func (m *mirror[T]) absent() error { return m.Replace(nil, "") }

func identify(obj any) (id, metav1.Object, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return id{}, nil, err
	}
	return id{Namespace: o.GetNamespace(), Name: o.GetName()}, o, nil
}

// wake tells who waits for i; mu is held.
func (m *mirror[T]) wake(i id) {
	for _, w := range m.waiters[i] {
		close(w)
	}
	delete(m.waiters, i)
}

// get is what is known of i.
func (m *mirror[T]) get(i id) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.items[i]
	return v, ok
}

// await gives i as soon as it is there and fits, or as it is when ctx ends.
func (m *mirror[T]) await(ctx context.Context, i id, fits func(T) bool) (v T, ok bool) {
	for {
		v, w := m.look(i, fits)
		if w == nil {
			return v, true
		}
		select {
		case <-w:
		case <-ctx.Done():
			m.leave(i, w)
			return v, false
		}
	}
}

// look gives what fits, else a channel that is closed at the next change of i.
func (m *mirror[T]) look(i id, fits func(T) bool) (T, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.items[i]
	if ok && fits(v) {
		return v, nil
	}
	w := make(chan struct{})
	m.waiters[i] = append(m.waiters[i], w)
	return v, w
}

func (m *mirror[T]) leave(i id, w chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.waiters[i]
	for at := range list {
		if list[at] == w {
			m.waiters[i] = append(list[:at:at], list[at+1:]...)
			break
		}
	}
	if len(m.waiters[i]) == 0 {
		delete(m.waiters, i)
	}
}

// all is a copy of what is known.
func (m *mirror[T]) all() map[id]T {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.items)
}

// isSynced tells that the kind was known at least once.
func (m *mirror[T]) isSynced() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.known
}

// blame notes why the kind cannot be watched now; nil ends it.
func (m *mirror[T]) blame(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = err
}

// unsynced is nil once the kind is known; otherwise it says why it is not.
func (m *mirror[T]) unsynced() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.known {
		return nil
	}
	if m.fault != nil {
		return fmt.Errorf("%s are not known yet: %w: %w", m.kind, core.ErrUnavailable, m.fault)
	}
	return fmt.Errorf("%s are not known yet: %w", m.kind, core.ErrUnavailable)
}

// trouble is why a kind is not being watched, for Problems.
func (m *mirror[T]) trouble() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.fault
}
