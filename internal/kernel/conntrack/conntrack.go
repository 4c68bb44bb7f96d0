// Package conntrack forgets connections that the kernel tracks in one network
// namespace, over netlink. A connection keeps the translation that it began
// with for as long as packets flow: a UDP client that never pauses would talk
// for ever to a pod that is gone, or past one that has come. The package knows
// addresses and ports, and no pods.
package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Protocols, as conntrack numbers them.
const (
	TCP  = unix.IPPROTO_TCP
	UDP  = unix.IPPROTO_UDP
	SCTP = unix.IPPROTO_SCTP
)

// Flow is one tracked connection, seen from who began it. Without translation
// ReplySrc is Dst and ReplyDst is Src.
type Flow struct {
	Protocol           uint8
	Src, Dst           netip.Addr
	DstPort            uint16
	ReplySrc, ReplyDst netip.Addr
}

// Translated tells that the destination was changed on the way.
func (f Flow) Translated() bool { return f.Dst != f.ReplySrc }

// Table is the kernel's table of connections in one namespace. Its socket stays
// open: to close one of nfnetlink waits until nftables has destroyed what was
// removed last, which takes a grace period. It is safe for concurrent use.
type Table struct {
	ns *netns.Handle

	mu sync.Mutex
	h  *netlink.Handle
}

// New names the table of ns (nil: the current namespace); nothing is opened
// before Flush.
func New(ns *netns.Handle) *Table { return &Table{ns: ns} }

// Flush forgets the connections of one family that match, and tells how many
// there were. It reads the whole table once. A kernel without connection
// tracking has nothing to forget.
func (t *Table) Flush(v4 bool, match func(Flow) bool) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(); err != nil {
		return 0, fmt.Errorf("flush conntrack: %w", err)
	}
	family := netlink.InetFamily(unix.AF_INET6)
	if v4 {
		family = unix.AF_INET
	}
	n, err := t.h.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter(match))
	if errors.Is(err, netlink.ErrDumpInterrupted) { // the table changed meanwhile: what came is new
		err = nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		t.h.Close() // it may hold the rest of an answer
		t.h = nil
		return int(n), fmt.Errorf("flush conntrack: %w", err)
	}
	return int(n), nil
}

// open makes a socket inside the namespace; it stays there.
func (t *Table) open() error {
	if t.h != nil {
		return nil
	}
	return t.ns.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err == nil {
			t.h = h
		}
		return err
	})
}

type filter func(Flow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f filter) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	return f(Flow{
		Protocol: c.Forward.Protocol, DstPort: c.Forward.DstPort,
		Src: addr(c.Forward.SrcIP), Dst: addr(c.Forward.DstIP),
		ReplySrc: addr(c.Reverse.SrcIP), ReplyDst: addr(c.Reverse.DstIP),
	})
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
