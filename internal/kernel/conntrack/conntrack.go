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

// Flush forgets the connections of one family in ns (nil: the current
// namespace) that match, and tells how many there were. It reads the whole
// table once. A kernel without connection tracking has nothing to forget.
func Flush(ns *netns.Handle, v4 bool, match func(Flow) bool) (int, error) {
	h, err := open(ns)
	if err != nil {
		return 0, fmt.Errorf("flush conntrack: %w", err)
	}
	defer h.Close()
	family := netlink.InetFamily(unix.AF_INET6)
	if v4 {
		family = unix.AF_INET
	}
	n, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter(match))
	if errors.Is(err, netlink.ErrDumpInterrupted) { // the table changed meanwhile: what came is new
		err = nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return int(n), fmt.Errorf("flush conntrack: %w", err)
	}
	return int(n), nil
}

// open makes a socket inside ns; it stays there.
func open(ns *netns.Handle) (h *netlink.Handle, err error) {
	dial := func() error {
		h, err = netlink.NewHandle(unix.NETLINK_NETFILTER)
		return err
	}
	if ns == nil {
		err = dial()
	} else {
		err = ns.Do(dial)
	}
	return h, err
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
