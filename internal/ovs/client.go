package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/internal/core"
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
	Log *slog.Logger
	// OnReset is called, never twice at once, after each (re)connect when the
	// cache is in sync, when the bridge vanished, and when OVS made the
	// bridge's own device anew (internal ports have lost their addresses
	// then): the caller puts back what should be there.
	OnReset func()
	// OnTouch is called when somebody, which may be us, removed a port or
	// changed what Port says of it, external ids aside: OVN writes there all the
	// time. It must not block. nil: nobody wants to know.
	OnTouch func(Touched)
	// Probe is how often a silent connection is tested and how long an answer
	// may take; 0 = 5 s.
	Probe time.Duration
}

const (
	defaultProbe = 5 * time.Second
	minBackoff   = 20 * time.Millisecond
	maxBackoff   = 500 * time.Millisecond // a lost conf.db must be refilled within 1 s of its return
	maxWait      = 30 * time.Second       // for an ofport, when the caller set no deadline
)

// Client keeps ports on one bridge. All methods may be called at once from
// many goroutines; transactions are never queued behind each other, because
// ovs-vswitchd takes what has gathered in one pass. While the database is away
// every method fails at once with core.ErrUnavailable.
type Client struct {
	cfg    Config
	log    *slog.Logger
	reset  chan struct{} // one pending OnReset is enough
	resets atomic.Uint64
	once   sync.Once // closes absent
	absent chan struct{}

	mu      sync.Mutex
	sess    *session                          // nil while not in sync
	why     error                             // the reason, then
	waiters map[string]map[chan struct{}]bool // by Interface name, or rootKey
	ifindex int                               // of the bridge's own device, last seen
}

// New makes a Client that is not connected; Run connects it.
func New(cfg Config) *Client {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Probe == 0 {
		cfg.Probe = defaultProbe
	}
	return &Client{
		cfg: cfg, log: cfg.Log.With("ovsdb", cfg.Endpoint),
		reset:   make(chan struct{}, 1),
		absent:  make(chan struct{}),
		why:     errors.New("not connected yet"),
		waiters: map[string]map[chan struct{}]bool{},
	}
}

// Run connects and reconnects for ever; it returns when ctx ends and the
// connection and all its goroutines are gone.
func (c *Client) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { c.runResets(ctx) })
	defer wg.Wait()
	pause := minBackoff
	for ctx.Err() == nil {
		begun := time.Now()
		s, err := c.connect(ctx)
		if err == nil {
			c.up(s)
			err = s.serve(ctx, c.cfg.Probe)
		}
		c.down(ctx, err)
		if time.Since(begun) > c.cfg.Probe {
			pause = minBackoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxBackoff)
	}
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
func (c *Client) Resets() uint64 { return c.resets.Load() }

func (c *Client) callReset() {
	select {
	case c.reset <- struct{}{}:
	default: // one is pending and will see this change too
	}
}

func (c *Client) up(s *session) {
	c.resets.Add(1)
	c.mu.Lock()
	c.sess, c.why = s, nil
	c.mu.Unlock()
	c.wake(c.cfg.Bridge)
	c.log.Info("OVSDB connected, cache in sync")
	c.callReset()
}

// down forgets the session. Only the first of a row of failures is logged; an
// end that was asked for is none.
func (c *Client) down(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sess != nil && ctx.Err() == nil {
		c.log.Warn("OVSDB connection lost", "err", err)
	}
	c.sess, c.why = nil, err
	c.once.Do(func() { close(c.absent) })
}

// Absent is closed when the database could not be reached for the first time,
// or was lost.
func (c *Client) Absent() <-chan struct{} { return c.absent }

func (c *Client) session() (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sess == nil {
		return nil, fmt.Errorf("OVSDB %s: %w: %w", c.cfg.Endpoint, core.ErrUnavailable, c.why)
	}
	return c.sess, nil
}

// Connected is nil while the replica is in sync; else it wraps
// core.ErrUnavailable and tells why.
func (c *Client) Connected() error {
	_, err := c.session()
	return err
}

// Ready is nil when the replica is in sync and OVS runs the bridge; else it
// wraps core.ErrUnavailable and tells why.
func (c *Client) Ready() error {
	s, err := c.session()
	if err != nil {
		return err
	}
	if s.view.bridge(c.cfg.Bridge) == nil {
		return c.noBridge()
	}
	st, _ := s.view.state(c.cfg.Bridge)
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
	s, err := c.session()
	if err != nil {
		return PortState{}, false
	}
	return s.view.state(name)
}

// PortsWith are the ports whose Interface has the external id key, with that
// value unless it is "", sorted by name; none while the database is away.
func (c *Client) PortsWith(key, value string) []PortState {
	s, err := c.session()
	if err != nil {
		return nil
	}
	return s.view.ports(key, value)
}

// Bridge is the bridge's name.
func (c *Client) Bridge() string { return c.cfg.Bridge }
