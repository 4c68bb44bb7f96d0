package ovs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovs/session"
)

// Config says which database and which bridge a Client works on.
type Config struct {
	Endpoint string // unix:/run/openvswitch/db.sock
	Bridge   string // br-int
	// Datapath is the bridge's datapath_type: "system", "netdev", or "" to
	// leave it as it is.
	Datapath string
	// MAC is that of the bridge's own device, unless somebody gave it another
	// (other_config:hwaddr). Open vSwitch would take the lowest of its ports', so
	// that it changes with the pods, and a new one whenever it makes the bridge:
	// to neighbours of an address on the bridge, and to controllers, which know
	// the bridge by it, that is another machine. nil: Open vSwitch chooses.
	MAC core.MAC
	// OVN: ovn-controller makes the bridge's flows. Without them nothing is
	// forwarded (fail_mode secure), and a port forwards once it says so.
	OVN bool
	// MirrorAll has the bridge's mirror hear every port, not only those that ask for
	// it; nil leaves it as it is.
	MirrorAll *bool
	Log       *slog.Logger
	// OnReset is called, never twice at once, after each (re)connect when the
	// cache is in sync, when the bridge vanished, and when OVS made the
	// bridge's own device anew (internal ports have lost their addresses
	// then): the caller puts back what should be there.
	OnReset func()
	// OnTouch is called when somebody, which may be us, removed a port or
	// changed what Port says of it, external ids aside: OVN writes there all the
	// time. It must not block. nil: nobody wants to know.
	OnTouch func(Touched)
	// OnIDs is called when the external ids of the switch itself changed, whoever
	// did it. It must not block. nil: nobody wants to know.
	OnIDs func()
	// OnMirror is called when Open vSwitch has made the device of MirrorPort, which it
	// leaves down. It must not block. nil: nobody wants to know.
	OnMirror func()
	// Probe is how often a silent connection is tested and how long an answer
	// may take; 0 = 5 s.
	Probe time.Duration
}

const maxWait = 30 * time.Second // for an ofport, when the caller set no deadline

// Client keeps ports on one bridge. All methods may be called at once from
// many goroutines; transactions are never queued behind each other, because
// ovs-vswitchd takes what has gathered in one pass. While the database is away
// every method fails at once with core.ErrUnavailable.
type Client struct {
	cfg    Config
	log    *slog.Logger
	db     *session.Client
	reset  chan struct{} // one pending OnReset is enough
	resets atomic.Uint64 // but for those of new connections

	mu      sync.Mutex
	waiters map[string]map[chan struct{}]bool // by Interface name, or rootKey
	ifindex int                               // of the bridge's own device, last seen
	output  int                               // the same of MirrorPort
}

// New makes a Client that is not connected; Run connects it.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	c := &Client{
		cfg: cfg, log: cfg.Log.With("ovsdb", cfg.Endpoint),
		reset:   make(chan struct{}, 1),
		waiters: map[string]map[chan struct{}]bool{},
	}
	c.db = session.New(session.Config{
		Endpoint: cfg.Endpoint, Replica: replica, Events: c.events(), Probe: cfg.Probe, Log: cfg.Log,
		OnUp: func() {
			c.wake(c.cfg.Bridge)
			c.callReset()
		},
	})
	return c
}

// Run connects and reconnects for ever; it returns when ctx ends and the
// connection and all its goroutines are gone.
func (c *Client) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { c.runResets(ctx) })
	defer wg.Wait()
	c.db.Run(ctx)
}

// runResets calls OnReset, one call at a time.
func (c *Client) runResets(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.reset:
			if c.cfg.OnReset != nil {
				c.cfg.OnReset()
			}
		}
	}
}

func (c *Client) wantReset() {
	c.resets.Add(1)
	c.callReset()
}

// Resets counts the occasions for OnReset; it has counted one before anything of
// it can be seen, Connected included. Who puts things back compares it with what
// it was when that began.
func (c *Client) Resets() uint64 { return c.db.Ups() + c.resets.Load() }

func (c *Client) callReset() {
	select {
	case c.reset <- struct{}{}:
	default: // one is pending and will see this change too
	}
}

// change makes a change of the database as one transaction (session.Change).
func (c *Client) change(ctx context.Context, build func(view, *session.Txn) error) error {
	return c.db.Change(ctx, func(v session.View, t *session.Txn) error { return build(view{v}, t) })
}

// Absent is closed when the database could not be reached for the first time,
// or was lost.
func (c *Client) Absent() <-chan struct{} { return c.db.Absent() }

// view reads the replica. It fails with core.ErrUnavailable while there is no
// connection.
func (c *Client) view() (view, error) {
	s, err := c.db.Conn()
	if err != nil {
		return view{}, err
	}
	return view{s.View}, nil
}

// Connected is nil while the replica is in sync; else it wraps
// core.ErrUnavailable and tells why.
func (c *Client) Connected() error {
	_, err := c.db.Conn()
	return err
}

// Ready is nil when the replica is in sync and OVS runs the bridge; else it
// wraps core.ErrUnavailable and tells why.
func (c *Client) Ready() error {
	v, err := c.view()
	if err != nil {
		return err
	}
	if v.bridge(c.cfg.Bridge) == nil {
		return c.noBridge()
	}
	st, _ := v.state(c.cfg.Bridge)
	switch {
	case st.Error != "":
		return fmt.Errorf("bridge %s: %w: %s", c.cfg.Bridge, core.ErrUnavailable, st.Error)
	case st.OFPort == 0:
		return fmt.Errorf("bridge %s: %w: ovs-vswitchd has not taken it (is it running, has it datapath type %q?)",
			c.cfg.Bridge, core.ErrUnavailable, c.cfg.Datapath)
	}
	return nil
}

func (c *Client) noBridge() error {
	return fmt.Errorf("bridge %s: %w: it is not in the database", c.cfg.Bridge, core.ErrUnavailable)
}

// PortByName is the port as the database has it; false when there is none or
// the database is away.
func (c *Client) PortByName(name string) (PortState, bool) {
	v, err := c.view()
	if err != nil {
		return PortState{}, false
	}
	return v.state(name)
}

// PortsWith are the ports whose Interface has the external id key, with that
// value unless it is "", sorted by name; none while the database is away.
func (c *Client) PortsWith(key, value string) []PortState {
	v, err := c.view()
	if err != nil {
		return nil
	}
	return v.ports(key, value)
}

// Bridge is the bridge's name.
func (c *Client) Bridge() string { return c.cfg.Bridge }
