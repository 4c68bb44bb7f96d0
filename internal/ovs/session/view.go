package session

import (
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// View reads the replica of one connection. A row that it gives is a copy,
// unless it says otherwise.
type View struct{ tables *cache.TableCache }

// ByName finds the row of a table that is like another in a column that the
// schema has an index of; nil for none.
func ByName[T any](v View, table string, like *T) *T {
	_, row, err := v.tables.Table(table).RowByModel(like)
	if err != nil {
		return nil
	}
	r, _ := row.(*T)
	return r
}

// ByUUID is one row, nil for none.
func ByUUID[T any](v View, table, uuid string) *T {
	r, _ := v.tables.Table(table).Row(uuid).(*T)
	return r
}

// ByID gives the rows of a table with that external id, by an index of the
// Replica's.
func ByID[T any](v View, table, key, val string) []*T {
	rows := v.tables.Table(table)
	if rows.Len() == 0 { // QoS and Queue are, on most nodes
		return nil
	}
	found, err := rows.RowsByCondition([]ovsdb.Condition{
		ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, Map(map[string]string{key: val})),
	})
	if err != nil {
		return nil
	}
	return typed[T](found)
}

// Rows gives a small table (bridges, mirrors, the root) whole; the rows are the
// replica's own, to be read only.
func Rows[T any](v View, table string) []*T {
	return typed[T](v.tables.Table(table).RowsShallow())
}

func typed[T any](rows map[string]model.Model) []*T {
	out := make([]*T, 0, len(rows))
	for _, r := range rows {
		if t, ok := r.(*T); ok {
			out = append(out, t)
		}
	}
	return out
}

// Has tells that the replica follows a table, and that the server has a column
// in it; column "" asks for the table alone.
func (v View) Has(table, column string) bool {
	db := v.tables.DatabaseModel()
	if _, follows := db.Types()[table]; !follows {
		return false
	}
	return column == "" || db.Schema.Table(table).Column(column) != nil
}

// All gives a table whole, ByID the rows with that external id, ByName those
// with that name, and ByUUID one: for who reads rows of a type that it does not
// know. There are none in a table that the replica does not follow.
func (v View) All(table string) []model.Model { return v.where(table) }

// ByID is said at All.
func (v View) ByID(table, key, val string) []model.Model {
	return v.where(table, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, Map(map[string]string{key: val})))
}

// ByName is said at All.
func (v View) ByName(table, name string) []model.Model {
	return v.where(table, ovsdb.NewCondition("name", ovsdb.ConditionEqual, name))
}

// ByUUID is said at All; nil for none.
func (v View) ByUUID(table, uuid string) model.Model {
	rows := v.tables.Table(table)
	if rows == nil {
		return nil
	}
	return rows.Row(uuid)
}

func (v View) where(table string, c ...ovsdb.Condition) (out []model.Model) {
	rows := v.tables.Table(table)
	if rows == nil || rows.Len() == 0 {
		return nil
	}
	found, err := rows.RowsByCondition(c)
	if err != nil {
		return nil
	}
	for _, r := range found {
		out = append(out, r)
	}
	return out
}
