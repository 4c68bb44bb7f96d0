package question

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/internal/ops/doctor"
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
	return h.judge(d.title, readRaft(text))
}

// raft is a member's view of its cluster (cluster/status, ovsdb-server(1)).
type raft struct {
	status, role, term, leader string
	servers                    []raftServer
}

// raftServer is a member of a cluster as another one sees it, or the same.
type raftServer struct {
	id, address     string
	self, connected bool
	heard           string // how long ago in ms, where that is told
}

var (
	raftMember = regexp.MustCompile(`^\s+(\w+) \(\w+ at ([^)]+)\)(.*)$`)
	raftHeard  = regexp.MustCompile(`last msg (\d+) ms ago`)
)

func readRaft(text string) (r raft) {
	var connections []string // one that is down stands in brackets
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Status":
			r.status = value
		case "Role":
			r.role = value
		case "Term":
			r.term = value
		case "Leader":
			r.leader = value
		case "Connections":
			connections = strings.Fields(value)
		}
		if m := raftMember.FindStringSubmatch(line); m != nil {
			s := raftServer{id: m[1], address: m[2], self: strings.Contains(m[3], "(self)")}
			if ms := raftHeard.FindStringSubmatch(m[3]); ms != nil {
				s.heard = ms[1]
			}
			s.connected = s.self || slices.Contains(connections, "->"+s.id) || slices.Contains(connections, "<-"+s.id)
			r.servers = append(r.servers, s)
		}
	}
	slices.SortFunc(r.servers, func(a, b raftServer) int { return strings.Compare(a.address, b.address) })
	return r
}

// says is a line about a member.
func (r raft) says(s raftServer) string {
	what := "follows"
	switch {
	case s.self:
		what = "this one, " + r.role
	case !s.connected:
		what = "NOT CONNECTED"
	case s.id == r.leader:
		what = "leader"
	case r.leader == "unknown":
		what = "connected"
	}
	if s.heard != "" {
		what += ", heard of " + s.heard + " ms ago"
	}
	return s.address + ": " + what
}

// judge says what a view means.
func (h health) judge(title string, r raft) doctor.Finding {
	var up int
	var led string
	for _, s := range r.servers {
		if s.connected {
			up++
		}
		if s.id == r.leader {
			led = s.address
		}
	}
	next, all := h.pods("fairlead-central"), len(r.servers)
	f := finding(title, doctor.OK, "", "%s leads %d members, term %s", cmp.Or(led, "this one"), all, r.term)
	switch {
	case strings.HasPrefix(r.status, "joining"):
		f = finding(title, doctor.Failed, next+"; more than half of the others must run", "this member has not joined its cluster: no other one that leads has let it in")
	case r.leader == "unknown" || r.leader == "":
		f = finding(title, doctor.Failed, next+"; more than half must run. If they never will: docs/cluster.md, \"A member is lost\"",
			"no leader (%s, term %s): nothing can be changed; %d of %d members are connected, this one among them", r.role, r.term, up, all)
	case r.status != "cluster member":
		f = finding(title, doctor.Failed, next, "this member: %s", r.status)
	case up < all:
		f = finding(title, doctor.Warning, next+"; one whose disk is lost: docs/cluster.md, \"A member is lost\"",
			"%d of %d members are connected, term %s: %d more may be lost", up, all, r.term, max(up-all/2-1, 0))
	}
	for _, s := range r.servers {
		f.Details = append(f.Details, r.says(s))
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
