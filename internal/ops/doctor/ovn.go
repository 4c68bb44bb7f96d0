package doctor

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// What has OVN run, on a machine alone by its packages and in a cluster by the chart.
const (
	startOVN     = "apt-get install ovn-central ovn-host && systemctl restart ovn-central ovn-host"
	startChassis = "systemctl restart ovn-host"
	startNorthd  = "systemctl restart ovn-central"
	seeCentral   = "kubectl -n kube-system get pods -o wide, as fairlead-central and fairlead-chassis are; systemctl status ovn-host where the chart does not run it"
)

// alone tells that the controller is a part of this machine's agent.
func (c Config) alone() bool { return c.OVN && c.Objects != "" }

func (c Config) nb() string { return cmp.Or(c.NB, "unix:/run/ovn/ovnnb_db.sock") }

// chassisKeys are what ovn-controller reads in Open vSwitch's database
// (ovn-controller(8)), with a value for a machine alone.
var chassisKeys = [][2]string{
	{"system-id", "$(hostname)"}, {"ovn-remote", "unix:/run/ovn/ovnsb_db.sock"}, {"ovn-encap-type", "geneve"}, {"ovn-encap-ip", "127.0.0.1"},
}

// checkChassis looks whether ovn-controller is told all that it needs.
func checkChassis(_ context.Context, m *machine) outcome {
	if m.ovsErr != nil {
		return bad(startOVS, "not known: OVSDB does not answer")
	}
	var missing, sets []string
	for _, k := range chassisKeys {
		if m.ovs.ids[k[0]] == "" {
			missing, sets = append(missing, k[0]), append(sets, "external_ids:"+k[0]+"="+k[1])
		}
	}
	if b := m.ovs.ids["ovn-bridge"]; b != m.cfg.Bridge && (b != "" || m.cfg.Bridge != "br-int") {
		missing, sets = append(missing, "ovn-bridge "+m.cfg.Bridge), append(sets, "external_ids:ovn-bridge="+m.cfg.Bridge)
	}
	if len(missing) == 0 {
		return good("%s, tunnels from %s", m.ovs.ids["system-id"], m.ovs.ids["ovn-encap-ip"])
	}
	next := "fairlead agent --ovn-remote ssl:ADDRESS:6642, which sets them"
	if m.cfg.alone() {
		next = m.cfg.vsctl("set open_vswitch . " + strings.Join(sets, " "))
	}
	return bad(next, "Open vSwitch does not say %s: ovn-controller needs it", strings.Join(missing, ", "))
}

// checkSouth looks whether ovn-controller has written itself down.
func checkSouth(ctx context.Context, m *machine) outcome {
	remote, name, next := m.ovs.ids["ovn-remote"], m.ovs.ids["system-id"], [2]string{seeCentral, seeCentral}
	if m.cfg.alone() {
		next = [2]string{startOVN, startChassis}
	}
	if remote == "" {
		return bad(next[0], "not known: Open vSwitch does not say where it is")
	}
	place := rows.Place{Endpoint: remote}
	if strings.Contains(remote, "ssl:") {
		dir := filepath.Join(m.cfg.StateDir, "ovn")
		if place.TLS = rows.FilesIn(dir); place.TLS == (rows.TLS{}) {
			return bad("fairlead status, and kubectl get csr", "%s takes a certificate, and %s has none yet: the agent asks a controller for it", remote, dir)
		}
	}
	found, err := readOVN(ctx, rows.Southbound, place, "Chassis", "name")
	switch {
	case err != nil:
		return bad(next[0], "%s: %v", remote, err)
	case !slices.ContainsFunc(found, func(row ovsdb.Row) bool { return rows.Text(row["name"]) == name }):
		return bad(next[1], "ovn-controller has not written chassis %s into %s: does it run?", name, remote)
	}
	return good("%s answers; it has chassis %s", remote, name)
}

// checkNorth looks whether northd has ever read the database.
func checkNorth(ctx context.Context, m *machine) outcome {
	if !m.cfg.alone() {
		return good("fairlead-controller's; nodes do not ask it")
	}
	at := m.cfg.nb()
	found, err := readOVN(ctx, rows.Northbound, rows.Place{Endpoint: at}, "NB_Global", "options")
	switch {
	case err != nil:
		return bad(startOVN, "%s: %v", at, err)
	case len(found) == 0 || rows.Map(found[0]["options"])["northd_internal_version"] == "":
		return bad(startNorthd, "ovn-northd has never read %s: does it run?", at)
	}
	return good("%s answers; ovn-northd has read it", at)
}

// readOVN gives one column of a table.
func readOVN(ctx context.Context, database string, p rows.Place, table, column string) ([]ovsdb.Row, error) {
	db, err := rows.Open(ctx, database, p, false)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return db.Select(ctx, table, []string{column})
}
