package question

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/rows"
	"github.com/fairlead/fairlead/internal/source/cluster/query"
)

// Defaults of where things are.
const (
	defaultNamespace = "kube-system"
	defaultOVSDB     = "unix:/run/openvswitch/db.sock"
	defaultState     = "/var/lib/fairlead"
	defaultMember    = "/run/fairlead/central"
	defaultCentral   = "/var/lib/fairlead/central"
	controllerName   = "fairlead-controller" // Deployment and Lease
)

// endFlags say where OVN's databases are, and by which files they are asked.
func endFlags() []Flag {
	return []Flag{
		{Name: "nb", Usage: "OVN's northbound `database` (default: the --nb of Deployment fairlead-controller, else this member of central's, or one's by exec through the API server)"},
		{Name: "sb", Usage: "OVN's southbound `database` (default: this node's ovn-remote, else this member of central's, or one's by exec through the API server)"},
		{Name: "install-namespace", Default: defaultNamespace, Usage: "`namespace` that Fairlead is installed in"},
		{Name: "ovsdb", Default: defaultOVSDB, Usage: "this node's Open vSwitch `database`"},
		{Name: "central-run-dir", Default: defaultMember, Usage: "`folder` of a member of central on this machine, or in this container: its sockets"},
		{Name: "state-dir", Default: defaultState, Usage: "this node's agent's `folder`, whose ovn/{key,cert,ca}.pem are shown to the southbound database unless others are named"},
		{Name: "private-key", Usage: "`file` with the key for databases at ssl:"},
		{Name: "certificate", Usage: "`file` with its certificate"},
		{Name: "ca-cert", Usage: "`file` with the certificate of the CA that the databases' are of"},
	}
}

// tlsOf are the files that the flags name.
func tlsOf(a Asked) rows.TLS {
	return rows.TLS{Key: a.Flags["private-key"], Certificate: a.Flags["certificate"], CA: a.Flags["ca-cert"]}
}

// member is the socket of a database of a member of central that runs here, "" where
// none does.
func member(a Asked, short string) string {
	path := filepath.Join(cmp.Or(a.Flags["central-run-dir"], defaultMember), short+".sock")
	if info, err := os.Stat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		return ""
	}
	return "unix:" + path
}

// northOf is where the northbound database is: as the flag says, else as the
// installation's Deployment does, else at a member of central that runs here, or
// behind the API server.
func northOf(ctx context.Context, a Asked) (rows.Place, error) {
	p := rows.Place{Endpoint: a.Flags["nb"], TLS: tlsOf(a)}
	if p.Endpoint != "" {
		return p, nil
	}
	var err error
	p.Endpoint, err = ofDeployment(ctx, a, "--nb=")
	if here := member(a, "nb"); here != "" && (p.Endpoint == "" || unshown(p)) {
		return rows.Place{Endpoint: here}, nil
	}
	if unshown(p) {
		return relayed(a, "nb", p, err)
	}
	return p, err
}

// ofDeployment is what the controllers are told by a flag.
func ofDeployment(ctx context.Context, a Asked, flag string) (string, error) {
	if a.API == nil {
		return "", errors.New("no kubeconfig is at hand to ask for the Deployment " + controllerName)
	}
	o, err := a.API.Get(ctx, query.Deployments, a.Flags["install-namespace"], controllerName)
	if err != nil {
		return "", err
	}
	var spec struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Command []string `json:"command"`
					Args    []string `json:"args"`
				} `json:"containers"`
			} `json:"spec"`
		} `json:"template"`
	}
	if err := query.Read(o.Spec, &spec); err != nil {
		return "", err
	}
	for _, c := range spec.Template.Spec.Containers {
		for _, word := range slices.Concat(c.Command, c.Args) {
			if value, is := strings.CutPrefix(word, flag); is && value != "" {
				return value, nil
			}
		}
	}
	return "", fmt.Errorf("the Deployment %s has no %s: %w", controllerName, strings.TrimSuffix(flag, "="), core.ErrNotFound)
}

// southOf is where the southbound database is: as the flag says, else where this
// node's ovn-controller is connected, else at a member of central that runs here, or
// behind the API server.
func southOf(ctx context.Context, a Asked) (rows.Place, error) {
	p := rows.Place{Endpoint: a.Flags["sb"], TLS: tlsOf(a)}
	if p.Endpoint == "" {
		ids, err := switchIDs(ctx, a.Flags["ovsdb"])
		p.Endpoint = ids["ovn-remote"]
		switch here := member(a, "sb"); {
		case p.Endpoint != "":
		case here != "":
			return rows.Place{Endpoint: here}, nil
		case err != nil:
			return relayed(a, "sb", p, fmt.Errorf("this node's Open vSwitch does not tell: %w", err))
		default:
			return relayed(a, "sb", p, errors.New("this node's Open vSwitch has no external_ids:ovn-remote"))
		}
	}
	if unshown(p) {
		p.TLS = rows.FilesIn(filepath.Join(a.Flags["state-dir"], "ovn"))
	}
	if unshown(p) {
		return relayed(a, "sb", p, nil)
	}
	return p, nil
}

// switchIDs are the external ids of a node's Open vSwitch.
func switchIDs(ctx context.Context, endpoint string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, memberLimit) // what is asked next has the rest
	defer cancel()
	db, err := rows.Open(ctx, rows.Switch, rows.Place{Endpoint: endpoint}, false)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	found, err := db.Select(ctx, "Open_vSwitch", []string{"external_ids"})
	if err != nil || len(found) == 0 {
		return nil, cmp.Or(err, errors.New("its database is empty"))
	}
	return rows.Map(found[0]["external_ids"]), nil
}

