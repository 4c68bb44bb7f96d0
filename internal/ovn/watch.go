package ovn

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// events tells OnTouch whose rows are not what they were. The handlers run on
// libovsdb's event goroutine.
func (c *Client) events(touch func(owner string, lost bool)) cache.EventHandler {
	if touch == nil {
		return nil
	}
	return &cache.EventHandlerFuncs{
		UpdateFunc: func(table string, old, now model.Model) {
			m, ours := marked(old)
			if !ours {
				return
			}
			meant := c.meant.take(uuidOf(now))
			if n, _ := marked(now); n.owner != m.owner || rewritten(old, now, meant) {
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

// writes are rows, by uuid, as this client writes them, until the replica has them or
// they failed.
type writes struct {
	mu   sync.Mutex
	rows map[string]Row
}

func (w *writes) put(rows map[string]Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rows == nil {
		w.rows = map[string]Row{}
	}
	maps.Copy(w.rows, rows)
}

func (w *writes) drop(rows map[string]Row) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uuid := range rows {
		delete(w.rows, uuid)
	}
}

// take gives the row, nil for none, and forgets it.
func (w *writes) take(uuid string) model.Model {
	w.mu.Lock()
	defer w.mu.Unlock()
	row, has := w.rows[uuid]
	if !has {
		return nil
	}
	delete(w.rows, uuid)
	return row
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
