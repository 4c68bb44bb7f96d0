// Package machine is the controller of one machine without a cluster, as a part of
// its agent's process: its World is a folder and the pods that the runtime has told
// the agent of (local.Machine). It leads by itself; the database's epoch keeps
// another one out. It must not know what the controller does with the objects, nor
// anything of the machine's own.
package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/lib/parts"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/source/local"
)

// Config is what a machine's controller is told.
type Config struct {
	Machine *local.Machine
	// NB is the northbound database's endpoint (ovn.Config).
	NB  string
	Log *slog.Logger
}

// joinCIDR is the network of the node's own port where no Subnet `join` declares
// it.
const joinCIDR = "100.64.0.0/16,fd00:100:64::/112"

// holders begins the name by which machines' controllers hold their database.
const holders = "machine "

// Pauses of a controller that does not lead: after an error, and after somebody
// else took its database.
const (
	leadAgain = time.Second
	takeAgain = 30 * time.Second
)

// workers are few: one machine has few pods, and their rows share transactions.
const workers = 8

// Run gives addresses and makes networks until ctx ends.
func Run(ctx context.Context, c Config) error {
	join, faults := declare.ReadSubnet(logical.JoinSubnet, v1.SubnetSpec{CIDRBlock: joinCIDR})
	if len(faults) > 0 {
		return fmt.Errorf("network of the node's own port: %s", faults[0])
	}
	var ctl *controller.Controller
	l := &leader{Config: c, up: make(chan struct{}, 1)}
	db := ovn.New(ovn.Config{
		Endpoint: c.NB, Log: c.Log,
		OnUp: func() { ctl.Resync(); l.again() }, OnTouch: func(owner string, lost bool) { ctl.Touched(owner, lost) },
	})
	w := newWorld(c.Machine, c.Log)
	ctl = controller.New(controller.Config{
		World: w.World(), DB: guarded{db}, Join: join.Subnet, Declared: c.Machine, Workers: workers, Well: w.well, Log: c.Log,
	})
	l.ctl, l.db = ctl, db
	c.Machine.LedBy(l.leads)
	return parts.Run(ctx,
		func(ctx context.Context) error { db.Run(ctx); return nil },
		func(ctx context.Context) error { l.run(ctx); return nil })
}

// guarded is a database that is not taken from a cluster: whose pods the folder does
// not have.
type guarded struct{ *ovn.Client }

// errForeign tells that the database is a cluster's.
var errForeign = errors.New("the northbound database is a cluster's")

// Take implements controller.Database.
func (g guarded) Take(ctx context.Context, holder string) (uint64, error) {
	now, err := g.Holder()
	if err != nil {
		return 0, err
	}
	if now != "" && !strings.HasPrefix(now, holders) {
		return 0, fmt.Errorf("%w: fairlead-controller %s has it, and its pods would go; give --nb a database of this machine's own, or, if there is no such cluster any more: `ovn-nbctl remove nb_global . external_ids %s`",
			errForeign, now, ovn.KeyHolder)
	}
	return g.Client.Take(ctx, holder)
}

// leader leads, and says how that is.
type leader struct {
	Config
	ctl *controller.Controller
	db  *ovn.Client
	up  chan struct{} // has a value when the database is back

	mu  sync.Mutex
	err error // why it led no more
}

// again has it try to lead at once.
func (l *leader) again() {
	select {
	case l.up <- struct{}{}:
	default:
	}
}

// run leads until ctx ends.
func (l *leader) run(ctx context.Context) {
	node, _ := l.Machine.Node()
	for ctx.Err() == nil {
		err := l.ctl.Lead(ctx, holders+node)
		if ctx.Err() != nil {
			return
		}
		pause, up := leadAgain, l.up
		if errors.Is(err, ovn.ErrFenced) || errors.Is(err, errForeign) {
			pause, up = takeAgain, nil
		}
		if l.failed(err) {
			l.Log.Warn("this controller does not lead: new pods get no address; it is tried again", "nb", l.NB, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-up:
		case <-time.After(pause):
		}
	}
}

// failed notes why it led no more; false for what is no news.
func (l *leader) failed(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.err == nil || l.err.Error() != err.Error()
	l.err = err
	return news
}

// leads is nil while this controller leads and reaches its database.
func (l *leader) leads() error {
	if err := l.db.Connected(); err != nil {
		return fmt.Errorf("OVN's northbound database (--nb %s): %w; does ovn-central run here?", l.NB, err)
	}
	if _, ok := l.ctl.Pending(); ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return fmt.Errorf("the controller in this process does not lead: %w", l.err)
	}
	return fmt.Errorf("the controller in this process does not lead yet: %w", core.ErrUnavailable)
}
