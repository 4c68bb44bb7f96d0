package ovn

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

const (
	database = "OVN_Northbound"
	tGlobal  = "NB_Global"
)

// Tables that Places and Refs name.
const (
	TableSwitch            = "Logical_Switch"
	TableSwitchPort        = "Logical_Switch_Port"
	TableRouter            = "Logical_Router"
	TableRouterPort        = "Logical_Router_Port"
	TablePortGroup         = "Port_Group"
	TableAddressSet        = "Address_Set"
	TableLoadBalancer      = "Load_Balancer"
	TableLoadBalancerGroup = "Load_Balancer_Group"
	TableDHCPOptions       = "DHCP_Options"
	TableMeter             = "Meter"
	TableMeterBand         = "Meter_Band"
	TableHAChassisGroup    = "HA_Chassis_Group"
)

// kind is a table whose rows a Set may hold.
type kind struct {
	table string
	row   Row
	// root rows stay without a reference; the others go with their last one.
	root bool
	// unique names are so by the schema, foreign rows included.
	unique bool
}

// kinds are in an order in which a row comes after those that its own columns
// may refer to.
var kinds = []*kind{
	{TableDHCPOptions, &DHCPOptions{}, true, false},
	{TableHAChassisGroup, &HAChassisGroup{}, true, true},
	{"HA_Chassis", &HAChassis{}, false, false},
	{"Chassis_Template_Var", &TemplateVars{}, true, false},
	{TableLoadBalancer, &LoadBalancer{}, true, false},
	{TableLoadBalancerGroup, &LoadBalancerGroup{}, true, true},
	{TableSwitch, &LogicalSwitch{}, true, false},
	{TableSwitchPort, &LogicalSwitchPort{}, false, true},
	{TableRouter, &LogicalRouter{}, true, false},
	{TableRouterPort, &LogicalRouterPort{}, false, true},
	{"Gateway_Chassis", &GatewayChassis{}, false, true},
	{"Logical_Router_Static_Route", &StaticRoute{}, false, false},
	{"Logical_Router_Policy", &Policy{}, false, false},
	{"NAT", &NAT{}, false, false},
	{TablePortGroup, &PortGroup{}, true, true},
	{TableMeterBand, &MeterBand{}, true, false}, // a meter without one cannot be made, so that the meter refers to it
	{TableMeter, &Meter{}, true, true},
	{"ACL", &ACL{}, false, false},
	{TableAddressSet, &AddressSet{}, true, true},
}

// kindOf finds the kind of a row, nil for a type that is none.
func kindOf(row Row) *kind {
	for _, k := range kinds {
		if reflect.TypeOf(k.row) == reflect.TypeOf(row) {
			return k
		}
	}
	return nil
}

func kindNamed(table string) *kind {
	for _, k := range kinds {
		if k.table == table {
			return k
		}
	}
	return nil
}

// column is a field of a row.
type column struct {
	name string
	ref  string // table that it refers to
	own  bool   // a set of references that the row's Refs fill
	read bool
	at   int
}

// shape is what reflection tells of a row type, once: it is asked for each row and
// column of each change.
type shape struct {
	columns []column
	at      map[string]int // field by column, _uuid too
}

func newShape(t reflect.Type) *shape {
	s := &shape{at: map[string]int{}}
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name := tag.Get("ovsdb")
		s.at[name] = i
		if name != "_uuid" {
			s.columns = append(s.columns, column{name: name, ref: tag.Get("ref"), own: tag.Get("own") != "", read: tag.Get("read") != "", at: i})
		}
	}
	return s
}

// shapes are those that were asked for, by type: servers that lack columns have row
// types of their own.
var shapes sync.Map

func shapeOf(t reflect.Type) *shape {
	if s, known := shapes.Load(t); known {
		return s.(*shape) //nolint:forcetypeassert // nothing else is in it
	}
	s := newShape(t)
	shapes.Store(t, s)
	return s
}

// columnsOf lists the columns of a row type but _uuid.
func columnsOf(t reflect.Type) []column { return shapeOf(t).columns }

// field gives a row's value in a column; false for a row without it.
func field(row model.Model, name string) (reflect.Value, bool) {
	v := reflect.ValueOf(row).Elem()
	if at, has := shapeOf(v.Type()).at[name]; has {
		return v.Field(at), true
	}
	return reflect.Value{}, false
}

// text is a row's column of strings, "" for none.
func text(row model.Model, name string) string {
	v, ok := field(row, name)
	if !ok || v.Kind() != reflect.String {
		return ""
	}
	return v.String()
}

func uuidOf(row model.Model) string { return text(row, "_uuid") }

// ids are a row's external ids; they must not be changed.
func ids(row model.Model) map[string]string {
	v, ok := field(row, "external_ids")
	if !ok {
		return nil
	}
	m, _ := v.Interface().(map[string]string)
	return m
}

// strs is a row's set of strings or references; it must not be changed.
func strs(row model.Model, name string) []string {
	v, ok := field(row, name)
	if !ok {
		return nil
	}
	s, _ := v.Interface().([]string)
	return s
}

// fitted is a row type without the columns that a server does not have. Rows
// of such a type copy themselves through JSON.
func fitted(row model.Model, table *ovsdb.TableSchema) model.Model {
	t := reflect.TypeOf(row).Elem()
	var fields []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		if c := f.Tag.Get("ovsdb"); c == "_uuid" || table.Column(c) != nil {
			fields = append(fields, f)
		}
	}
	if len(fields) == t.NumField() {
		return row
	}
	return reflect.New(reflect.StructOf(fields)).Interface()
}

// replica follows those of our tables and columns that the server has, with
// indexes of our mark.
func replica(schema ovsdb.DatabaseSchema) (session.Replica, error) {
	rows := map[string]model.Model{tGlobal: &nbGlobal{}}
	for _, k := range kinds {
		rows[k.table] = k.row
	}
	indexes := map[string][]model.ClientIndex{}
	var monitor []client.MonitorOption
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table := schema.Table(name)
		if table == nil {
			delete(rows, name)
			continue
		}
		rows[name] = fitted(rows[name], table)
		monitor = append(monitor, client.WithTable(rows[name]))
		if name != tGlobal && table.Column("external_ids") != nil {
			indexes[name] = []model.ClientIndex{byID(KeyOwner), byID(KeyKey)}
		}
	}
	m, err := model.NewClientDBModel(database, rows)
	if err != nil {
		return session.Replica{}, err
	}
	m.SetIndexes(indexes)
	return session.Replica{Model: m, Monitor: monitor}, nil
}

func byID(key string) model.ClientIndex {
	return model.ClientIndex{Columns: []model.ColumnKey{{Column: "external_ids", Key: key}}}
}
