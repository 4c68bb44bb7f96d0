package ovn

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/ovs/session"
)

// External ids of NB_Global: by which databases this one is joined to others, as what, and
// whether that is about to end.
const (
	KeyICNorth = "fairlead-ic-nb"
	KeyICSouth = "fairlead-ic-sb"
	KeyICZone  = "fairlead-ic-zone"
	KeyICParts = "fairlead-ic-parting"
)

// Options of NB_Global that ovn-ic reads (ovn-nb(5)). Of the last two the first is that of
// OVN before 23.06, the second that of later versions.
const (
	optAdvertise = "ic-route-adv"
	optLearn     = "ic-route-learn"
	optDeny      = "ic-route-blacklist"
	optDenyLater = "ic-route-denylist"
)

// Interconnection is how a northbound database is joined to those of other clusters by ovn-ic.
// The zero value is not at all.
type Interconnection struct {
	NB, SB string // endpoints of the interconnection databases
	Zone   string // name of this availability zone
	// Parting: ovn-ic does nothing any more; the databases and the zone are only remembered, for
	// what is left there.
	Parting bool
	// Routes: networks are told to the other zones, but for those in Deny. ovn-ic itself learns
	// none of theirs: a network that both have would count as this one's own.
	Routes bool
	Deny   []string
}

// Interconnection is what Interconnect wrote last, be it another client's, without Routes and
// Deny.
func (c *Client) Interconnection() (Interconnection, error) {
	conn, err := c.db.Conn()
	if err != nil {
		return Interconnection{}, err
	}
	g := global(conn.View)
	if g == nil {
		return Interconnection{}, nil
	}
	return interconnection(g.ExternalIDs), nil
}

func interconnection(ids map[string]string) Interconnection {
	return Interconnection{NB: ids[KeyICNorth], SB: ids[KeyICSouth], Zone: ids[KeyICZone], Parting: ids[KeyICParts] == "true"}
}

// Interconnect has the database joined to others so. It fails as Apply does. One that is so
// already costs no transaction.
func (c *Client) Interconnect(ctx context.Context, want Interconnection) error {
	err := c.db.Change(ctx, func(v session.View, t *session.Txn) error {
		g, err := c.fence(v)
		if err != nil {
			return err
		}
		t.ExpectIDs(tGlobal, g.UUID, g.Name, stamp(epochOf(g), g.ExternalIDs[KeyHolder]))
		fence := len(t.Ops)
		if name, ours := want.name(g); ours && name != g.Name {
			t.Update(tGlobal, g.UUID, ovsdb.Row{"name": name})
		}
		options := want.options()
		if g.ExternalIDs[KeyICNorth] == "" && want.NB == "" {
			options = nil // what somebody else has joined stays
		}
		put(t, g.UUID, "options", g.Options, options)
		put(t, g.UUID, "external_ids", g.ExternalIDs, want.ids())
		if len(t.Ops) == fence {
			t.Ops = nil
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("interconnection in the northbound database: %w", err)
	}
	return nil
}

// name is what the database should be called, by which ovn-ic knows its zone: without one it
// does nothing. ours: that is for us to say.
func (i Interconnection) name(g *nbGlobal) (name string, ours bool) {
	if i.NB == "" || i.Parting {
		return "", g.ExternalIDs[KeyICNorth] != "" && g.Name == g.ExternalIDs[KeyICZone]
	}
	return i.Zone, true
}

// options are those of NB_Global, "" for one that is not to be there.
func (i Interconnection) options() map[string]string {
	out := map[string]string{optAdvertise: "", optLearn: "", optDeny: "", optDenyLater: ""}
	if i.NB == "" || i.Parting {
		return out
	}
	out[optAdvertise] = strconv.FormatBool(i.Routes)
	out[optLearn] = "false"
	out[optDeny] = strings.Join(slices.Compact(slices.Sorted(slices.Values(i.Deny))), ",")
	out[optDenyLater] = out[optDeny]
	return out
}

// ids are external ids of NB_Global, "" for one that is not to be there.
func (i Interconnection) ids() map[string]string {
	out := map[string]string{KeyICNorth: i.NB, KeyICSouth: i.SB, KeyICZone: i.Zone, KeyICParts: ""}
	if i.Parting {
		out[KeyICParts] = "true"
	}
	return out
}

// put makes keys of a column of texts what they should be, and leaves the others.
func put(t *session.Txn, uuid, column string, have, want map[string]string) {
	stale, now := session.Set(), map[string]string{}
	for key, val := range want {
		had, there := have[key]
		if there && had != val {
			stale.GoSet = append(stale.GoSet, key)
		}
		if val != "" && had != val {
			now[key] = val
		}
	}
	if len(stale.GoSet) > 0 {
		t.Mutate(tGlobal, uuid, ovsdb.NewMutation(column, ovsdb.MutateOperationDelete, stale))
	}
	if len(now) > 0 {
		t.Mutate(tGlobal, uuid, ovsdb.NewMutation(column, ovsdb.MutateOperationInsert, session.Map(now)))
	}
}
