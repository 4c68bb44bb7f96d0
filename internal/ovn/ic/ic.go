// Package ic reads and writes OVN's interconnection databases, which clusters share: which
// availability zones there are, by which gateways they are reached, what networks they tell
// each other, and whose a zone's name is. ovn-ic carries out what is in them. It must not
// know what the networks are for, nor what a cluster is made of.
package ic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// Switch is the transit switch that joins the zones' routers, by the reference's name.
const Switch = "ts"

// Networks are those of a transit switch that nobody has made yet, one of each family: the
// reference's.
const Networks = "169.254.100.0/24,fe80:a9fe:64::/112"

// Keys of external ids of the transit switch: its networks, and with a zone's name behind it
// whose that name is.
const (
	keyNetworks = "subnet"
	keyOwner    = "fairlead-zone-"
)

const (
	tSwitch  = "Transit_Switch"
	tZone    = "Availability_Zone"
	tGateway = "Gateway"
	tPort    = "Port_Binding"
	tRoute   = "Route"
	tPath    = "Datapath_Binding"
)

// limit is for all that is asked at once of databases that may not answer.
const limit = 5 * time.Second

// Databases are where the two are served: tcp:ADDRESS:PORT, of clusters all members with
// commas between.
type Databases struct{ NB, SB string }

// State is what the databases have.
type State struct {
	// Made: there is the transit switch. Networks are its own, and Key is its number in
	// tunnels, 0 while ovn-ic has not chosen one.
	Made     bool
	Networks []netip.Prefix
	Key      int
	// Owners are those of zones' names, by zone.
	Owners   map[string]string
	Zones    []string
	Gateways []Gateway
	Ports    []Port
	Routes   []Route
}

// Gateway is a chassis by which a zone is reached.
type Gateway struct{ Zone, Name string }

// Port is what a zone's router has on the transit switch. Key is its number in tunnels.
type Port struct {
	Zone, Name string
	Key        int
	Networks   []netip.Prefix
}

// Route is a network that a zone tells the others, and its router's address on the transit
// switch.
type Route struct {
	Zone    string
	Prefix  netip.Prefix
	Nexthop netip.Addr
}

// Look reads both databases. core.ErrUnavailable: one does not answer.
func Look(ctx context.Context, d Databases) (State, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	out := State{Owners: map[string]string{}}
	err := d.north(ctx, func(db *rows.DB) error { return out.north(ctx, db) })
	if err == nil {
		err = d.south(ctx, func(db *rows.DB) error { return out.south(ctx, db) })
	}
	return out, err
}

func (d Databases) north(ctx context.Context, do func(*rows.DB) error) error {
	return with(ctx, rows.ICNorth, d.NB, do)
}

func (d Databases) south(ctx context.Context, do func(*rows.DB) error) error {
	return with(ctx, rows.ICSouth, d.SB, do)
}

// with does something with a database.
func with(ctx context.Context, database, endpoint string, do func(*rows.DB) error) error {
	db, err := rows.Open(ctx, database, rows.Place{Endpoint: endpoint}, strings.Contains(endpoint, ","))
	if err != nil {
		return fmt.Errorf("%s at %s does not answer: %w: %w", database, endpoint, core.ErrUnavailable, err)
	}
	defer db.Close()
	if err := do(db); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", core.ErrUnavailable, err)
		}
		return fmt.Errorf("%s at %s: %w", database, endpoint, err)
	}
	return nil
}

// north reads the transit switch.
func (s *State) north(ctx context.Context, db *rows.DB) error {
	found, err := db.Select(ctx, tSwitch, []string{"external_ids"}, rows.Is("name", Switch))
	if err != nil || len(found) == 0 {
		return err
	}
	s.Made = true
	for key, val := range rows.Map(found[0]["external_ids"]) {
		if zone, is := strings.CutPrefix(key, keyOwner); is {
			s.Owners[zone] = val
		}
		if key == keyNetworks {
			s.Networks = prefixes(val, ",")
		}
	}
	return nil
}

// south reads the zones.
func (s *State) south(ctx context.Context, db *rows.DB) error {
	zones := map[string]string{} // by uuid
	on := rows.Is("transit_switch", Switch)
	for _, step := range []struct {
		table   string
		columns []string
		where   []ovsdb.Condition
		row     func(zone string, r ovsdb.Row)
	}{
		{tZone, []string{"_uuid", "name"}, nil, func(_ string, r ovsdb.Row) {
			zones[rows.Text(r["_uuid"])] = rows.Text(r["name"])
			s.Zones = append(s.Zones, rows.Text(r["name"]))
		}},
		{tPath, []string{"tunnel_key"}, []ovsdb.Condition{on}, func(_ string, r ovsdb.Row) { s.Key = rows.Number(r["tunnel_key"]) }},
		{tGateway, []string{"availability_zone", "name"}, nil, func(zone string, r ovsdb.Row) {
			s.Gateways = append(s.Gateways, Gateway{zone, rows.Text(r["name"])})
		}},
		{tPort, []string{"availability_zone", "logical_port", "tunnel_key", "address"}, []ovsdb.Condition{on}, func(zone string, r ovsdb.Row) {
			_, networks, _ := strings.Cut(rows.Text(r["address"]), " ") // after its MAC
			s.Ports = append(s.Ports, Port{zone, rows.Text(r["logical_port"]), rows.Number(r["tunnel_key"]), prefixes(networks, " ")})
		}},
		{tRoute, []string{"availability_zone", "ip_prefix", "nexthop"}, []ovsdb.Condition{on}, func(zone string, r ovsdb.Row) {
			hop, err := netip.ParseAddr(rows.Text(r["nexthop"]))
			for _, p := range prefixes(rows.Text(r["ip_prefix"]), " ") {
				if err == nil && hop.Is4() == p.Addr().Is4() {
					s.Routes = append(s.Routes, Route{zone, p.Masked(), hop})
				}
			}
		}},
	} {
		found, err := db.Select(ctx, step.table, step.columns, step.where...)
		if err != nil {
			return err
		}
		for _, r := range found {
			step.row(zones[rows.Text(r["availability_zone"])], r)
		}
	}
	return nil
}

