package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
)

// rootModel is the least that libovsdb wants to know of the database; the
// facts are read by plain selects, which change and watch nothing.
type rootModel struct {
	UUID string `ovsdb:"_uuid"`
}

// ovsFacts is what OVSDB tells of the switch and of our bridge.
type ovsFacts struct {
	version   string
	datapaths []string // types that this vswitchd can make
	empty     bool     // not even a root row: nobody has used the database yet
	stale     bool     // vswitchd has not applied the last change
	bridge    *bridgeFacts
}

// forwards tells that a bridge works with a datapath: the switch has made its
// own port.
func (f ovsFacts) forwards(bridge, datapath string) bool {
	return f.bridge != nil && f.bridge.datapath == datapath && slices.ContainsFunc(f.bridge.ports, func(p portFacts) bool {
		return p.name == bridge && p.ofport > 0
	})
}

// bridgeFacts is our bridge with its ports.
type bridgeFacts struct {
	name, datapath, failMode string
	ports                    []portFacts
}

// portFacts is one port with its interface (a bond's further ones are not ours).
type portFacts struct {
	name, kind string
	tag        int
	ofport     int // 0 = none yet
	err        string
	ids        map[string]string
}

// readOVS asks the database once.
func readOVS(ctx context.Context, endpoint, bridge string) (ovsFacts, error) {
	db, err := model.NewClientDBModel("Open_vSwitch", map[string]model.Model{"Open_vSwitch": &rootModel{}})
	if err != nil {
		return ovsFacts{}, fmt.Errorf("describe OVSDB: %w", err)
	}
	quiet := logr.Discard()
	c, err := client.NewOVSDBClient(db, client.WithEndpoint(endpoint), client.WithLogger(&quiet))
	if err != nil {
		return ovsFacts{}, fmt.Errorf("use OVSDB at %s: %w", endpoint, err)
	}
	if err := c.Connect(ctx); err != nil {
		return ovsFacts{}, fmt.Errorf("connect to OVSDB: %w", err)
	}
	defer c.Close()
	r := reader{c}
	facts, err := r.root(ctx)
	if err != nil {
		return ovsFacts{}, err
	}
	// vswitchd needs a moment for a change that was just made.
	for i := 0; facts.stale && i < 10; i++ {
		select {
		case <-ctx.Done():
			return ovsFacts{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if facts, err = r.root(ctx); err != nil {
			return ovsFacts{}, err
		}
	}
	facts.bridge, err = r.bridge(ctx, bridge)
	return facts, err
}

// reader selects rows.
type reader struct{ c client.Client }

func (r reader) rows(ctx context.Context, table string, columns []string, where ...ovsdb.Condition) ([]ovsdb.Row, error) {
	if where == nil {
		where = []ovsdb.Condition{}
	}
	res, err := r.c.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: columns, Where: where})
	if err == nil && len(res) > 0 && res[0].Error != "" {
		err = errors.New(res[0].Error + ": " + res[0].Details)
	}
	if err != nil || len(res) == 0 {
		return nil, fmt.Errorf("read table %s: %w", table, err)
	}
	return res[0].Rows, nil
}

func (r reader) root(ctx context.Context) (ovsFacts, error) {
	rows, err := r.rows(ctx, "Open_vSwitch", []string{"ovs_version", "datapath_types", "cur_cfg", "next_cfg"})
	if err != nil || len(rows) == 0 {
		return ovsFacts{empty: err == nil}, err
	}
	row := rows[0]
	return ovsFacts{
		version: text(row["ovs_version"]), datapaths: texts(row["datapath_types"]),
		stale: number(row["cur_cfg"]) < number(row["next_cfg"]),
	}, nil
}

func (r reader) bridge(ctx context.Context, name string) (*bridgeFacts, error) {
	rows, err := r.rows(ctx, "Bridge", []string{"name", "datapath_type", "fail_mode", "ports"},
		ovsdb.NewCondition("name", ovsdb.ConditionEqual, name))
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	b := &bridgeFacts{name: name, datapath: text(rows[0]["datapath_type"]), failMode: text(rows[0]["fail_mode"])}
	ports, err := r.rows(ctx, "Port", []string{"_uuid", "name", "tag"})
	if err != nil {
		return nil, err
	}
	ifaces, err := r.rows(ctx, "Interface", []string{"name", "type", "ofport", "error", "external_ids"})
	if err != nil {
		return nil, err
	}
	byName := map[string]ovsdb.Row{}
	for _, i := range ifaces {
		byName[text(i["name"])] = i
	}
	ours := texts(rows[0]["ports"])
	for _, p := range ports {
		if slices.Contains(ours, text(p["_uuid"])) {
			b.ports = append(b.ports, portOf(p, byName[text(p["name"])]))
		}
	}
	slices.SortFunc(b.ports, func(x, y portFacts) int { return strings.Compare(x.name, y.name) })
	return b, nil
}

