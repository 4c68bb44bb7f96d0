package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/internal/core"
)

// remains are ADDs that the journal refused, on a full disk, and that could not
// be undone either, because OVSDB went away: nothing but this process knows that
// they hold addresses. A start frees these and sweeps the rest. The zero value
// has none.
type remains struct {
	mu   sync.Mutex
	recs map[string][]core.Record // by container
}

func (m *remains) add(rec core.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recs == nil {
		m.recs = map[string][]core.Record{}
	}
	m.recs[rec.Key.Container] = append(m.recs[rec.Key.Container], rec)
}

// take gives the remains of a container away.
func (m *remains) take(id string) []core.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.recs[id]
	delete(m.recs, id)
	return out
}

func (m *remains) containers() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.recs))
}

// finishRemains discards what is left of such ADDs. A busy container's own
// operation does.
func (e *Engine) finishRemains(ctx context.Context) {
	for _, id := range e.remains.containers() {
		unlock, ok := e.queue.TryLock(id)
		if !ok {
			continue
		}
		err := e.settle(ctx, id)
		unlock()
		if err != nil {
			e.Log.Warn("ADD without a record not undone yet", "container", id, "err", err)
		}
	}
}
