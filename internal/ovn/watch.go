package ovn

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// events tells OnTouch whose rows are not what they were, and OnQuestion of questions. The
// handlers run on libovsdb's event goroutine.
func (c *Client) events(touch func(owner string, lost bool), asked func()) cache.EventHandler {
	if touch == nil {
		touch = func(string, bool) {}
	}
	return &cache.EventHandlerFuncs{
		AddFunc: func(table string, now model.Model) { heed(table, now, asked) },
		UpdateFunc: func(table string, old, now model.Model) {
			heed(table, now, asked)
			m, ours := marked(old)
			if !ours {
				return
			}
			own := c.meant.came(uuidOf(now), old, now)
			if n, _ := marked(now); n.owner != m.owner || !own && rewritten(old, now, nil) {
				touch(m.owner, false)
			}
			for _, owner := range c.displaced(table, old, now) {
				touch(owner, false)
			}
		},
		DeleteFunc: func(table string, old model.Model) {
			if m, ours := marked(old); ours {
				touch(m.owner, holds(table))
			}
		},
	}
}

// holds tells that rows of a table have others' rows in a column of theirs.
func holds(table string) bool {
	k := kindNamed(table)
	return k != nil && slices.ContainsFunc(columnsOf(reflect.TypeOf(k.row).Elem()), func(c column) bool {
		return c.ref != "" && !c.own && reflect.ValueOf(k.row).Elem().Field(c.at).Kind() == reflect.Slice
	})
}

// rewritten tells that a column of a row changed that a Set says, to something else than
// this client meant to write; meant is nil where it wrote nothing.
func rewritten(old, now, meant model.Model) bool {
	for _, col := range columnsOf(reflect.TypeOf(old).Elem()) {
		a, _ := field(old, col.name)
		b, has := field(now, col.name)
		if set := col.ref != "" && a.Kind() == reflect.Slice; set || col.read || !has || equal(a, b) {
			continue
		}
		if meant == nil || col.ref != "" {
			return true
		}
		if want, _ := field(meant, col.name); !equal(want, b) {
			return true
		}
	}
	return false
}

// writes are rows as this client writes them, by uuid and in order, until the replica
// has them or they failed.
type writes struct {
	mu   sync.Mutex
	rows map[string][]Row
}

func (w *writes) put(rows map[string]Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rows == nil {
		w.rows = map[string][]Row{}
	}
	for uuid, row := range rows {
		w.rows[uuid] = append(w.rows[uuid], row)
	}
}

// drop forgets rows that were not written.
func (w *writes) drop(rows map[string]Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uuid, row := range rows {
		w.left(uuid, slices.DeleteFunc(w.rows[uuid], func(r Row) bool { return r == row }))
	}
}

// came tells that a row changed to what was written; it and what was written before
// it are forgotten, and all where somebody else wrote.
func (w *writes) came(uuid string, old, now model.Model) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, row := range w.rows[uuid] {
		if !rewritten(old, now, row) {
			w.left(uuid, w.rows[uuid][i+1:])
			return true
		}
	}
	delete(w.rows, uuid)
	return false
}

func (w *writes) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.rows)
}

func (w *writes) left(uuid string, rows []Row) {
	if w.rows[uuid] = rows; len(rows) == 0 {
		delete(w.rows, uuid)
	}
}

// displaced are the owners of rows that are there and have lost a place.
func (c *Client) displaced(table string, old, now model.Model) (owners []string) {
	k := kindNamed(table)
	conn, err := c.db.Conn()
	if k == nil || err != nil {
		return nil // who connects again looks at everything
	}
	for _, col := range columnsOf(reflect.TypeOf(old).Elem()) {
		if col.ref == "" {
			continue
		}
		for _, uuid := range without(strs(old, col.name), strs(now, col.name)) {
			if row := conn.View.ByUUID(col.ref, uuid.(string)); row != nil { //nolint:forcetypeassert // of strings
				if m, ours := marked(row); ours {
					owners = append(owners, m.owner)
				}
			}
		}
	}
	return owners
}

// Owners lists who has rows in the database, sorted. It fails with
// core.ErrUnavailable while the database is away, since no owners would read as
// nothing there.
func (c *Client) Owners() ([]string, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return nil, err
	}
	owners := map[string]bool{}
	for _, k := range kinds {
		for _, row := range conn.View.All(k.table) {
			if m, ours := marked(row); ours {
				owners[m.owner] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(owners)), nil
}