func portOf(port, iface ovsdb.Row) portFacts {
	p := portFacts{
		name: text(port["name"]), tag: number(port["tag"]), kind: text(iface["type"]),
		ofport: number(iface["ofport"]), err: text(iface["error"]), ids: map[string]string{},
	}
	if m, ok := iface["external_ids"].(ovsdb.OvsMap); ok {
		for k, v := range m.GoMap {
			p.ids[text(k)] = text(v)
		}
	}
	return p
}

// texts are the members of a set; a lone value is a set of one (RFC 7047, 5.1).
func texts(v any) (out []string) {
	if set, ok := v.(ovsdb.OvsSet); ok {
		for _, m := range set.GoSet {
			out = append(out, text(m))
		}
		return out
	}
	if s := text(v); s != "" {
		return []string{s}
	}
	return nil
}

// text is a scalar, a UUID, or the one member of an optional column.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case ovsdb.UUID:
		return v.GoUUID
	case ovsdb.OvsSet:
		if len(v.GoSet) == 1 {
			return text(v.GoSet[0])
		}
	}
	return ""
}

// number is an integer column; 0 for an optional one that is empty.
func number(v any) int {
	switch v := v.(type) {
	case float64:
		return int(v)
	case int:
		return v
	case ovsdb.OvsSet:
		if len(v.GoSet) == 1 {
			return number(v.GoSet[0])
		}
	}
	return 0
}

const startOVS = "apt-get install openvswitch-switch && systemctl start openvswitch-switch"

func checkOVSDB(_ context.Context, m *machine) outcome {
	if m.ovsErr == nil {
		return good("%s answers; Open vSwitch %s", m.cfg.OVSDB, orUnknown(m.ovs.version))
	}
	path, unix := strings.CutPrefix(m.cfg.OVSDB, "unix:")
	if !unix || !errors.Is(exists(path), fs.ErrNotExist) {
		return bad("systemctl restart openvswitch-switch, or name the database with --ovsdb", "%s: %v", m.cfg.OVSDB, m.ovsErr)
	}
	return bad(startOVS, "the socket %s does not exist", path)
}

func orUnknown(s string) string {
	if s == "" {
		return "(version not recorded)"
	}
	return s
}

// defaultOVSDB is where ovs-vsctl looks unless it is told (/var/run is /run).
const defaultOVSDB = "unix:/run/openvswitch/db.sock"

// vsctl is a command for the database that was examined.
func (c Config) vsctl(args string) string {
	if c.OVSDB == defaultOVSDB {
		return "ovs-vsctl " + args
	}
	return "ovs-vsctl --db=" + c.OVSDB + " " + args
}

func checkVswitchd(ctx context.Context, m *machine) outcome {
	switch {
	case m.ovsErr != nil:
		return bad(startOVS, "not known: OVSDB does not answer")
	case m.ovs.empty:
		return warn(m.cfg.vsctl("init"), "the database is new: nothing tells whether it runs")
	case len(m.ovs.datapaths) == 0:
		// vswitchd writes them when it starts.
		return bad("systemctl start openvswitch-switch", "it has never run on this database")
	case m.ovs.stale:
		return bad("systemctl restart openvswitch-switch", "it does not apply changes: it is stopped, or hangs")
	}
	// The database does not tell that it died since.
	err := ovs.AskSwitchd(ctx, m.cfg.OVSDB)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return warn("ps -C ovs-vswitchd", "it had applied all changes; nothing tells whether it still runs: %v", err)
	case err != nil:
		return bad("systemctl restart openvswitch-switch", "%v", err)
	}
	return good("applies changes; datapaths %s", strings.Join(m.ovs.datapaths, ", "))
}

func checkBridge(_ context.Context, m *machine) outcome {
	b := m.ovs.bridge
	switch {
	case m.ovsErr != nil:
		return bad(startOVS, "not known: OVSDB does not answer")
	case b == nil && m.agentUp:
		return bad("systemctl restart fairlead", "%s is missing although the agent runs", m.cfg.Bridge)
	case b == nil:
		return good("%s is not there yet; the agent makes it", m.cfg.Bridge)
	}
	kind := b.datapath
	if kind == "" {
		kind = "system"
	}
	if kind == "system" && m.datapaths.kernel != nil {
		return bad(m.cfg.vsctl("set bridge "+b.name+" datapath_type=netdev")+", or modprobe openvswitch",
			"%s wants the kernel datapath, which this kernel lacks", b.name)
	}
	if broken := brokenPorts(b); len(broken) > 0 {
		o := warn(m.cfg.vsctl("show")+"; ports without a device go when their pod's DEL comes", "%s (%s) has %d ports that Open vSwitch cannot use", b.name, kind, len(broken))
		o.details = broken
		return o
	}
	return good("%s (%s), %d ports", b.name, kind, len(b.ports))
}

func brokenPorts(b *bridgeFacts) (out []string) {
	for _, p := range b.ports {
		if p.err != "" {
			out = append(out, p.name+": "+p.err)
		}
	}
	return out
}
