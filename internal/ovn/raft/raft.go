// Package raft reads what a member of a clustered OVSDB says of its cluster.
package raft

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// View is a member's view of its cluster (cluster/status, ovsdb-server(1)).
type View struct {
	// Status of this member: "cluster member", "joining cluster", "left cluster" and
	// others, which ovsdb-server may explain in brackets.
	Status string
	// Role is leader, follower or candidate, Leader the id of the one that leads: "self",
	// or "unknown".
	Role, Term, Leader string
	// Servers are the members, by address.
	Servers []Server
}

// Server is a member of a cluster as another one sees it, or the same.
type Server struct {
	ID, Address string
	Self        bool
	// Connected: a connection is open, and, where the leader is asked, it has answered
	// of late.
	Connected bool
	// Heard is how long ago it was heard; negative: that is not told.
	Heard time.Duration
}

var (
	member = regexp.MustCompile(`^\s+(\w+) \(\w+ at ([^)]+)\)(.*)$`)
	heard  = regexp.MustCompile(`last msg (\d+) ms ago`)
)

// The leader asks all others three times in an election timer. One that has answered
// none of its questions for two timers, and for leastSilence, is not connected,
// whoever else answers at its address.
const leastSilence = 10 * time.Second

// Read takes a member's text apart.
func Read(text string) (v View) {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := member.FindStringSubmatch(line); m != nil {
			v.Servers = append(v.Servers, server(m))
		} else if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	v.Status, v.Role, v.Term, v.Leader = fields["Status"], fields["Role"], fields["Term"], fields["Leader"]
	open := strings.Fields(fields["Connections"]) // one that is down stands in brackets
	patience := max(leastSilence, 2*milliseconds(fields["Election timer"]))
	for i, s := range v.Servers {
		silent := v.Leads() && s.Heard > patience
		v.Servers[i].Connected = s.Self || !silent && (slices.Contains(open, "->"+s.ID) || slices.Contains(open, "<-"+s.ID))
	}
	slices.SortFunc(v.Servers, func(a, b Server) int { return strings.Compare(a.Address, b.Address) })
	return v
}

// server is a line of the list: id, address, and what is told of it.
func server(m []string) Server {
	s := Server{ID: m[1], Address: m[2], Self: strings.Contains(m[3], "(self)"), Heard: -1}
	if ms := heard.FindStringSubmatch(m[3]); ms != nil {
		s.Heard = milliseconds(ms[1])
	}
	return s
}

// milliseconds is 0 for what is no number.
func milliseconds(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond
}

// Joined tells that this member is one of its cluster.
func (v View) Joined() bool { return v.Status == "cluster member" }

// Leads tells that this member leads its cluster.
func (v View) Leads() bool { return v.Role == "leader" }

// Led tells that somebody leads.
func (v View) Led() bool { return v.Leader != "" && v.Leader != "unknown" }
