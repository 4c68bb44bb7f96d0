package openflow

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
)

// lanes is the number of connections: ovs-vswitchd takes 50 messages of each in a turn
// (ofproto/connmgr.c), which is two ports' flows, and does all else between turns.
const lanes = 8

// Client speaks to one bridge. It connects when it is first asked and again after
// ovs-vswitchd was away. All methods may be called from many goroutines; what is
// asked of one cookie is done in order.
type Client struct {
	path  string // of the bridge's management socket
	lanes [lanes]lane
}

// lane is one connection, of some of the cookies.
type lane struct {
	mu   sync.Mutex
	conn *conn
}

// New makes a Client for the socket BRIDGE.mgmt in ovs-vswitchd's run directory.
func New(path string) *Client { return &Client{path: path} }

// defaultRunDir is ovs-vswitchd's, where the database's address does not tell.
const defaultRunDir = "/run/openvswitch"

// SocketOf is the management socket of a bridge, of the ovs-vswitchd whose database
// has this address: both are in its run directory.
func SocketOf(endpoint, bridge string) string {
	dir := defaultRunDir
	if path, ok := strings.CutPrefix(endpoint, "unix:"); ok {
		dir = filepath.Dir(path)
	}
	return filepath.Join(dir, bridge+".mgmt")
}

// reconnects is how often a bridge that is away is looked for.
const reconnects = 250 * time.Millisecond

// Follow keeps a connection until ctx ends, and then closes it. It calls up for each
// new one: what flows there were may be gone; and down when it ends by itself.
func (c *Client) Follow(ctx context.Context, up, down func()) {
	defer c.Close()
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		if conn, err := c.connected(ctx, 0); err == nil {
			up()
			select {
			case <-ctx.Done():
			case <-conn.gone:
				down()
			}
		}
		again.Reset(reconnects)
	}
}

// Close ends the connections.
func (c *Client) Close() {
	for i := range c.lanes {
		l := &c.lanes[i]
		l.mu.Lock()
		if l.conn != nil {
			l.conn.end(net.ErrClosed)
		}
		l.mu.Unlock()
	}
}

// Set makes flows the only ones with the cookie, as one change: no packet meets some
// of them alone. core.ErrUnavailable: nobody answers. With another error the switch
// has refused some, and has the others.
func (c *Client) Set(ctx context.Context, cookie uint64, flows ...Flow) error {
	err := c.ask(ctx, cookie, func(first uint32) []message { return bundle(first, cookie, flows) }, func(m message) (bool, error) {
		return m.kind == typeBundle && len(m.body) >= headerLen && binary.BigEndian.Uint16(m.body[4:]) == bundleDone, nil
	})
	if err != nil {
		return fmt.Errorf("set flows with cookie %#x: %w", cookie, err)
	}
	return nil
}

// Remove has the flows with the cookie removed, and does not wait for it.
// core.ErrUnavailable: nobody is there.
func (c *Client) Remove(ctx context.Context, cookie uint64) error {
	conn, err := c.connected(ctx, cookie)
	if err == nil {
		_, err = conn.send(func(xid uint32) []message {
			return []message{{kind: typeFlowMod, xid: xid, body: flowMod(cmdDelete, cookie, Flow{})}}
		}, nil)
	}
	if err != nil {
		return fmt.Errorf("remove flows with cookie %#x: %w: %w", cookie, core.ErrUnavailable, err)
	}
	return nil
}

// Flows are those whose cookies equal cookie in the bits of mask, by cookie.
// core.ErrUnavailable: nobody answers.
func (c *Client) Flows(ctx context.Context, cookie, mask uint64) (map[uint64][]Flow, error) {
	out := map[uint64][]Flow{}
	err := c.ask(ctx, cookie, func(xid uint32) []message {
		return []message{{kind: typeStats, xid: xid, body: question(cookie, mask)}}
	}, func(m message) (bool, error) {
		if m.kind != typeStatsInfo {
			return false, nil
		}
		more, err := answer(m.body, out)
		return !more, err
	})
	if err != nil {
		return nil, fmt.Errorf("read flows with cookie %#x/%#x: %w", cookie, mask, err)
	}
	return out, nil
}

