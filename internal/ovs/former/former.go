// Package former keeps what an Open vSwitch has of whoever had it before Fairlead, and
// puts it back: external ids of the switch, bridges, ports. It looks once and changes by
// one transaction, and follows nothing. It must not know what is kept for, or where.
package former

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// Switch is what there is. Rows that are nobody's, in Kube-OVN's terms, are in it too.
type Switch struct {
	IDs     map[string]string // external ids of the switch itself
	Bridges []Bridge          // by name
	Ports   []Port            // by name
}

// Bridge is one, but for its ports.
type Bridge struct {
	Name     string
	Datapath string // "netdev" is the userspace one
	FailMode string
	IDs      map[string]string // external_ids
	Other    map[string]string // other_config
}

// Port is one with its Interface.
type Port struct {
	Name    string
	Bridge  string
	Type    string            // of the Interface
	Members int               // Interfaces: more than one make a bond, of which the rest here is the first's
	IDs     map[string]string // external ids of the Interface
	Tag     []int             // none or one
	Trunks  []int
	Mode    string            // vlan_mode
	Other   map[string]string `json:",omitempty"` // other_config
	Rate    int               // ingress_policing_rate, kbit/s
	Burst   int               // ingress_policing_burst, kbit
	QoS     *QoS              `json:",omitempty"`
}

// QoS is a port's, with its queues by number.
type QoS struct {
	Type   string
	Other  map[string]string
	IDs    map[string]string
	Queues map[int]Queue
}

// Queue is one of a QoS.
type Queue struct {
	Other map[string]string
	IDs   map[string]string
}

// Tables of the Open_vSwitch schema.
const (
	tRoot      = "Open_vSwitch"
	tBridge    = "Bridge"
	tPort      = "Port"
	tInterface = "Interface"
	tQoS       = "QoS"
	tQueue     = "Queue"
)

// columns are what is read of each table.
var columns = map[string][]string{
	tRoot:      {"_uuid", "external_ids"},
	tBridge:    {"_uuid", "name", "ports", "datapath_type", "fail_mode", "external_ids", "other_config"},
	tPort:      {"_uuid", "name", "interfaces", "tag", "trunks", "vlan_mode", "qos", "other_config"},
	tInterface: {"_uuid", "name", "type", "external_ids", "ingress_policing_rate", "ingress_policing_burst"},
	tQoS:       {"_uuid", "type", "other_config", "external_ids", "queues"},
	tQueue:     {"_uuid", "other_config", "external_ids"},
}

// Open connects to a switch's database.
func Open(ctx context.Context, endpoint string) (*rows.DB, error) {
	if strings.HasPrefix(endpoint, "/") {
		endpoint = "unix:" + endpoint
	}
	db, err := rows.Open(ctx, rows.Switch, rows.Place{Endpoint: endpoint}, false)
	if err != nil {
		return nil, fmt.Errorf("Open vSwitch's database at %s: %w", endpoint, err)
	}
	return db, nil
}

// Look reads all.
func Look(ctx context.Context, db *rows.DB) (Switch, error) {
	f, err := find(ctx, db)
	return f.Switch, err
}

// found is a Switch with its rows.
type found struct {
	Switch
	root    string
	bridges map[string]string // by name
	ports   map[string]refs   // by name
}

// refs are the rows of a port; qos is "" for none.
type refs struct {
	port, iface, qos string
	queues           []string
}

// table is a table's rows by UUID.
type table map[string]ovsdb.Row

func find(ctx context.Context, db *rows.DB) (found, error) {
	all := map[string]table{}
	for name, cols := range columns {
		list, err := db.Select(ctx, name, cols)
		if err != nil {
			return found{}, err
		}
		all[name] = table{}
		for _, r := range list {
			all[name][rows.Text(r["_uuid"])] = r
		}
	}
	f := found{bridges: map[string]string{}, ports: map[string]refs{}}
	for uuid, r := range all[tRoot] {
		f.root, f.IDs = uuid, rows.Map(r["external_ids"])
	}
	for uuid, r := range all[tBridge] {
		b := Bridge{
			Name: rows.Text(r["name"]), Datapath: rows.Text(r["datapath_type"]), FailMode: rows.Text(r["fail_mode"]),
			IDs: rows.Map(r["external_ids"]), Other: rows.Map(r["other_config"]),
		}
		f.Bridges, f.bridges[b.Name] = append(f.Bridges, b), uuid
		for _, port := range rows.Texts(r["ports"]) {
			f.addPort(all, b.Name, port)
		}
	}
	slices.SortFunc(f.Bridges, func(a, b Bridge) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Ports, func(a, b Port) int { return cmp.Compare(a.Name, b.Name) })
	return f, nil
}

func (f *found) addPort(all map[string]table, bridge, uuid string) {
	r, there := all[tPort][uuid]
	members := rows.Texts(r["interfaces"])
	if !there || len(members) == 0 { // gone between two reads
		return
	}
	i := all[tInterface][members[0]]
	p := Port{
		Name: rows.Text(r["name"]), Bridge: bridge, Members: len(members), Tag: numbers(r["tag"]), Trunks: numbers(r["trunks"]), Mode: rows.Text(r["vlan_mode"]), Other: rows.Map(r["other_config"]),
		Type: rows.Text(i["type"]), IDs: rows.Map(i["external_ids"]), Rate: rows.Number(i["ingress_policing_rate"]), Burst: rows.Number(i["ingress_policing_burst"]),
	}
	at := refs{port: uuid, iface: members[0], qos: rows.Text(r["qos"])}
	if q, has := all[tQoS][at.qos]; has {
		p.QoS = &QoS{Type: rows.Text(q["type"]), Other: rows.Map(q["other_config"]), IDs: rows.Map(q["external_ids"]), Queues: map[int]Queue{}}
		for n, queue := range queues(q["queues"]) {
			row := all[tQueue][queue]
			p.QoS.Queues[n] = Queue{Other: rows.Map(row["other_config"]), IDs: rows.Map(row["external_ids"])}
			at.queues = append(at.queues, queue)
		}
	}
	f.Ports, f.ports[p.Name] = append(f.Ports, p), at
}

// numbers are the members of a set of integers, in order; a lone one is a set of one.
func numbers(v any) (out []int) {
	set, many := v.(ovsdb.OvsSet)
	if !many {
		return []int{rows.Number(v)}
	}
	for _, one := range set.GoSet {
		out = append(out, rows.Number(one))
	}
	slices.Sort(out)
	return out
}

// queues are the rows of a QoS' queues by number.
func queues(v any) map[int]string {
	out := map[int]string{}
	if m, ok := v.(ovsdb.OvsMap); ok {
		for k, queue := range m.GoMap {
			out[rows.Number(k)] = rows.Text(queue)
		}
	}
	return out
}

// Bridge is the bridge of that name.
func (s Switch) Bridge(name string) (Bridge, bool) {
	i := slices.IndexFunc(s.Bridges, func(b Bridge) bool { return b.Name == name })
	if i < 0 {
		return Bridge{}, false
	}
	return s.Bridges[i], true
}

// Port is the port of that name.
func (s Switch) Port(name string) (Port, bool) {
	i := slices.IndexFunc(s.Ports, func(p Port) bool { return p.Name == name })
	if i < 0 {
		return Port{}, false
	}
	return s.Ports[i], true
}
