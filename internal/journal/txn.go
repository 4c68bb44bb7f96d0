package journal

import (
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
)

// txn is what one transaction will change, staged over memory.
type txn struct {
	changes map[slot]change
	added   []given          // index entries to make
	ids     map[string]given // the same by identity
	dropped []given          // index entries to remove
	pruned  map[string]bool  // subnets looked at for surplus
	kinds   [kinds]bool      // which crash points it passes
}

// change is a row's new value; nil deletes it.
type change struct {
	row *row
	// fresh: the record was begun in this transaction, so the flags of an
	// older one under the same key are not its own.
	fresh bool
	// stale: memory had it already and the disk only catches up.
	stale bool
}

// stage applies the ops of a batch in their order and takes over what is stale.
func (j *Journal) stage(batch []*op) *txn {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.mem
	t := &txn{
		changes: make(map[slot]change, len(batch)+len(m.stale)),
		ids:     map[string]given{}, pruned: map[string]bool{},
	}
	for s := range m.stale {
		c := change{stale: true}
		if r, ok := m.get(s); ok {
			c.row = &r
		}
		t.changes[s] = c
	}
	clear(m.stale)
	for _, o := range batch {
		if o.refused = t.apply(m, o); o.refused == nil {
			t.kinds[o.kind] = true
		}
	}
	return t
}

// row is a record as the ops before left it.
func (t *txn) row(m *memory, s slot) (row, bool) {
	if c, ok := t.changes[s]; ok {
		if c.row == nil {
			return row{}, false
		}
		return *c.row, true
	}
	return m.get(s)
}

// apply stages one op over what the ops before it in the batch left.
func (t *txn) apply(m *memory, o *op) error {
	if o.link != "" {
		return t.applyUplink(m, o)
	}
	s := slot{records, o.key.String()}
	old, exists := t.row(m, s)
	switch o.kind {
	case kindBegin:
		if exists {
			return fmt.Errorf("record %w", core.ErrExists)
		}
		t.changes[s] = change{row: &o.row, fresh: true}
	case kindSave, kindCommit:
		if !exists {
			return fmt.Errorf("record %w", core.ErrNotFound)
		}
		r := o.row
		r.flags |= old.flags
		t.changes[s] = change{row: &r, fresh: t.changes[s].fresh}
		for _, g := range o.given {
			t.give(m, g)
		}
	case kindForget:
		if exists {
			t.changes[s] = change{}
		}
		for _, g := range o.given {
			t.give(m, g)
		}
	}
	return nil
}

// applyUplink is apply for an uplink.
func (t *txn) applyUplink(m *memory, o *op) error {
	s := slot{uplinks, o.link}
	_, exists := t.row(m, s)
	switch o.kind {
	case kindTake:
		if exists {
			return fmt.Errorf("uplink %w", core.ErrExists)
		}
		t.changes[s] = change{row: &o.row}
	case kindMove:
		if !exists {
			return fmt.Errorf("uplink %w", core.ErrNotFound)
		}
		t.changes[s] = change{row: &o.row}
	case kindReturn:
		if exists {
			t.changes[s] = change{}
		}
	}
	return nil
}

// give remembers a release in place of the same interface's last one.
func (t *txn) give(m *memory, g given) {
	last, known := t.ids[g.id]
	if !known {
		last, known = m.givenBy[g.id]
	}
	if known && last.seq >= g.seq {
		return // a repeated Forget
	}
	if known {
		t.drop(last)
	}
	if !t.pruned[g.subnet] { // looking is not cheap: once per transaction
		t.pruned[g.subnet] = true
		for _, old := range m.surplus(g.subnet) {
			t.drop(old)
		}
	}
	r := g.row
	t.changes[g.slot()] = change{row: &r}
	t.ids[g.id] = g
	t.added = append(t.added, g)
}

// drop removes a release that a newer one, or the bound, replaces.
func (t *txn) drop(g given) {
	t.changes[g.slot()] = change{}
	t.dropped = append(t.dropped, g)
}

// publish makes memory what the disk is now. Delivered may have been called
// while the transaction ran: its flag stays.
func (t *txn) publish(m *memory) {
	for s, c := range t.changes {
		if c.stale {
			continue
		}
		if now, ok := m.get(s); ok && c.row != nil && !c.fresh {
			c.row.flags |= now.flags
		}
		m.set(s, c.row)
	}
	for _, g := range t.added {
		m.indexGiven(g)
	}
	for _, g := range t.dropped {
		m.dropGiven(g)
	}
}

// spoil marks everything that a failed transaction may have touched.
func (t *txn) spoil(m *memory) {
	for s := range t.changes {
		m.stale[s] = struct{}{}
	}
}
