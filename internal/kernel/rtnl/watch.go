package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// watched are the news that a Watch asks for: links, addresses, forwarding, rules, routes.
var watched = []int{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// ProtoPods is the protocol of routes and rules that lead pods (RTPROT_*): a number that
// no routing daemon has (iproute2, rt_protos).
const ProtoPods = 70

// Watch hears that something happened to some links of a namespace, to their
// addresses or forwarding, or to the forwarding of the namespace; to any rule, and to
// routes of ProtoPods. Of other links, those of pods, and of other routes it is not even
// woken: the kernel leaves their news out.
type Watch struct{ conn *netlink.Conn }

// NewWatch listens in ns (nil: the current namespace), before Aim to no link.
// Run must be called once.
func NewWatch(ns *netns.Handle) (*Watch, error) {
	cfg := &netlink.Config{}
	for _, g := range watched {
		cfg.Groups |= 1 << (g - 1)
	}
	if ns != nil {
		cfg.NetNS = ns.Fd()
	}
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, cfg)
	if err != nil {
		return nil, fmt.Errorf("watch links: %w", err)
	}
	w := &Watch{conn}
	if err := w.Aim(nil); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return w, nil
}

// Aim says which links count, by index. What happens to them from then on is
// heard.
func (w *Watch) Aim(indexes []int) error { return w.filter(newsOf(indexes, false)) }

// AimAtAll is Aim where a link is waited for whose index nobody knows yet: that any link
// came, or changed, is heard too.
func (w *Watch) AimAtAll(indexes []int) error { return w.filter(newsOf(indexes, true)) }

func (w *Watch) filter(filter []unix.SockFilter) error {
	raw, err := w.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	ctlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}) //nolint:gosec // at most BPF_MAXINSNS
	})
	if err = errors.Join(ctlErr, os.NewSyscallError("setsockopt SO_ATTACH_FILTER", err)); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	return nil
}

// Where a message has its type and the index of its link, in bytes: behind the
// header stands a struct ifinfomsg or ifaddrmsg, or a struct netconfmsg with the
// attribute NETCONFA_IFINDEX first.
const (
	atType     = 4
	atIndex    = unix.SizeofNlMsghdr + 4
	atNetconf  = unix.SizeofNlMsghdr + 8
	atProtocol = unix.SizeofNlMsghdr + 5 // of a struct rtmsg
	maxIndexes = 2000                    // two instructions each, of BPF_MAXINSNS
)

// newsOf is a classic BPF program that lets the news of these links pass, and of
// all where there are too many; with come also RTM_NEWLINK of others. It reads numbers in
// network byte order.
func newsOf(indexes []int, come bool) []unix.SockFilter {
	const (
		halfAt, wordAt = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		byteAt         = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		isEqual        = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		skip, ret      = unix.BPF_JMP | unix.BPF_JA, unix.BPF_RET | unix.BPF_K
	)
	pass := unix.SockFilter{Code: ret, K: math.MaxUint32}
	if len(indexes) > maxIndexes {
		return []unix.SockFilter{pass}
	}
	kind := func(k uint16) uint32 {
		return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, k)))
	}
	program := []unix.SockFilter{{Code: halfAt, K: atType}}
	if come {
		program = append(program, unix.SockFilter{Code: isEqual, K: kind(unix.RTM_NEWLINK), Jf: 1}, pass)
	}
	program = append(program, []unix.SockFilter{
		{Code: isEqual, K: kind(unix.RTM_NEWRULE), Jt: 7},
		{Code: isEqual, K: kind(unix.RTM_DELRULE), Jt: 6},
		{Code: isEqual, K: kind(unix.RTM_NEWROUTE), Jt: 2},
		{Code: isEqual, K: kind(unix.RTM_DELROUTE), Jt: 1},
		{Code: skip, K: 4},
		{Code: byteAt, K: atProtocol},
		{Code: isEqual, K: ProtoPods, Jt: 1},
		{Code: ret},
		pass,
		{Code: isEqual, K: kind(unix.RTM_NEWNETCONF), Jf: 2},
		{Code: wordAt, K: atNetconf},
		{Code: skip, K: 1},
		{Code: wordAt, K: atIndex},
	}...)
	match := func(index uint32) {
		k := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, index))
		program = append(program, unix.SockFilter{Code: isEqual, K: k, Jf: 1}, pass)
	}
	match(netconfAll)
	for _, i := range indexes {
		match(uint32(i)) //nolint:gosec // the kernel's own number
	}
	return append(program, unix.SockFilter{Code: ret})
}

// Run calls changed for such news. It ends with ctx, without an error then.
func (w *Watch) Run(ctx context.Context, changed func()) error {
	defer func() { _ = w.conn.Close() }()
	// A deadline ends the wait; to close the socket meanwhile would not.
	defer context.AfterFunc(ctx, func() { _ = w.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		_, err := w.conn.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.ENOBUFS): // more news than the socket holds are news
			return fmt.Errorf("watch links: %w", err)
		}
		changed()
	}
}