// prefixes reads addresses with lengths; what is none is left out.
func prefixes(text, between string) (out []netip.Prefix) {
	for word := range strings.SplitSeq(text, between) {
		if p, err := netip.ParsePrefix(strings.TrimSpace(word)); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Claim makes the transit switch, if nobody has, and has a zone's name be owner's unless it is
// another's: Look says whose it is then. It fails as Look does.
func Claim(ctx context.Context, d Databases, zone, owner string) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	return d.north(ctx, func(db *rows.DB) error {
		found, err := db.Select(ctx, tSwitch, []string{"_uuid"}, rows.Is("name", Switch))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			ids := texts(map[string]string{keyNetworks: Networks})
			err = db.Change(ctx, ovsdb.Operation{Op: ovsdb.OperationInsert, Table: tSwitch, Row: ovsdb.Row{"name": Switch, "external_ids": ids}})
			if err != nil { // another made it just now: the next look finds it
				return err
			}
		}
		return db.Change(ctx, owned(ovsdb.MutateOperationInsert, zone, owner)) // a key that is there stays as it is (RFC 7047, 5.1)
	})
}

// owned changes whose a zone's name is.
func owned(how ovsdb.Mutator, zone, owner string) ovsdb.Operation {
	return ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: tSwitch, Where: []ovsdb.Condition{rows.Is("name", Switch)},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("external_ids", how, texts(map[string]string{keyOwner + zone: owner}))},
	}
}

func texts(m map[string]string) ovsdb.OvsMap {
	out := ovsdb.OvsMap{GoMap: map[any]any{}}
	for k, v := range m {
		out.GoMap[k] = v
	}
	return out
}

// Forget takes a zone out of both databases, unless its name is another's than owner's; none
// is success. found: something of it was there. It fails as Look does.
func Forget(ctx context.Context, d Databases, zone, owner string) (found bool, err error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	now, err := Look(ctx, d)
	if err != nil || now.Owners[zone] != owner {
		return false, err
	}
	err = d.south(ctx, func(db *rows.DB) error {
		zones, err := db.Select(ctx, tZone, []string{"_uuid"}, rows.Is("name", zone))
		if err != nil || len(zones) == 0 {
			return err
		}
		found = true
		id := ovsdb.UUID{GoUUID: rows.Text(zones[0]["_uuid"])}
		var ops []ovsdb.Operation
		for _, table := range []string{tRoute, tPort, tGateway} {
			ops = append(ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: table, Where: []ovsdb.Condition{rows.Is("availability_zone", id)}})
		}
		return db.Change(ctx, append(ops, ovsdb.Operation{Op: ovsdb.OperationDelete, Table: tZone, Where: []ovsdb.Condition{rows.Is("_uuid", id)}})...)
	})
	if err != nil || found {
		return found, err
	}
	return false, d.north(ctx, func(db *rows.DB) error { return db.Change(ctx, owned(ovsdb.MutateOperationDelete, zone, owner)) })
}

// Asker asks a northbound database by which databases it is joined to others. It is for one
// goroutine at a time.
type Asker struct {
	Endpoint string
	db       *rows.DB
}

// Asked is what a northbound database says now (ovn.Client.Interconnect).
func (a *Asker) Asked(ctx context.Context) (Databases, error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if a.db == nil {
		db, err := rows.Open(ctx, rows.Northbound, rows.Place{Endpoint: a.Endpoint}, false)
		if err != nil {
			return Databases{}, err
		}
		a.db = db
	}
	found, err := a.db.Select(ctx, "NB_Global", []string{"external_ids"})
	if err == nil && len(found) == 0 {
		err = errors.New("it has no root row")
	}
	if err != nil {
		a.Close()
		return Databases{}, err
	}
	ids := rows.Map(found[0]["external_ids"])
	return Databases{NB: ids[ovn.KeyICNorth], SB: ids[ovn.KeyICSouth]}, nil
}

// Close ends the connection; the next question makes another.
func (a *Asker) Close() {
	if a.db != nil {
		a.db.Close()
		a.db = nil
	}
}
