package ovn

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

// draft is one transaction in the making for several Sets.
type draft struct {
	v     session.View
	t     session.Txn
	made  map[id]ovsdb.UUID // rows that it inserts
	gone  map[string]bool   // uuids of rows that it deletes
	stand map[string]bool   // uuids of rows that it expects to be there
	put   map[slot][]any    // references that it adds, of many Sets as one operation
	order []slot            // of put
	meant map[string]Row    // rows that it changes, as they are to be, by uuid

	// What was looked up before: a port group may hold thousands of rows.
	rows map[id]model.Model
	held map[slot]map[string]bool
}

// slot is a column of one row.
type slot struct{ table, uuid, column string }

func newDraft(v session.View) *draft {
	return &draft{
		v: v, made: map[id]ovsdb.UUID{}, gone: map[string]bool{}, stand: map[string]bool{},
		put: map[slot][]any{}, meant: map[string]Row{}, rows: map[id]model.Model{}, held: map[slot]map[string]bool{},
	}
}

// errTangled tells that a Set removes what another one of the same transaction
// has just begun to use: it must have a transaction of its own.
var errTangled = errors.New("a row of it is in use by another change of this moment")

// have are an owner's rows as the replica has them; spare are second rows with
// a key, which nobody needs.
type have struct {
	rows  map[id]model.Model
	spare []model.Model
	kinds map[string]*kind // by uuid
}

func (d *draft) have(owner string) have {
	h := have{rows: map[id]model.Model{}, kinds: map[string]*kind{}}
	for _, k := range kinds {
		for _, row := range d.marked(k, KeyOwner, owner) {
			m, ok := marked(row)
			if !ok || m.owner != owner {
				continue
			}
			h.kinds[uuidOf(row)] = k
			if at := (id{k.table, m.key}); h.rows[at] == nil {
				h.rows[at], d.rows[at] = row, row
			} else {
				h.spare = append(h.spare, row)
			}
		}
	}
	return h
}

// marked gives the rows of a table with one part of our mark: by index, or all
// where the table has no external ids.
func (d *draft) marked(k *kind, key, val string) []model.Model {
	if _, has := field(k.row, "external_ids"); !has {
		return d.v.All(k.table)
	}
	return d.v.ByID(k.table, key, val)
}

// add adds a Set's difference. What is wrong with the Set it says before it
// has added anything.
func (d *draft) add(s *Set) error {
	h := d.have(s.Owner)
	if err := d.check(s, h); err != nil {
		return err
	}
	// Rows that go free names and places for those that come.
	for at, row := range h.rows {
		if s.index[at] == nil {
			d.remove(h.kinds[uuidOf(row)], row)
		}
	}
	for _, row := range h.spare {
		d.remove(h.kinds[uuidOf(row)], row)
	}
	order := slices.Clone(s.rows)
	slices.SortStableFunc(order, func(a, b *desired) int {
		return slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind)
	})
	for _, r := range order {
		if row := h.rows[r.id()]; row == nil {
			d.made[r.id()] = d.t.Insert(r.kind.table, d.content(r))
		} else {
			d.change(r, row)
		}
	}
	for _, r := range order { // when all are there that places and rows may be in
		d.place(r, h.rows[r.id()])
	}
	return nil
}

// check proves that all that the Set refers to is there, and that its names
// are free.
func (d *draft) check(s *Set, h have) error {
	if err := s.check(); err != nil {
		return err
	}
	for at, row := range h.rows {
		if s.index[at] == nil && d.stand[uuidOf(row)] {
			return errTangled
		}
	}
	for _, r := range s.rows {
		if err := d.possible(s, h, r); err != nil {
			return err
		}
	}
	return nil
}

// possible proves that one row of the Set can be what it should.
func (d *draft) possible(s *Set, h have, r *desired) error {
	if err := d.supported(r); err != nil {
		return err
	}
	if h.rows[r.id()] == nil {
		if err := d.free(s, r); err != nil {
			return err
		}
	}
	for _, want := range r.needs() {
		// A row of the Set's own that goes with this change is none.
		if s.index[want] == nil && (h.rows[want] != nil || d.find(want) == "") {
			return &MissingError{Table: want.table, Key: want.key, For: r.kind.table + " " + r.key}
		}
	}
	return nil
}

// needs are the rows that must be there.
func (d *desired) needs() (out []id) {
	for _, p := range d.places {
		out = append(out, id{p.Table, p.Key})
	}
	for _, r := range d.refs {
		out = append(out, id{r.Table, r.Key})
	}
	return out
}

