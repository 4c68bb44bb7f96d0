package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
)

// Record keeps how far the API server's revisions have come where its own database does
// not take that along.
type Record interface {
	// Leads is nil while this controller may write.
	Leads() error
	// Revision is what was noted last, 0 for nothing.
	Revision() (uint64, error)
	// Reached notes a revision, be it higher or lower, and gives the one before, 0 for none.
	Reached(ctx context.Context, revision uint64) (was uint64, err error)
}

// Pauses between two comparisons, two looks whether this controller leads by now, and
// two notes, each of which has ovn-northd look at everything.
const (
	compareLook = 10 * time.Second
	guardLook   = time.Second
	noteLook    = 10 * time.Minute
)

// holdPause is the time that agents have to notice that a database went back, ten
// seconds, and to say which addresses are in use that no object tells of.
const holdPause = 30 * time.Second

// Settle is to be called before addresses are given. Where the record tells that the
// database went back since, it waits for what the agents know.
func (c *Cluster) Settle(ctx context.Context, r Record) error {
	was, err := r.Revision()
	if err != nil {
		return err
	}
	version, err := c.revision(ctx)
	if err != nil {
		return err
	}
	if now, err := strconv.ParseUint(version, 10, 64); err != nil || was <= now {
		return err
	}
	c.log.Warn("the API server's database went back: no addresses are given until agents have said what they hold", "for", holdPause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(holdPause):
		return nil
	}
}

// Guard compares the API server's revisions with those before until ctx ends. A
// *health.BackError tells that its database went back: what this Cluster knows holds no
// more, and cannot be put right here. Where only the record tells that, all that is known
// is from after it: alarm is called.
func (c *Cluster) Guard(ctx context.Context, r Record, alarm func(*health.BackError)) error {
	var noted, compared time.Time
	tick := time.NewTicker(guardLook)
	defer tick.Stop()
	for {
		note := time.Since(noted) >= noteLook && r.Leads() == nil
		if note || time.Since(compared) >= compareLook {
			err := c.compare(ctx)
			if back := (*health.BackError)(nil); errors.As(err, &back) {
				_, _ = r.Reached(ctx, back.Was) // the next leader tells; one that does not lead leaves it to who does
				return err
			}
			if compared = time.Now(); err == nil && note && c.note(ctx, r, alarm) == nil {
				noted = time.Now()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// compare is one look at the database's revision.
func (c *Cluster) compare(ctx context.Context) error {
	c.revisions.Saw(c.all[object.KindNode].LastSyncResourceVersion())
	return c.revisions.Compare(ctx, c.revision)
}

// revision is the database's, as a list of one Node tells it.
func (c *Cluster) revision(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	list, err := c.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("revision of the API server's database: %w", err)
	}
	return list.ResourceVersion, nil
}

// note records the revision that was just seen. Nobody can have recorded a later one
// since this controller leads.
func (c *Cluster) note(ctx context.Context, r Record, alarm func(*health.BackError)) error {
	now := c.revisions.Seen()
	was, err := r.Reached(ctx, now)
	if err == nil && was > now {
		alarm(&health.BackError{Was: was, Now: now})
	}
	return err
}
