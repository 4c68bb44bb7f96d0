package question

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/ops/doctor"
	"github.com/fairlead/fairlead/internal/ovn/raft"
	"github.com/fairlead/fairlead/internal/ovs"
	"github.com/fairlead/fairlead/internal/ovs/rows"
)

// memberLimit bounds the question to one member, so that a dead one does not hide what
// the others say.
const memberLimit = 2 * time.Second

// database is one of OVN's.
type database struct {
	short, name, title string
	find               func(context.Context, Asked) (rows.Place, error)
}

var (
	north0 = database{"nb", rows.Northbound, "northbound raft", northOf}
	south0 = database{"sb", rows.Southbound, "southbound raft", southOf}
)

// cluster tells of the members of a database: as the one here sees them (its control
// socket), else as each says of itself.
func (h health) cluster(ctx context.Context, d database) []doctor.Finding {
	socket := filepath.Join(cmp.Or(h.Flags["central-run-dir"], defaultMember), d.short+".ctl")
	if info, err := os.Stat(socket); err == nil && info.Mode().Type() == fs.ModeSocket {
		return []doctor.Finding{settled(ctx, func(ctx context.Context) doctor.Finding { return h.raft(ctx, d, socket) })}
	}
	place, err := d.find(ctx, h.Asked)
	switch {
	case err != nil || h.API == nil && h.Flags[d.short] == "":
		return nil // none is here; a node asks the southbound one by a check of its own
	case unshown(place):
		return []doctor.Finding{finding(d.title, doctor.Warning, "kubectl -n "+h.Flags["install-namespace"]+" exec ds/fairlead-central -- fairlead doctor --cluster",
			"not asked: %s takes a certificate of central", place.Endpoint)}
	}
	return []doctor.Finding{settled(ctx, func(ctx context.Context) doctor.Finding { return h.servers(ctx, d, place) })}
}

// raft asks the member here how it sees its cluster.
func (h health) raft(ctx context.Context, d database, socket string) doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, memberLimit)
	defer cancel()
	text, err := ovs.Control(ctx, socket, "cluster/status", d.name)
	if err != nil {
		return finding(d.title, doctor.Failed, h.pods("fairlead-central")+"; its log says why the database's server does not run", "the member here does not answer: %v", err)
	}
	return h.judge(d.title, raft.Read(text))
}

// says is a line about a member.
func says(r raft.View, s raft.Server) string {
	what := "follows"
	switch {
	case s.Self:
		what = "this one, " + r.Role
	case !s.Connected:
		what = "NOT CONNECTED"
	case s.ID == r.Leader:
		what = "leader"
	case !r.Led():
		what = "connected"
	}
	if s.Heard >= 0 {
		what += fmt.Sprintf(", heard of %d ms ago", s.Heard.Milliseconds())
	}
	return s.Address + ": " + what
}

// judge says what a view means.
func (h health) judge(title string, r raft.View) doctor.Finding {
	var up int
	var led string
	for _, s := range r.Servers {
		if s.Connected {
			up++
		}
		if s.ID == r.Leader {
			led = s.Address
		}
	}
	next, all := h.pods("fairlead-central"), len(r.Servers)
	f := finding(title, doctor.OK, "", "%s leads %d members, term %s", cmp.Or(led, "this one"), all, r.Term)
	switch {
	case strings.HasPrefix(r.Status, "joining"):
		f = finding(title, doctor.Failed, next+"; more than half of the others must run", "this member has not joined its cluster: no other one that leads has let it in")
	case !r.Led():
		f = finding(title, doctor.Failed, next+"; more than half must run. If they never will: docs/cluster.md, \"A member is lost\"",
			"no leader (%s, term %s): nothing can be changed; %d of %d members are connected, this one among them", r.Role, r.Term, up, all)
	case !r.Joined():
		f = finding(title, doctor.Failed, next, "this member: %s", r.Status)
	case up < all:
		f = finding(title, doctor.Warning, next+"; one whose disk is lost: docs/cluster.md, \"A member is lost\"",
			"%d of %d members are connected, term %s: %d more may be lost", up, all, r.Term, max(up-all/2-1, 0))
	}
	for _, s := range r.Servers {
		f.Details = append(f.Details, says(r, s))
	}
	return f
}

// servers asks each member of a database about itself.
func (h health) servers(ctx context.Context, d database, place rows.Place) doctor.Finding {
	leads, well, members := 0, 0, place.Members()
	var details []string
	for _, m := range members {
		s, err := serverOf(ctx, d.name, rows.Place{Endpoint: m, TLS: place.TLS})
		switch {
		case err != nil:
			details = append(details, m+": does not answer: "+err.Error())
			continue
		case !s.connected:
			details = append(details, m+": not connected to its cluster")
			continue
		}
		well++
		if s.leader {
			leads++
		}
		details = append(details, m+": "+s.says())
	}
	next := h.pods("fairlead-central") + "; one whose disk is lost: docs/cluster.md, \"A member is lost\""
	f := finding(d.title, doctor.OK, "", "%d servers are connected", well)
	switch {
	case well == 0:
		f = finding(d.title, doctor.Failed, next, "none of %d servers answers and is connected", len(members))
	case well < len(members):
		f = finding(d.title, doctor.Warning, next, "%d of %d servers are connected", well, len(members))
	case leads == 0 && len(members) > 1 && d.short == "nb":
		f = finding(d.title, doctor.Failed, next, "none of %d servers leads: nothing can be changed", len(members))
	}
	f.Details = details
	return f
}

// server is what an ovsdb-server says of one of its databases (ovsdb-server(5)).
type server struct {
	model             string
	connected, leader bool
	index             int
}

func (s server) says() string {
	switch {
	case s.model != "clustered":
		return s.model
	case s.leader:
		return fmt.Sprintf("leader, entry %d", s.index)
	}
	return fmt.Sprintf("follows, entry %d", s.index)
}

func serverOf(ctx context.Context, name string, place rows.Place) (server, error) {
	ctx, cancel := context.WithTimeout(ctx, memberLimit)
	defer cancel()
	db, err := rows.Open(ctx, rows.Server, place, false)
	if err != nil {
		return server{}, err
	}
	defer db.Close()
	found, err := db.Select(ctx, "Database", []string{"model", "connected", "leader", "index"}, rows.Is("name", name))
	if err != nil || len(found) == 0 {
		return server{}, cmp.Or(err, fmt.Errorf("it has no database %s", name))
	}
	r := found[0]
	return server{rows.Text(r["model"]), rows.Yes(r["connected"]), rows.Yes(r["leader"]), rows.Number(r["index"])}, nil
}