// supported proves that the server has the table, and each column in which the
// row has something that is not optional.
func (d *draft) supported(r *desired) error {
	if !d.v.Has(r.kind.table, "") {
		return &UnsupportedError{Table: r.kind.table}
	}
	v := reflect.ValueOf(r.row).Elem()
	for _, c := range columnsOf(v.Type()) {
		if !v.Field(c.at).IsZero() && !d.v.Has(r.kind.table, c.name) {
			return &UnsupportedError{Table: r.kind.table, Column: c.name}
		}
	}
	for _, ref := range r.refs {
		if !ref.Optional && !d.v.Has(r.kind.table, ref.Column) {
			return &UnsupportedError{Table: r.kind.table, Column: ref.Column}
		}
	}
	return nil
}

// free proves that a new row's key, and a name that the schema wants unique,
// is nobody's.
func (d *draft) free(s *Set, r *desired) error {
	if _, made := d.made[r.id()]; made {
		return &TakenError{Table: r.kind.table, Key: r.key, Owner: "another change of this moment"}
	}
	rows := d.marked(r.kind, KeyKey, r.key)
	if name := text(r.row, "name"); r.kind.unique && name != "" {
		rows = append(rows, d.v.ByName(r.kind.table, name)...)
	}
	for _, row := range rows {
		m, _ := marked(row) // no owner for a row of somebody else
		same := m.key == r.key || text(row, "name") == text(r.row, "name")
		if same && !d.gone[uuidOf(row)] && m.owner != s.Owner {
			return &TakenError{Table: r.kind.table, Key: r.key, Owner: m.owner}
		}
	}
	return nil
}

// find is a reference to a row of ours, "" for none.
func (d *draft) find(at id) string {
	if u, ok := d.made[at]; ok {
		return u.GoUUID
	}
	if row := d.row(at); row != nil {
		return uuidOf(row)
	}
	return ""
}

// row is a row of ours as the replica has it, nil for none.
func (d *draft) row(at id) model.Model {
	row, known := d.rows[at]
	if !known {
		for _, r := range d.marked(kindNamed(at.table), KeyKey, at.key) {
			if m, ok := marked(r); ok && m.key == at.key {
				row = r
				break
			}
		}
		d.rows[at] = row
	}
	if row == nil || d.gone[uuidOf(row)] {
		return nil
	}
	return row
}

// holds tells that a row's column of references has one. From the second
// question on it asks a map.
func (d *draft) holds(at slot, row model.Model, uuid string) bool {
	in, asked := d.held[at]
	switch {
	case !asked:
		d.held[at] = nil
		return slices.Contains(strs(row, at.column), uuid)
	case in == nil:
		in = map[string]bool{}
		for _, u := range strs(row, at.column) {
			in[u] = true
		}
		d.held[at] = in
	}
	return in[uuid]
}

// fill adds a reference to a column. The operation comes when the draft is done.
func (d *draft) fill(at slot, uuid string) {
	if len(d.put[at]) == 0 {
		d.order = append(d.order, at)
	}
	d.put[at] = append(d.put[at], ovsdb.UUID{GoUUID: uuid})
}

// finish gives the transaction whole.
func (d *draft) finish() *session.Txn {
	for _, at := range d.order {
		d.t.Mutate(at.table, at.uuid, ovsdb.NewMutation(at.column, ovsdb.MutateOperationInsert, session.Set(d.put[at]...)))
	}
	d.order = nil
	return &d.t
}

// size grows with each change.
func (d *draft) size() (n int) {
	for _, refs := range d.put {
		n += len(refs)
	}
	return n + len(d.t.Ops)
}

// content is a new row.
func (d *draft) content(r *desired) ovsdb.Row {
	out := ovsdb.Row{}
	v := reflect.ValueOf(r.row).Elem()
	for _, c := range columnsOf(v.Type()) {
		if f := v.Field(c.at); c.ref == "" && !c.read && !f.IsZero() {
			out[c.name] = notation(f)
		}
	}
	for _, ref := range r.refs {
		if !d.v.Has(r.kind.table, ref.Column) {
			continue
		}
		out[ref.Column] = session.Set(d.refers(r, ref.Column)...)
	}
	return out
}

// refers are the references that a row should have in a column that its Refs
// fill.
func (d *draft) refers(r *desired, column string) (out []any) {
	for _, ref := range r.refs {
		if ref.Column == column {
			out = append(out, ovsdb.UUID{GoUUID: d.find(id{ref.Table, ref.Key})})
		}
	}
	return out
}

// change makes a row of ours what it should be.
func (d *draft) change(r *desired, row model.Model) {
	now, uuid := ovsdb.Row{}, uuidOf(row)
	var deltas []*ovsdb.Mutation
	v := reflect.ValueOf(r.row).Elem()
	for _, c := range columnsOf(v.Type()) {
		old, has := field(row, c.name)
		if !has || c.ref != "" || c.read || equal(old, v.Field(c.at)) {
			continue
		}
		if old.Kind() == reflect.Slice {
			deltas = append(deltas, delta(c.name, old, v.Field(c.at))...)
		} else {
			now[c.name] = notation(v.Field(c.at))
		}
	}
	d.changeRefs(r, row, now)
	if len(now) == 0 && len(deltas) == 0 {
		return
	}
	d.expect(r.kind.table, row)
	d.meant[uuid] = r.row
	if len(now) > 0 {
		d.t.Update(r.kind.table, uuid, now)
	}
	if len(deltas) > 0 {
		d.t.Mutate(r.kind.table, uuid, deltas...)
	}
}

