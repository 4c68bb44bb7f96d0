package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/agent/elsewhere"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/standalone"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

const networkManager = "fairlead-network" // owns the condition

const (
	looksWell   = 10 * time.Second // between two looks while the network is there
	looksIll    = time.Second      // while it is not, or that is not written yet
	tellingLast = 10 * time.Second
)

// reach tells on the Node whether it reaches the pods of other nodes: it has its port
// in OVN's network, the gateway there answers, and the tunnels lead to others. Nothing
// else depends on it.
type reach struct {
	*Daemon
	lost   atomic.Bool
	why    atomic.Pointer[error]
	tunnel elsewhere.Tunnel
}

// newReach makes it; run has it look.
func newReach(d *Daemon) *reach {
	return &reach{Daemon: d, tunnel: elsewhere.NewTunnel(d.login)}
}

// login is to the API server that is in use.
func (d *Daemon) login() (login.Login, error) {
	if api := d.api(); api != nil {
		return api.Logins.Current()
	}
	return login.Login{}, core.ErrUnavailable
}

// errNoLook is why the network counts as away before the first look.
var errNoLook = errors.New("OVN's network was not looked at yet")

// last is what the last look found.
func (r *reach) last() error {
	if err := r.why.Load(); err != nil {
		return *err
	}
	return errNoLook
}

// unavailable is what the metric says, nil without OVN.
func (d *Daemon) unavailable() func() bool {
	if d.reach == nil {
		return nil
	}
	return d.reach.lost.Load
}

// run looks and tells until ctx ends.
func (r *reach) run(ctx context.Context) {
	var said error
	for {
		err := r.cause(r.look(ctx))
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			r.chassis.Flowing()
		}
		if (err == nil) != (said == nil) || err != nil && err.Error() != said.Error() {
			r.log.Info("network between nodes", "reached", err == nil, "err", err)
		}
		said = err
		r.lost.Store(err != nil)
		r.why.Store(&err)
		wait := looksWell
		if untold := errors.Join(r.tell(ctx, err), r.named(ctx)); err != nil || untold != nil {
			wait = looksIll
		}
		r.rest(ctx, wait)
	}
}

// rest is the pause before the next look. It ends when ovn-controller has claimed the
// node's port anew, or Open vSwitch's database went.
func (r *reach) rest(ctx context.Context, pause time.Duration) {
	ctx, stop := context.WithTimeout(ctx, pause)
	defer stop()
	claim := r.ovs.Claim(standalone.JoinPort)
	if err := r.ovs.WaitClaim(ctx, standalone.JoinPort, claim); err != nil && claim == "" {
		<-ctx.Done() // there was no database to begin with
	}
}

// tell writes the condition, where it is not so already.
func (r *reach) tell(ctx context.Context, err error) error {
	api := r.api()
	if api == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, tellingLast)
	defer stop()
	told := share.Summary{Status: "False", Reason: elsewhere.ReasonReachable, Message: "the node's gateway in the Subnet join answers"}
	if err != nil {
		told = share.Summary{Status: "True", Reason: elsewhere.ReasonUnreachable, Message: err.Error()}
	}
	if errors.Is(err, elsewhere.ErrTunnel) {
		told.Reason = elsewhere.ReasonTunnel
	}
	return api.Tell(ctx, networkManager, elsewhere.NetworkUnavailable, told)
}

// cause puts what the node itself has not got before what does not work without it.
func (r *reach) cause(err error) error {
	if err == nil {
		return nil
	}
	if api := r.api(); api != nil && api.identity != nil && api.identity.Err() != nil {
		return fmt.Errorf("%w (%w)", api.identity.Err(), err)
	}
	if not := r.chassis.Err(); not != nil {
		return fmt.Errorf("%w (%w)", not, err)
	}
	return err
}

// look is nil when pods of other nodes can be reached, else it says what is missing.
func (r *reach) look(ctx context.Context) error {
	join, err := r.join()
	if err != nil {
		return err
	}
	if len(join.Addrs) == 0 {
		return errors.New("the controller has given this node no address in the Subnet join: does fairlead-controller run?")
	}
	if err := r.ovs.Connected(); err != nil {
		return err
	}
	link, err := net.InterfaceByName(standalone.JoinPort)
	if err != nil || link.Flags&net.FlagUp == 0 {
		return fmt.Errorf("the node's own port %s is not there or down", standalone.JoinPort)
	}
	if !r.ovs.Installed(standalone.JoinPort) {
		return fmt.Errorf("ovn-controller has not made the flows of %s: does it run, does it reach the southbound database?", standalone.JoinPort)
	}
	for _, gw := range join.Gateways {
		if err := elsewhere.Answers(ctx, standalone.JoinPort, gw); err != nil {
			return fmt.Errorf("the node's gateway in the Subnet join does not answer: %w", err)
		}
	}
	if err := r.chassis.Settle(ctx, r.ovs.Claim(standalone.JoinPort), core.NodePort(r.opts.NodeName)); err != nil {
		return fmt.Errorf("flows for what pods send out of the cluster may be missing: %w", err)
	}
	return r.beyond(ctx)
}

// beyond is nil unless no tunnel leads to other nodes; a machine alone has none.
func (r *reach) beyond(ctx context.Context) error {
	if api := r.api(); api != nil {
		return r.tunnel.Look(ctx, api.Peers())
	}
	return nil
}
