package ovn

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// External ids that make our mark on a row.
const (
	// KeyVendor has the value Vendor on all that Fairlead makes, as in the
	// reference (sdn.md, 11).
	KeyVendor = "vendor"
	// KeyOwner is the Set to which the row belongs.
	KeyOwner = "fairlead-owner"
	// KeyKey names the row within its table.
	KeyKey = "fairlead-key"
	// KeyPlaces are the columns of other rows that hold the row, as JSON.
	KeyPlaces = "fairlead-places"

	// Vendor is the value of KeyVendor.
	Vendor = "kube-ovn"
)

// Place is a column of references in another row of ours that is to hold a
// row: a port's is its switch's ports.
type Place struct{ Table, Key, Column string }

// The places that most rows have.
func portOf(table, key string) Place { return Place{Table: table, Key: key, Column: "ports"} }

// InSwitch is the place of a port of a logical switch.
func InSwitch(name string) Place { return portOf(TableSwitch, name) }

// InRouter is the place of a port of a logical router.
func InRouter(name string) Place { return portOf(TableRouter, name) }

// RuleOfSwitch is the place of an ACL of a logical switch.
func RuleOfSwitch(name string) Place { return Place{TableSwitch, name, "acls"} }

// RuleOfGroup is the place of an ACL of a port group.
func RuleOfGroup(name string) Place { return Place{TablePortGroup, name, "acls"} }

// InGroup is the place of a port in a port group.
func InGroup(name string) Place { return portOf(TablePortGroup, name) }

// RouteOf is the place of a static route of a logical router.
func RouteOf(router string) Place { return Place{TableRouter, router, "static_routes"} }

// PolicyOf is the place of a policy route of a logical router.
func PolicyOf(router string) Place { return Place{TableRouter, router, "policies"} }

// InBalancers is the place of a load balancer in a group of them.
func InBalancers(group string) Place { return Place{TableLoadBalancerGroup, group, "load_balancer"} }

// Balancers refers a switch to a group of load balancers.
func Balancers(group string) Ref {
	return Ref{Column: "load_balancer_group", Table: TableLoadBalancerGroup, Key: group}
}

// Band refers a meter to what it does.
func Band(key string) Ref { return Ref{Column: "bands", Table: TableMeterBand, Key: key} }

// GatewayPort has a translation be done at one of its router's ports. Without it northd takes the
// port whose network has the external address, and where a router has several ports with gateway
// chassis it takes none for an address in no network of theirs.
func GatewayPort(name string) Ref {
	return Ref{Column: "gateway_port", Table: TableRouterPort, Key: name, Optional: true}
}

// Ref fills a column of a row with a reference to another row of ours. One that is Optional is left
// out where the server lacks the column.
type Ref struct {
	Column, Table, Key string
	Optional           bool
}

// Link is a Place or a Ref.
type Link interface{ link(*desired) error }

func (p Place) link(d *desired) error {
	k := kindNamed(p.Table)
	if k == nil {
		return fmt.Errorf("place in %s: not a table of ours", p.Table)
	}
	if c := columnOf(k, p.Column); c.ref != d.kind.table || c.own {
		return fmt.Errorf("place in %s.%s: no place for a row of %s", p.Table, p.Column, d.kind.table)
	}
	d.places = append(d.places, p)
	return nil
}

func (r Ref) link(d *desired) error {
	if columnOf(d.kind, r.Column).ref != r.Table {
		return fmt.Errorf("%s.%s: it does not refer to %s", d.kind.table, r.Column, r.Table)
	}
	d.refs = append(d.refs, r)
	return nil
}

// columnOf is a column by name, nothing for none.
func columnOf(k *kind, name string) column {
	for _, c := range columnsOf(reflect.TypeOf(k.row).Elem()) {
		if c.name == name {
			return c
		}
	}
	return column{}
}

// Set is all that one owner wants in the database. The Set of no rows removes
// the owner. Keys are unique within a table, among all owners. A Set is for one
// goroutine at a time.
type Set struct {
	Owner string // without "|"
	rows  []*desired
	index map[id]*desired
	err   error
}

// id names a row of ours.
type id struct{ table, key string }

// desired is a row of a Set.
type desired struct {
	kind   *kind
	key    string
	row    Row // a copy of the caller's
	places []Place
	refs   []Ref
}

// Put adds a row whose key is its name.
func (s *Set) Put(row Row, links ...Link) { s.PutKeyed(text(row, "name"), row, links...) }

// PutKeyed adds a row that has no name. What is wrong with it, Apply says.
func (s *Set) PutKeyed(key string, row Row, links ...Link) {
	d := &desired{kind: kindOf(row), key: key}
	if d.kind == nil {
		s.fail(key, fmt.Errorf("%T is no row type", row))
		return
	}
	d.row, _ = row.CloneModel().(Row)
	for _, l := range links {
		if err := l.link(d); err != nil {
			s.fail(key, err)
			return
		}
	}
	switch {
	case key == "":
		s.fail(d.kind.table, errors.New("a row without a key"))
	case !d.kind.root && len(d.places) == 0:
		s.fail(key, fmt.Errorf("a row of %s needs a place", d.kind.table))
	case s.index[d.id()] != nil:
		s.fail(key, fmt.Errorf("two rows of %s with this key", d.kind.table))
	}
	if s.index == nil {
		s.index = map[id]*desired{}
	}
	s.index[d.id()] = d
	s.rows = append(s.rows, d)
}

func (s *Set) fail(key string, err error) {
	s.err = errors.Join(s.err, fmt.Errorf("%s: %w", key, err))
}

// check is what is wrong with the Set by itself.
func (s *Set) check() error {
	if s.Owner == "" || strings.Contains(s.Owner, "|") {
		return fmt.Errorf("the owner's name is %q: it must be one without |", s.Owner)
	}
	return s.err
}

func (d *desired) id() id { return id{d.kind.table, d.key} }

// mark is what our mark on a row says.
type mark struct {
	owner, key string
	places     []Place
}

// marked reads the mark of a row; false for a row of somebody else.
func marked(row model.Model) (mark, bool) {
	if _, has := field(row, "external_ids"); !has {
		parts := strings.SplitN(text(row, "name"), "|", 3)
		if len(parts) != 3 || parts[0] != Vendor {
			return mark{}, false
		}
		return mark{owner: parts[1], key: parts[2]}, true
	}
	m := ids(row)
	if m[KeyVendor] != Vendor || m[KeyOwner] == "" || m[KeyKey] == "" {
		return mark{}, false
	}
	out := mark{owner: m[KeyOwner], key: m[KeyKey]}
	if p := m[KeyPlaces]; p != "" {
		_ = json.Unmarshal([]byte(p), &out.places) // what somebody spoilt is none: the row is put in its places again
	}
	return out, true
}

// sign writes the mark into a row.
func (d *desired) sign(owner string) {
	v, has := field(d.row, "external_ids")
	if !has {
		name, _ := field(d.row, "name")
		name.SetString(strings.Join([]string{Vendor, owner, d.key}, "|"))
		return
	}
	m, _ := v.Interface().(map[string]string)
	if m == nil {
		m = map[string]string{}
	}
	m[KeyVendor], m[KeyOwner], m[KeyKey] = Vendor, owner, d.key
	if len(d.places) > 0 {
		slices.SortFunc(d.places, func(a, b Place) int {
			return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Column, b.Column))
		})
		b, _ := json.Marshal(d.places) // strings
		m[KeyPlaces] = string(b)
	}
	v.Set(reflect.ValueOf(m))
}
