package central

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/ovn/raft"
)

// membersLook is the pause between two looks for members that are gone.
const membersLook = 15 * time.Second

// Looks in a row that must find a member gone. One in whose place another has joined
// never comes back. One that is none of --members may be late, or this member's list is
// about to be another.
const (
	looksReplaced = 2
	looksUnlisted = 5
)

// takeOut takes members that are gone for good out of the clusters, until ctx ends:
// each of them would count among those of which more than half must run. Only who
// leads a cluster looks at it, and one that is connected stays.
func (m *member) takeOut(ctx context.Context) {
	missed := map[database]map[string]int{north: {}, south: {}} // looks in a row, by server
	m.every(ctx, membersLook, "removal of members that are gone", func(ctx context.Context) error {
		return errors.Join(m.takeOutOf(ctx, north, missed), m.takeOutOf(ctx, south, missed))
	})
}

func (m *member) takeOutOf(ctx context.Context, d database, missed map[database]map[string]int) error {
	v, err := m.view(ctx, d)
	if err != nil {
		return err
	}
	now := map[string]int{}
	var errs []error
	for _, s := range v.Servers {
		enough := m.lost(d, v, s)
		if enough == 0 {
			continue
		}
		now[s.ID] = missed[d][s.ID] + 1
		if now[s.ID] < enough {
			continue
		}
		_, err := m.appctl(ctx, d, "cluster/kick", d.name, s.ID)
		errs = append(errs, err)
		if err == nil {
			m.Log.Info("member taken out of its cluster", "database", d.name, "member", s.Address, "id", s.ID)
		}
	}
	missed[d] = now
	return errors.Join(errs...)
}

// lost is how many looks must find a server as it is before it is taken out; 0: it
// stays.
func (m *member) lost(d database, v raft.View, s raft.Server) int {
	switch {
	case !v.Leads() || s.Connected:
	case slices.ContainsFunc(v.Servers, func(o raft.Server) bool { return o.Address == s.Address && o.Connected }):
		return looksReplaced
	case !slices.ContainsFunc(m.all, func(a string) bool { return s.Address == "ssl:"+at(a, d.raft) }):
		return looksUnlisted
	}
	return 0
}
