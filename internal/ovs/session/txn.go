package session

import (
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// Txn is one OVSDB transaction in the making: a printable list of operations.
// Rows that it inserts are named so that others can refer to them. Its zero
// value is empty.
type Txn struct {
	Ops   []ovsdb.Operation
	named int
}

// Insert adds a row and gives a reference to it.
func (t *Txn) Insert(table string, row ovsdb.Row) ovsdb.UUID {
	t.named++
	name := fmt.Sprintf("row%d", t.named)
	t.Ops = append(t.Ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: table, Row: row, UUIDName: name})
	return ovsdb.UUID{GoUUID: name}
}

// Update overwrites columns of one row.
func (t *Txn) Update(table, uuid string, row ovsdb.Row) {
	t.Ops = append(t.Ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: table, Where: is(uuid), Row: row})
}

// Remove deletes one row; one that is gone is no error.
func (t *Txn) Remove(table, uuid string) {
	t.Ops = append(t.Ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: table, Where: is(uuid)})
}

// Add adds an element to a set (or map) column of one row.
func (t *Txn) Add(table, uuid, column string, elem any) {
	t.Mutate(table, uuid, ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, Set(elem)))
}

// Drop takes an element out of a set (or map) column of one row.
func (t *Txn) Drop(table, uuid, column string, elem any) {
	t.Mutate(table, uuid, ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, Set(elem)))
}

// Mutate changes columns of one row by what they are now.
func (t *Txn) Mutate(table, uuid string, m ...*ovsdb.Mutation) {
	op := ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: is(uuid)}
	for _, one := range m {
		op.Mutations = append(op.Mutations, *one)
	}
	t.Ops = append(t.Ops, op)
}

// Expect fails the whole transaction, with ovsdb.TimedOut, unless the column
// of the row is so: a mutation of a missing row would be a success that leaves
// other rows behind, and the replica is not a snapshot.
func (t *Txn) Expect(table, uuid, column string, val any) {
	now := 0
	t.Ops = append(t.Ops, ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Where: is(uuid), Columns: []string{column},
		Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{column: val}}, Timeout: &now,
	})
}

// ExpectIDs fails the whole transaction, with ovsdb.TimedOut, unless the row's
// external ids hold ids and its name is so. Other external ids do not matter.
func (t *Txn) ExpectIDs(table, uuid, name string, ids map[string]string) {
	t.Expect(table, uuid, "name", name)
	wait := &t.Ops[len(t.Ops)-1]
	wait.Where = append(wait.Where, ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, Map(ids)))
}

func is(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

// Set is a set in OVSDB's notation, the empty one for no elements.
func Set(elems ...any) ovsdb.OvsSet {
	if elems == nil {
		elems = []any{}
	}
	return ovsdb.OvsSet{GoSet: elems}
}

// Refs is a set of references to rows.
func Refs(uuids []string) ovsdb.OvsSet {
	out := []any{}
	for _, u := range uuids {
		out = append(out, ovsdb.UUID{GoUUID: u})
	}
	return ovsdb.OvsSet{GoSet: out}
}

// Map is a map of strings in OVSDB's notation.
func Map[K comparable](m map[K]string) ovsdb.OvsMap {
	g := make(map[any]any, len(m))
	for k, v := range m {
		g[k] = v
	}
	return ovsdb.OvsMap{GoMap: g}
}

// Optional is an optional integer column: empty for 0.
func Optional(n int) any {
	if n == 0 {
		return Set()
	}
	return n
}