// changeRefs adds to now the columns of references that the row's Refs fill and
// that are not as they should be.
func (d *draft) changeRefs(r *desired, row model.Model, now ovsdb.Row) {
	for _, c := range columnsOf(reflect.TypeOf(r.row).Elem()) {
		old, has := field(row, c.name)
		if !has || c.ref == "" || !c.own && old.Kind() != reflect.Pointer {
			continue
		}
		want := d.refers(r, c.name)
		is := strs(row, c.name)
		if old.Kind() == reflect.Pointer && !old.IsNil() {
			is = []string{old.Elem().String()}
		}
		same := len(is) == len(want)
		for _, ref := range want {
			u, _ := ref.(ovsdb.UUID)
			same = same && slices.Contains(is, u.GoUUID)
		}
		if !same {
			now[c.name] = session.Set(want...)
		}
	}
}

// place puts a row into its places, and takes it out of those that it had.
func (d *draft) place(r *desired, old model.Model) {
	self := d.find(r.id())
	if old != nil {
		m, _ := marked(old)
		for _, p := range m.places {
			if !slices.Contains(r.places, p) {
				d.unplace(p, self)
			}
		}
	}
	for _, p := range r.places {
		at := slot{p.Table, d.find(id{p.Table, p.Key}), p.Column}
		parent := d.row(id{p.Table, p.Key})
		if parent != nil && d.holds(at, parent, self) {
			continue
		}
		if parent != nil { // else it is new itself
			d.expect(p.Table, parent)
		}
		d.fill(at, self)
	}
}

// unplace takes a row out of one place, if that is there.
func (d *draft) unplace(p Place, uuid string) {
	if parent := d.row(id{p.Table, p.Key}); parent != nil && slices.Contains(strs(parent, p.Column), uuid) {
		d.t.Drop(p.Table, uuidOf(parent), p.Column, ovsdb.UUID{GoUUID: uuid})
	}
}

func (d *draft) remove(k *kind, row model.Model) {
	m, _ := marked(row)
	for _, p := range m.places {
		d.unplace(p, uuidOf(row))
	}
	d.t.Remove(k.table, uuidOf(row))
	d.gone[uuidOf(row)] = true
}

// expect fails the transaction if a row of ours is not there any more: changes
// of a row that is gone would be a success.
func (d *draft) expect(table string, row model.Model) {
	uuid := uuidOf(row)
	if d.stand[uuid] {
		return
	}
	d.stand[uuid] = true
	if name := text(row, "name"); name != "" {
		d.t.Expect(table, uuid, "name", name)
		return
	}
	d.t.Expect(table, uuid, "external_ids", session.Map(ids(row)))
}

// equal compares two values of a column; sets have no order.
func equal(a, b reflect.Value) bool {
	switch x := a.Interface().(type) {
	case []string:
		y, _ := b.Interface().([]string)
		return len(x) == len(y) && slices.Equal(sorted(x), sorted(y))
	case map[string]string:
		y, _ := b.Interface().(map[string]string)
		return maps.Equal(x, y)
	}
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		return a.Elem().Interface() == b.Elem().Interface()
	}
	return a.Interface() == b.Interface()
}

// sorted is a list in order, a copy if it was not.
func sorted(list []string) []string {
	if slices.IsSorted(list) {
		return list
	}
	return slices.Sorted(slices.Values(list))
}

// delta are the changes that make a set of strings another: what comes is
// added before what goes is taken out, for columns that may not be empty.
func delta(name string, old, now reflect.Value) (out []*ovsdb.Mutation) {
	x, _ := old.Interface().([]string)
	y, _ := now.Interface().([]string)
	if more := without(y, x); len(more) > 0 {
		out = append(out, ovsdb.NewMutation(name, ovsdb.MutateOperationInsert, session.Set(more...)))
	}
	if less := without(x, y); len(less) > 0 {
		out = append(out, ovsdb.NewMutation(name, ovsdb.MutateOperationDelete, session.Set(less...)))
	}
	return out
}

// without are the elements of a that b has not.
func without(a, b []string) (out []any) {
	in := make(map[string]bool, len(b))
	for _, s := range b {
		in[s] = true
	}
	for _, s := range a {
		if !in[s] {
			out = append(out, s)
			in[s] = true
		}
	}
	return out
}

// notation is a column's value as OVSDB has it.
func notation(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case []string:
		return session.Set(without(x, nil)...)
	case map[string]string:
		return session.Map(x)
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return session.Set()
		}
		return session.Set(v.Elem().Interface())
	}
	return v.Interface()
}
