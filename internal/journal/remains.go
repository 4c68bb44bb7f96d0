package journal

import (
	"maps"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
)

// Remains are attachments that the journal refused, on a full disk, and that could not
// be undone either, because OVSDB went away: nothing but this process knows that
// they hold addresses. A start frees these and sweeps the rest. The zero value
// has none.
type Remains struct {
	mu   sync.Mutex
	recs map[string][]core.Record // by container
}

// Add keeps one.
func (m *Remains) Add(rec core.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recs == nil {
		m.recs = map[string][]core.Record{}
	}
	m.recs[rec.Key.Container] = append(m.recs[rec.Key.Container], rec)
}

// Take gives the remains of a container away.
func (m *Remains) Take(id string) []core.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.recs[id]
	delete(m.recs, id)
	return out
}

// Containers are those of which there are any.
func (m *Remains) Containers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.recs))
}
