// Package session is the connection to one OVSDB server that Open vSwitch's
// and OVN's clients have in common (RFC 7047): it connects and reconnects,
// keeps a replica of the monitored columns, and makes each change as one
// transaction that can be printed. It knows no schema, and nothing of what the
// rows mean.
package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/fairlead/fairlead/internal/core"
)

// Config says which database a Client follows and who hears of it.
type Config struct {
	// Endpoint is where the server listens, in OVSDB's notation
	// (unix:/run/openvswitch/db.sock, tcp:127.0.0.1:6641, ssl:10.0.0.1:6641). Of
	// several, with commas between, the first that will do is taken.
	Endpoint string
	// TLS is how ssl: endpoints are reached. Its callbacks are asked at each
	// connection, so that certificates may change meanwhile.
	TLS *tls.Config
	// Database is its name; AskSchema and LeaderOnly need it.
	Database string
	// Replica says what of the database is followed. With AskSchema it is given
	// the server's schema, for servers of several versions; that costs one more
	// connection at the start. Without it the schema is empty.
	Replica   func(ovsdb.DatabaseSchema) (Replica, error)
	AskSchema bool
	// LeaderOnly takes, of the members of a cluster (raft), the leader and leaves
	// it when it is that no longer: others may be behind, or cut off without
	// knowing. It costs one more connection. A server without a cluster leads.
	LeaderOnly bool
	// Events hear each change of the replica. They run on one goroutine of the
	// library and must be quick. nil: nobody wants to know.
	Events cache.EventHandler
	// OnUp is called after each (re)connect when the replica is in sync, by the
	// goroutine of Run: it must not block. nil: nobody wants to know.
	OnUp func()
	// Probe is how often a silent connection is tested and how long an answer
	// may take; 0 = 5 s.
	Probe time.Duration
	Log   *slog.Logger
}

// Replica is what of a database a Client follows: rows as structs, and which
// of their columns.
type Replica struct {
	Model   model.ClientDBModel
	Monitor []client.MonitorOption
}

const (
	defaultProbe = 5 * time.Second
	fillLimit    = time.Minute // a large database, a busy machine: the rows come as one answer
	minBackoff   = 20 * time.Millisecond
	maxBackoff   = 500 * time.Millisecond // a lost conf.db must be refilled within 1 s of its return
)

// Client keeps a connection to one server. All methods may be called at once
// from many goroutines; transactions are never queued behind each other.
type Client struct {
	cfg    Config
	log    *slog.Logger
	once   sync.Once // closes absent
	absent chan struct{}

	mu   sync.Mutex
	conn *Conn  // nil while not in sync
	why  error  // the reason, then
	ups  uint64 // connections so far
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
		absent: make(chan struct{}),
		why:    errors.New("not connected yet"),
	}
}

// Run connects and reconnects for ever; it returns when ctx ends and the
// connection and all its goroutines are gone.
func (c *Client) Run(ctx context.Context) {
	pause := minBackoff
	for ctx.Err() == nil {
		begun := time.Now()
		conn, err := c.connect(ctx)
		if err == nil {
			c.up(conn)
			err = conn.serve(ctx, c.cfg.Probe)
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

func (c *Client) up(conn *Conn) {
	c.mu.Lock()
	c.conn, c.why = conn, nil
	c.ups++
	c.mu.Unlock()
	c.log.Info("OVSDB connected, cache in sync")
	if c.cfg.OnUp != nil {
		c.cfg.OnUp()
	}
}

// down forgets the connection. Only the first of a row of failures is logged;
// an end that was asked for is none.
func (c *Client) down(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && ctx.Err() == nil {
		c.log.Warn("OVSDB connection lost: connecting again", "err", err)
	}
	c.conn, c.why = nil, err
	c.once.Do(func() { close(c.absent) })
}

// Absent is closed when the database could not be reached for the first time,
// or was lost.
func (c *Client) Absent() <-chan struct{} { return c.absent }

// Ups counts the connections that were in sync. A connection is counted before
// anything of it can be seen.
func (c *Client) Ups() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ups
}

// Conn is the present connection, whose replica is in sync. It fails with
// core.ErrUnavailable and the reason while there is none.
func (c *Client) Conn() (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return nil, fmt.Errorf("OVSDB %s: %w: %w", c.cfg.Endpoint, core.ErrUnavailable, c.why)
	}
	return c.conn, nil
}
