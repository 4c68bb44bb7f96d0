// Package rtnl gives idempotent verbs over rtnetlink: links, addresses and
// routes of one network namespace. A socket is opened inside the namespace and
// stays there; no goroutine is moved. A kernel error number becomes a sentinel
// of package core here and nowhere else: core.ErrNotFound for a link, address
// or route that is not there, core.ErrExists for a name that is taken. The
// package knows no pods, bridges or marks; groups and names are the caller's.
package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// dumpTries bounds the repetitions of a dump that changes interrupted.
const dumpTries = 5

// Conn is an rtnetlink socket in one namespace. It is for one goroutine at a
// time: the kernel serves a socket's requests one by one, so workers that
// share one wait for each other's RCU grace periods (spec/performance.md).
type Conn struct {
	ns     *netns.Handle // nil: where the socket was opened
	socket *nlsock.Socket
}

// Open opens a socket in ns, or in the calling thread's namespace when ns is
// nil. The Conn does not own ns, which must stay open as long as it is used.
func Open(ns *netns.Handle) (*Conn, error) {
	c := &Conn{ns: ns}
	err := ns.Do(func() (err error) {
		c.socket, err = nlsock.Open(unix.NETLINK_ROUTE, nlsock.Strict)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	return c, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.socket.Close() }

// turns are how many requests may be under way at once, in all namespaces. The
// kernel serves one at a time under a lock of its own (RTNL): of fifty threads
// there the next ones spin, the others are replaced by the Go runtime, and both
// cost more than the requests. With one turn the kernel would be idle whenever
// whoever has it waits for a processor.
var turns = make(chan struct{}, 8)

// roundTrip sends a request and gives the replies of type reply.
func (c *Conn) roundTrip(r *nl.NetlinkRequest, reply uint16) ([][]byte, error) {
	if err := c.send(r); err != nil {
		return nil, err
	}
	return c.socket.Receive(r, reply)
}

// send has the kernel carry the request out. A deletion has no turn: it gives
// the kernel's lock back and then waits for a grace period.
func (c *Conn) send(r *nl.NetlinkRequest) error {
	if r.Type != unix.RTM_DELLINK {
		turns <- struct{}{}
		defer func() { <-turns }()
	}
	return c.socket.Send(r)
}

// Pool keeps idle sockets of one namespace for the next worker.
type Pool struct {
	ns   *netns.Handle
	mu   sync.Mutex
	idle []*Conn
}

// maxIdle is how many idle sockets a Pool keeps; a burst's surplus is closed.
const maxIdle = 32

// NewPool makes an empty pool for ns (nil: the current namespace). Sockets are
// opened when they are asked for.
func NewPool(ns *netns.Handle) *Pool { return &Pool{ns: ns} }

// Get takes an idle socket or opens one. Put it back when done.
func (p *Pool) Get() (*Conn, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return c, nil
	}
	p.mu.Unlock()
	return Open(p.ns)
}

// Put gives a socket back. A reply that a failed call left unread cannot
// confuse the next user: every request has its own sequence number.
func (p *Pool) Put(c *Conn) {
	p.mu.Lock()
	keep := len(p.idle) < maxIdle
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		_ = c.Close()
	}
}

// Close closes the idle sockets.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		_ = c.Close()
	}
	p.idle = nil
}

// message is one request under construction.
type message struct {
	*nl.NetlinkRequest
	conn *Conn
}

// message begins a request; header is the fixed part that its kind demands.
func (c *Conn) message(kind, flags int, header nl.NetlinkRequestData) message {
	m := message{&nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{
		Len:   unix.SizeofNlMsghdr,
		Type:  uint16(kind),
		Flags: uint16(unix.NLM_F_REQUEST | flags),
	}}, c}
	m.AddData(header)
	return m
}

// attr adds an attribute. The message grows in place: the result is m itself,
// for chaining.
func (m message) attr(kind int, data []byte) message {
	m.AddData(nl.NewRtAttr(kind, data))
	return m
}

func (m message) u32(kind int, v uint32) message { return m.attr(kind, nl.Uint32Attr(v)) }

func (m message) name(s string) message { return m.attr(unix.IFLA_IFNAME, nl.ZeroTerminated(s)) }

func (m message) addr(kind int, a netip.Addr) message { return m.attr(kind, a.AsSlice()) }

// exec sends the message and waits for the kernel's acknowledgement.
func (m message) exec() error {
	m.Flags |= unix.NLM_F_ACK
	_, err := m.conn.roundTrip(m.NetlinkRequest, 0)
	return sentinel(err)
}

// echo is exec that asks for what became of it, as listeners are told: nil from
// a kernel that does not echo this kind of request.
func (m message) echo(reply uint16) ([]byte, error) {
	m.Flags |= unix.NLM_F_ACK | unix.NLM_F_ECHO
	msgs, err := m.conn.roundTrip(m.NetlinkRequest, reply)
	if err != nil || len(msgs) == 0 {
		return nil, sentinel(err)
	}
	return msgs[len(msgs)-1], nil
}

// one sends the message and returns the single reply of type reply.
func (m message) one(reply uint16) ([]byte, error) {
	msgs, err := m.conn.roundTrip(m.NetlinkRequest, reply)
	switch {
	case err != nil:
		return nil, sentinel(err)
	case len(msgs) == 0:
		return nil, fmt.Errorf("no reply of type %d", reply)
	}
	return msgs[0], nil
}

// dump asks for all of a kind. A dump during which things changed may lack
// entries, so it is made again.
func (m message) dump(reply uint16) ([][]byte, error) {
	m.Flags |= unix.NLM_F_DUMP
	for try := 1; ; try++ {
		msgs, err := m.conn.roundTrip(m.NetlinkRequest, reply)
		if err == nil || try == dumpTries || !errors.Is(err, nlsock.ErrInterrupted) {
			return msgs, sentinel(err)
		}
	}
}

// dumped is dump with every entry read by parse.
func dumped[T any](m message, reply uint16, parse func([]byte) (T, error)) ([]T, error) {
	msgs, err := m.dump(reply)
	if err != nil {
		return nil, err
	}
	list := make([]T, 0, len(msgs))
	for _, b := range msgs {
		v, err := parse(b)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// sentinel names the error numbers that callers decide by. The number itself
// and the kernel's text stay in the chain.
func sentinel(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ENODEV, unix.ESRCH, unix.EADDRNOTAVAIL:
		return fmt.Errorf("%w (%w)", core.ErrNotFound, err)
	case unix.EEXIST:
		return fmt.Errorf("%w (%w)", core.ErrExists, err)
	}
	return err
}

// gone makes success of core.ErrNotFound: deleting what is not there.
func gone(err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return nil
	}
	return err
}

// u32 reads a 32-bit attribute. Netlink is in the machine's byte order; a short
// attribute, which no kernel sends, reads as 0 rather than as a panic.
func u32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// family is the address family of a; addresses in this package are never
// IPv4-mapped IPv6 ones.
func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
