// Package chassis makes a node a chassis of OVN's, from the flags of the agent: it
// finds the interface that tunnels leave by, and keeps the external ids of Open
// vSwitch, by which ovn-controller is configured, as the flags, that interface's
// address and the Node's annotations say. It talks to ovn-controller by its control
// socket, and asks the southbound database as the chassis, by the files that others
// keep. It knows nothing of pods.
package chassis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/encap"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Switch is what the Keeper asks of Open vSwitch; *ovs.Client is one.
type Switch interface {
	IDs() (map[string]string, error)
	SetIDs(ctx context.Context, want func(have map[string]string) map[string]string) (wrote []string, err error)
}

// Config says what a Keeper keeps.
type Config struct {
	Flags
	Facts // without Addr and State, which it finds
	Choice
	Switch Switch
	// Joins tells that the node is a gateway to other clusters; known is false while that is not
	// known.
	Joins func() (gateway, known bool)
	// Keys has the chassis' key and certificates.
	Keys string
	// Moved hears of another MTU for pods.
	Moved func(mtu int)
	Log   *slog.Logger
}

// Pauses: a failure is tried again, and what no event tells is looked at.
const (
	again = time.Second
	audit = time.Minute
	limit = 10 * time.Second // for one transaction
)

// Keeper keeps the node's side of OVN as it should be.
type Keeper struct {
	cfg  Config
	poke chan struct{}
	fate atomic.Pointer[fate]
	flow atomic.Int32 // a State
	mtu  int
}

// fate is what became of the last pass.
type fate struct{ err error }

// New makes a Keeper; mtu is what pods have by now.
func New(c Config, mtu int) *Keeper {
	k := &Keeper{cfg: c, mtu: mtu, poke: make(chan struct{}, 1)}
	k.fate.Store(&fate{})
	return k
}

// Poke has it look: something changed that it is about.
func (k *Keeper) Poke() {
	select {
	case k.poke <- struct{}{}:
	default:
	}
}

// Bare hears that the switch has lost its flows, or is about to.
func (k *Keeper) Bare() { k.turn(Bare) }

// Flowing hears that it has them.
func (k *Keeper) Flowing() { k.turn(Flowing) }

func (k *Keeper) turn(s State) {
	if State(k.flow.Swap(int32(s))) != s {
		k.Poke()
	}
}

// Err is why the node is not the chassis that it should be, nil when it is.
func (k *Keeper) Err() error { return k.fate.Load().err }

// Run keeps until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	watch, err := rtnl.NewWatch(nil)
	if err != nil {
		k.cfg.Log.Warn("changes of the tunnels' address are seen late", "every", audit, "err", err)
	} else {
		wg.Go(func() {
			if err := watch.Run(ctx, k.Poke); err != nil {
				k.cfg.Log.Warn("changes of the tunnels' address are seen late", "every", audit, "err", err)
			}
		})
	}
	wg.Go(func() { k.recompute(ctx) })
	aimed := 0
	for ctx.Err() == nil {
		nic, err := k.pass(ctx)
		if err == nil && watch != nil && nic.Index != aimed {
			if watch.Aim(rtnl.Aims{Links: []int{nic.Index}}) == nil {
				aimed = nic.Index
				continue // what happened to it before was not heard
			}
		}
		k.told(err)
		wait := audit
		if err != nil {
			wait = again
		}
		select {
		case <-ctx.Done():
		case <-k.poke:
		case <-time.After(wait):
		}
	}
}

// told notes what became of a pass, and says it once.
func (k *Keeper) told(err error) {
	was := k.Err()
	k.fate.Store(&fate{err})
	if err == nil && was != nil {
		k.cfg.Log.Info("the node is a chassis as it should be")
	}
	if err != nil && (was == nil || was.Error() != err.Error()) {
		k.cfg.Log.Warn("the node is not the chassis that it should be; tried again", "err", err)
	}
}

// pass makes all so once.
func (k *Keeper) pass(ctx context.Context) (encap.NIC, error) {
	nic, given, err := k.nic()
	if err != nil {
		return nic, err
	}
	facts := k.cfg.Facts
	facts.State = State(k.flow.Load())
	if given {
		facts.Addr = nic.Addr
	}
	if gateway, known := k.cfg.Joins(); known {
		facts.Joins = &gateway
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	wrote, err := k.cfg.Switch.SetIDs(ctx, func(have map[string]string) map[string]string {
		return facts.IDs(k.cfg.Flags, have)
	})
	if err != nil {
		return nic, err
	}
	if len(wrote) > 0 {
		k.cfg.Log.Info("Open vSwitch told of the chassis", "external_ids", wrote, "address", facts.Addr, "interface", nic.Name)
	}
	if mtu := k.cfg.MTU(nic); mtu != k.mtu && k.cfg.Moved != nil {
		k.mtu = mtu
		k.cfg.Moved(mtu)
	}
	if given && !nic.Addr.IsValid() {
		return nic, fmt.Errorf("%s, by which tunnels should leave, has no address: %w", nic.Name, core.ErrUnavailable)
	}
	return nic, nil
}

// nic is the tunnels' interface, and whether its address is asked for.
func (k *Keeper) nic() (nic encap.NIC, given bool, err error) {
	conn, err := rtnl.Open(nil)
	if err != nil {
		return encap.NIC{}, false, err
	}
	defer func() { _ = conn.Close() }()
	nic, err = k.cfg.Find(conn)
	if err != nil {
		return encap.NIC{}, false, err
	}
	choice, _ := k.cfg.asked()
	given = choice != "" || k.cfg.Remote != ""
	if given && nic.Index == 0 {
		return nic, given, errors.New("no default route tells which interface tunnels should leave by: give --iface")
	}
	return nic, given, nil
}

// Name is the chassis' name, "" for none yet.
func (k *Keeper) Name() string {
	ids, err := k.cfg.Switch.IDs()
	if err != nil {
		return ""
	}
	return ids[idSystem]
}

// AnnTunnel of a Node chooses the interface that its tunnels leave by.
const AnnTunnel = "ovn.kubernetes.io/tunnel_interface"

// AnnNetworks of a Node are further addresses of it for tunnels, by name.
const AnnNetworks = "ovn.kubernetes.io/node_networks"