// ask sends messages and gives the answers to done until it says so.
func (c *Client) ask(ctx context.Context, cookie uint64, build func(first uint32) []message, done func(message) (bool, error)) error {
	conn, err := c.connected(ctx, cookie)
	if err != nil {
		return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	q, err := conn.send(build, make(chan message, manyAnswers))
	if err != nil {
		return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
	}
	defer conn.forget(q)
	for {
		select {
		case m := <-q.answers:
			if m.kind == typeError {
				return refusal(m.body)
			}
			if ok, err := done(m); ok || err != nil {
				return err
			}
		case <-conn.gone:
			return fmt.Errorf("%w: %w", core.ErrUnavailable, conn.cause)
		case <-ctx.Done():
			return fmt.Errorf("%w: ovs-vswitchd does not answer: %w", core.ErrUnavailable, ctx.Err())
		}
	}
}

// refusal is the switch's error message (OpenFlow 1.4, 7.5.4).
func refusal(body []byte) error {
	if len(body) < tlvHeader {
		return errShort
	}
	return core.Errorf(core.CodeIO, "Open vSwitch refuses the flows: OpenFlow error type %d, code %d",
		binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:]))
}

// connected gives a cookie's connection, one that is not known to be gone.
func (c *Client) connected(ctx context.Context, cookie uint64) (*conn, error) {
	l := &c.lanes[cookie%lanes]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && !l.conn.ended() {
		return l.conn, nil
	}
	sock, err := (&net.Dialer{}).DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, err
	}
	l.conn = newConn(sock)
	return l.conn, l.conn.write(message{kind: typeHello})
}

// conn is one connection: a goroutine reads, and gives answers to who asked.
type conn struct {
	sock  net.Conn
	gone  chan struct{} // closed when it ended
	cause error         // why, once gone is closed

	mu    sync.Mutex
	once  sync.Once
	next  uint32
	asked map[*asking]bool
}

// asking is one call's messages, by their numbers.
type asking struct {
	first, last uint32
	answers     chan message
	left        chan struct{} // closed when nobody reads answers any more
}

// manyAnswers is about what a call gets before it reads the first.
const manyAnswers = 16

func newConn(sock net.Conn) *conn {
	c := &conn{sock: sock, gone: make(chan struct{}), asked: map[*asking]bool{}, next: 1}
	go c.read()
	return c
}

func (c *conn) ended() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

func (c *conn) end(err error) {
	c.once.Do(func() {
		c.cause = err
		close(c.gone)
		_ = c.sock.Close() // it is of no use any more
	})
}

func (c *conn) read() {
	for {
		m, err := readMessage(c.sock)
		if err == nil {
			err = c.take(m)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// take gives a message to whom it answers.
func (c *conn) take(m message) error {
	if m.kind == typeEcho {
		return c.write(message{kind: typeEchoReply, xid: m.xid, body: m.body})
	}
	if m.kind == typeHello && m.version < version {
		return errors.New("the switch does not speak OpenFlow 1.4 (column protocols of the bridge)")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.asked {
		if q.first <= m.xid && m.xid <= q.last {
			select {
			case q.answers <- m:
			case <-q.left:
			case <-c.gone:
			}
		}
	}
	return nil
}

// writes is how long a switch that reads nothing may fill the socket before it counts
// as gone.
const writes = 5 * time.Second

func (c *conn) write(m ...message) error {
	var b []byte
	for _, m := range m {
		b = append(b, m.bytes()...)
	}
	err := c.sock.SetWriteDeadline(time.Now().Add(writes))
	if err == nil {
		_, err = c.sock.Write(b)
	}
	if err != nil {
		c.end(err)
	}
	return err
}

// send gives numbers to a call's messages and writes them; nil: nobody reads answers.
func (c *conn) send(build func(first uint32) []message, answers chan message) (*asking, error) {
	c.mu.Lock()
	m := build(c.next)
	q := &asking{first: c.next, last: m[len(m)-1].xid, answers: answers, left: make(chan struct{})}
	c.next = q.last + 1
	if answers != nil {
		c.asked[q] = true
	}
	c.mu.Unlock()
	if err := c.write(m...); err != nil {
		if answers != nil {
			c.forget(q)
		}
		return nil, err
	}
	return q, nil
}

func (c *conn) forget(q *asking) {
	close(q.left) // before the lock, which take may hold while it waits for a reader
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asked, q)
}
