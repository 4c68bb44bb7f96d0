package ovs

import (
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// txn is one OVSDB transaction in the making: a printable list of operations.
// Rows that it inserts are named so that others can refer to them.
type txn struct {
	ops   []ovsdb.Operation
	named int
}

// insert adds a row and gives a reference to it.
func (t *txn) insert(table string, row ovsdb.Row) ovsdb.UUID {
	t.named++
	name := fmt.Sprintf("row%d", t.named)
	t.ops = append(t.ops, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: table, Row: row, UUIDName: name})
	return ovsdb.UUID{GoUUID: name}
}

func (t *txn) update(table, uuid string, row ovsdb.Row) {
	t.ops = append(t.ops, ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: table, Where: is(uuid), Row: row})
}

func (t *txn) remove(table, uuid string) {
	t.ops = append(t.ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: table, Where: is(uuid)})
}

// add and drop change one set (or map) column of one row.
func (t *txn) add(table, uuid, column string, elem any) {
	t.mutate(table, uuid, ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, ovsSet(elem)))
}

func (t *txn) drop(table, uuid, column string, elem any) {
	t.mutate(table, uuid, ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, ovsSet(elem)))
}

func (t *txn) mutate(table, uuid string, m *ovsdb.Mutation) {
	t.ops = append(t.ops, ovsdb.Operation{Op: ovsdb.OperationMutate, Table: table, Where: is(uuid), Mutations: []ovsdb.Mutation{*m}})
}

// expect fails the whole transaction, with ovsdb.TimedOut, unless the column
// of the row is so: a mutation of a missing row would be a success that leaves
// QoS rows behind, and the replica is not a snapshot.
func (t *txn) expect(table, uuid, column string, val any) {
	now := 0
	t.ops = append(t.ops, ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: table, Where: is(uuid), Columns: []string{column},
		Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{column: val}}, Timeout: &now,
	})
}

func is(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

func ovsSet(elems ...any) ovsdb.OvsSet {
	if elems == nil {
		elems = []any{}
	}
	return ovsdb.OvsSet{GoSet: elems}
}

// refs is a set of references to rows.
func refs(uuids []string) ovsdb.OvsSet {
	out := []any{}
	for _, u := range uuids {
		out = append(out, ovsdb.UUID{GoUUID: u})
	}
	return ovsdb.OvsSet{GoSet: out}
}

func ovsMap[K comparable](m map[K]string) ovsdb.OvsMap {
	g := make(map[any]any, len(m))
	for k, v := range m {
		g[k] = v
	}
	return ovsdb.OvsMap{GoMap: g}
}

// optional is an optional integer column: empty for 0.
func optional(n int) any {
	if n == 0 {
		return ovsSet()
	}
	return n
}
