// Package tombstone deletes links later than their users see. The kernel makes
// each deletion wait for an RCU grace period of 10-20 ms, but takes any number
// of links in one request: so a link is put aside (down, renamed, in a group of
// its own) and a reaper deletes all that have gathered. A tombstone is as good
// as deleted; after a crash the next reaper takes it. The package does not
// know whose the links were.
package tombstone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Group is that of links put aside (`ip link set group`); it fits 31 bits, the
// most that ip takes.
const Group uint32 = 0x0FA1D002

// reapPause follows a failed deletion.
const reapPause = time.Second

// Reaper deletes the tombstones of one namespace.
type Reaper struct {
	host *rtnl.Pool
	log  *slog.Logger
	wake chan struct{}
}

// New makes a reaper for ns, nil for the process's own namespace. Run must run
// for links to disappear.
func New(ns *netns.Handle, log *slog.Logger) *Reaper {
	return &Reaper{host: rtnl.NewPool(ns), log: log, wake: make(chan struct{}, 1)}
}

// Bury makes a tombstone of a link of c's namespace. That the link disappears
// meanwhile, by a reaper or with its namespace, is what we want.
func Bury(c *rtnl.Conn, index int) error {
	err := c.Apply(index, rtnl.Change{Name: name(index), Group: Group, Down: true})
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// name has at most 14 characters, and no other link of the namespace can have
// it: an index is not used twice at a time.
func name(index int) string { return fmt.Sprintf("fltomb%x", index) }

// Wake says that there is something to delete. It does not wait.
func (r *Reaper) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look after its present batch
	}
}

// ReapElsewhere deletes the tombstones of another namespace than the reaper's,
// that of c, which is the reaper's from now on. It does not wait. A process that
// dies meanwhile does not stop what the kernel has begun; those who put links
// aside where no reaper looks at its start ask again when they are asked again.
func (r *Reaper) ReapElsewhere(c *rtnl.Conn) {
	go func() {
		if err := errors.Join(c.DelGroup(Group), c.Close()); err != nil {
			r.log.Warn("deleted links of another namespace still there: they go with it", "group", Group, "err", err)
		}
	}()
}

// Run deletes tombstones until ctx ends, all that have gathered in one request;
// first those of an earlier process.
func (r *Reaper) Run(ctx context.Context) {
	defer r.host.Close()
	for r.Wake(); ; {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		if err := r.Reap(); err != nil {
			r.log.Warn("tombstones not deleted, trying again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(reapPause):
				r.Wake()
			}
		}
	}
}

// Reap deletes what there is now. It waits for one grace period.
func (r *Reaper) Reap() error {
	c, err := r.host.Get()
	if err != nil {
		return err
	}
	defer r.host.Put(c)
	return c.DelGroup(Group)
}
