package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// ovsFacts is what OVSDB tells of the switch and of our bridge.
type ovsFacts struct {
	version   string
	datapaths []string          // types that this vswitchd can make
	empty     bool              // not even a root row: nobody has used the database yet
	stale     bool              // vswitchd has not applied the last change
	ids       map[string]string // the root row's external_ids
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
	db, err := rows.Open(ctx, rows.Switch, rows.Place{Endpoint: endpoint}, false)
	if err != nil {
		return ovsFacts{}, fmt.Errorf("connect to OVSDB: %w", err)
	}
	defer db.Close()
	r := reader{db}
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
type reader struct{ *rows.DB }

func (r reader) root(ctx context.Context) (ovsFacts, error) {
	found, err := r.Select(ctx, "Open_vSwitch", []string{"ovs_version", "datapath_types", "cur_cfg", "next_cfg", "external_ids"})
	if err != nil || len(found) == 0 {
		return ovsFacts{empty: err == nil}, err
	}
	row := found[0]
	return ovsFacts{
		version: rows.Text(row["ovs_version"]), datapaths: rows.Texts(row["datapath_types"]),
		stale: rows.Number(row["cur_cfg"]) < rows.Number(row["next_cfg"]), ids: rows.Map(row["external_ids"]),
	}, nil
}

func (r reader) bridge(ctx context.Context, name string) (*bridgeFacts, error) {
	found, err := r.Select(ctx, "Bridge", []string{"name", "datapath_type", "fail_mode", "ports"}, rows.Is("name", name))
	if err != nil || len(found) == 0 {
		return nil, err
	}
	b := &bridgeFacts{name: name, datapath: rows.Text(found[0]["datapath_type"]), failMode: rows.Text(found[0]["fail_mode"])}
	ports, err := r.Select(ctx, "Port", []string{"_uuid", "name", "tag"})
	if err != nil {
		return nil, err
	}
	ifaces, err := r.Select(ctx, "Interface", []string{"name", "type", "ofport", "error", "external_ids"})
	if err != nil {
		return nil, err
	}
	byName := map[string]ovsdb.Row{}
	for _, i := range ifaces {
		byName[rows.Text(i["name"])] = i
	}
	ours := rows.Texts(found[0]["ports"])
	for _, p := range ports {
		if slices.Contains(ours, rows.Text(p["_uuid"])) {
			b.ports = append(b.ports, portOf(p, byName[rows.Text(p["name"])]))
		}
	}
	slices.SortFunc(b.ports, func(x, y portFacts) int { return strings.Compare(x.name, y.name) })
	return b, nil
}

func portOf(port, iface ovsdb.Row) portFacts {
	p := portFacts{
		name: rows.Text(port["name"]), tag: rows.Number(port["tag"]), kind: rows.Text(iface["type"]),
		ofport: rows.Number(iface["ofport"]), err: rows.Text(iface["error"]), ids: rows.Map(iface["external_ids"]),
	}
	return p
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