// chassis adds to a node what the southbound database says of it. Where that cannot
// be asked a note says so.
func chassis(ctx context.Context, a Asked, n *agent.NodeDetail) {
	err := func() error {
		place, err := southOf(ctx, a)
		if err != nil {
			return err
		}
		db, err := rows.Open(ctx, rows.Southbound, place, false)
		if err != nil {
			return err
		}
		defer db.Close()
		name := cmp.Or(n.Chassis, n.Name)
		found, err := db.Select(ctx, "Chassis", []string{"name", "hostname", "encaps"})
		if err != nil {
			return err
		}
		at := slices.IndexFunc(found, func(r ovsdb.Row) bool { return rows.Text(r["name"]) == name || rows.Text(r["hostname"]) == n.Name })
		if at < 0 {
			return fmt.Errorf("it has no chassis %s", name)
		}
		n.Chassis = rows.Text(found[at]["name"])
		if n.Tunnel, err = tunnels(ctx, db, rows.Texts(found[at]["encaps"])); err != nil {
			return err
		}
		private, err := db.Select(ctx, "Chassis_Private", []string{"nb_cfg"}, rows.Is("name", n.Chassis))
		if len(private) > 0 {
			n.Configured = rows.Number(private[0]["nb_cfg"])
		}
		return err
	}()
	if err != nil {
		a.Note("the southbound database is not asked about the chassis: " + err.Error())
	}
}

// tunnels are where a chassis' tunnels end.
func tunnels(ctx context.Context, db *rows.DB, uuids []string) (string, error) {
	all, err := db.Select(ctx, "Encap", []string{"_uuid", "type", "ip"})
	var out []string
	for _, e := range all {
		if slices.Contains(uuids, rows.Text(e["_uuid"])) {
			out = append(out, rows.Text(e["type"])+" "+rows.Text(e["ip"]))
		}
	}
	return strings.Join(out, ", "), err
}

// row is a logical port that a controller made.
type row struct {
	query.Row
	ids map[string]string // all external ids, as they were read
}

// north is the northbound database.
type north struct{ *rows.DB }

// Marks of a pod's ports.
const (
	keyPod    = "pod"
	keySwitch = "ls"
	keyUID    = "fairlead-pod-uid"
	keyKeeper = "fairlead-keeper"
	keyVendor = "vendor"
	vendor    = "kube-ovn"
)

// northRows are the ports of pods. Where they cannot be read a note says so.
func northRows(ctx context.Context, a Asked) (*north, []row) {
	place, err := northOf(ctx, a)
	if errors.Is(err, core.ErrNotFound) && a.Flags["nb"] == "" {
		return nil, nil // a cluster without OVN
	}
	var db *rows.DB
	if err == nil {
		db, err = rows.Open(ctx, rows.Northbound, place, len(place.Members()) > 1)
	}
	if err != nil {
		a.Note("the northbound database is not looked at: " + err.Error())
		return nil, nil
	}
	found, err := db.Select(ctx, "Logical_Switch_Port", []string{"_uuid", "name", "external_ids", "addresses"})
	if err != nil {
		a.Note("the northbound database is not looked at: " + err.Error())
	}
	var out []row
	for _, r := range found {
		if one, is := portOf(r); is {
			out = append(out, one)
		}
	}
	return &north{db}, out
}

// portOf reads a port of a pod; false for another.
func portOf(r ovsdb.Row) (row, bool) {
	ids := rows.Map(r["external_ids"])
	namespace, name, isPod := strings.Cut(ids[keyPod], "/")
	if ids[keyVendor] != vendor || !isPod {
		return row{}, false
	}
	out := row{Row: query.Row{
		UUID: rows.Text(r["_uuid"]), Name: rows.Text(r["name"]), Subnet: ids[keySwitch],
		Pod: core.Pod{Namespace: namespace, Name: name, UID: ids[keyUID]}, Keeper: ids[keyKeeper],
	}, ids: ids}
	for _, text := range rows.Texts(r["addresses"]) {
		for _, word := range strings.Fields(text) {
			if ip, err := netip.ParseAddr(word); err == nil {
				out.Addresses = append(out.Addresses, ip)
			}
		}
	}
	return out, true
}

// plain are the rows as the API's client takes them.
func plain(all []row) (out []query.Row) {
	for _, r := range all {
		out = append(out, r.Row)
	}
	return out
}

// free removes a port that is nobody's now and that still is as it was read.
func (n *north) free(ctx context.Context, api *query.Client, of []row, name string) (stays string, err error) {
	at := slices.IndexFunc(of, func(r row) bool { return r.Name == name })
	if at < 0 {
		return "it was not read", nil
	}
	r := of[at]
	is, err := api.NobodysRow(ctx, r.Row)
	if err != nil || !is {
		return "it is somebody's by now", err
	}
	ids := map[any]any{}
	for k, v := range r.ids {
		ids[k] = v
	}
	now := 0
	return "", n.Change(ctx,
		ovsdb.Operation{
			Op: ovsdb.OperationWait, Table: "Logical_Switch_Port", Where: []ovsdb.Condition{rows.Is("_uuid", ovsdb.UUID{GoUUID: r.UUID})},
			Columns: []string{"external_ids"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"external_ids": ovsdb.OvsMap{GoMap: ids}}}, Timeout: &now,
		},
		ovsdb.Operation{
			Op: ovsdb.OperationMutate, Table: "Logical_Switch", Where: []ovsdb.Condition{ovsdb.NewCondition("ports", ovsdb.ConditionIncludes, ovsdb.OvsSet{GoSet: []any{ovsdb.UUID{GoUUID: r.UUID}}})},
			Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("ports", ovsdb.MutateOperationDelete, ovsdb.OvsSet{GoSet: []any{ovsdb.UUID{GoUUID: r.UUID}}})},
		})
}
