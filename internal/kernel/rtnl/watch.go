package rtnl

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
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
// addresses or forwarding, or to the forwarding of the namespace; to any rule, to
// routes of ProtoPods, and to all routes over some links, and that any route took the place
// of another one, which may be one of those. Of other links, those of pods,
// and of other routes it is not even woken: the kernel leaves their news out.
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
	if err := w.Aim(Aims{}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return w, nil
}

// Aims are the links that count, by index: Routes are those over which routes do, too. Come:
// a link is waited for whose index nobody knows yet, so that any link came, or changed, counts.
type Aims struct {
	Links, Routes []int
	Come          bool
}

// Aim says which links count. What happens to them from then on is heard.
func (w *Watch) Aim(at Aims) error {
	raw, err := w.conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	filter := newsOf(at)
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
	atFlags    = 6
	atIndex    = unix.SizeofNlMsghdr + 4
	atNetconf  = unix.SizeofNlMsghdr + 8
	atProtocol = unix.SizeofNlMsghdr + 5 // of a struct rtmsg
	behindRt   = unix.SizeofNlMsghdr + unix.SizeofRtMsg
	atValue    = unix.SizeofRtAttr // within an attribute
	maxIndexes = 2000              // two instructions each, of BPF_MAXINSNS
)

// findAttr, as an address to load from, is the kernel's extension SKF_AD_NLATTR: where
// behind A the first attribute of type X stands, 0 for none (linux/filter.h).
const findAttr = 0xfffff000 + 12

// newsOf is a classic BPF program that lets the news of these links pass, and of
// all where there are too many. It reads numbers in network byte order.
func newsOf(at Aims) []unix.SockFilter {
	const (
		halfAt, wordAt = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		byteAt         = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		number, second = unix.BPF_LD | unix.BPF_IMM, unix.BPF_LDX | unix.BPF_IMM
		isEqual        = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		skip, ret      = unix.BPF_JMP | unix.BPF_JA, unix.BPF_RET | unix.BPF_K
	)
	pass := unix.SockFilter{Code: ret, K: math.MaxUint32}
	if len(at.Links)+len(at.Routes) > maxIndexes {
		return []unix.SockFilter{pass}
	}
	kind := func(k uint16) uint32 {
		return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, k)))
	}
	// match has what is loaded compared with links, of which the news pass; others' do not.
	match := func(indexes []int) (out []unix.SockFilter) {
		for _, i := range indexes {
			k := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, uint32(i))) //nolint:gosec // the kernel's own number
			out = append(out, unix.SockFilter{Code: isEqual, K: k, Jf: 1}, pass)
		}
		return append(out, unix.SockFilter{Code: ret})
	}
	routes := append([]unix.SockFilter{
		{Code: halfAt, K: atFlags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: kind(unix.NLM_F_REPLACE), Jf: 1},
		pass, // the route that it took the place of has no news of its own
		{Code: byteAt, K: atProtocol},
		{Code: isEqual, K: ProtoPods, Jf: 1},
		pass,
		{Code: number, K: behindRt},
		{Code: second, K: unix.RTA_OIF},
		{Code: wordAt, K: findAttr},
		{Code: isEqual, Jf: 1},
		{Code: ret},
		{Code: unix.BPF_MISC | unix.BPF_TAX},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_IND, K: atValue},
	}, match(at.Routes)...)
	begin := []unix.SockFilter{{Code: halfAt, K: atType}}
	if at.Come {
		begin = append(begin, unix.SockFilter{Code: isEqual, K: kind(unix.RTM_NEWLINK), Jf: 1}, pass)
	}
	return slices.Concat(begin, []unix.SockFilter{
		{Code: isEqual, K: kind(unix.RTM_NEWRULE), Jt: 1},
		{Code: isEqual, K: kind(unix.RTM_DELRULE), Jf: 1},
		pass,
		{Code: isEqual, K: kind(unix.RTM_NEWROUTE), Jt: 2},
		{Code: isEqual, K: kind(unix.RTM_DELROUTE), Jt: 1},
		{Code: skip, K: uint32(len(routes))}, //nolint:gosec // at most BPF_MAXINSNS
	}, routes, []unix.SockFilter{
		{Code: isEqual, K: kind(unix.RTM_NEWNETCONF), Jf: 2},
		{Code: wordAt, K: atNetconf},
		{Code: skip, K: 1},
		{Code: wordAt, K: atIndex},
	}, match(append([]int{-1}, at.Links...))) // NETCONFA_IFINDEX_ALL
}

// Await looks now and after each change of a link, by its index in ns, or of its addresses,
// until done is true or fails, or ctx ends, whose cause it gives then.
func Await(ctx context.Context, ns *netns.Handle, index int, done func() (bool, error)) error {
	w, err := NewWatch(ns)
	if err != nil {
		return err
	}
	if err := w.Aim(Aims{Links: []int{index}}); err != nil {
		_ = w.conn.Close()
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var is bool
	look := func() {
		if is, err = done(); is || err != nil {
			stop()
		}
	}
	look()
	if ended := w.Run(waiting, look); ended != nil {
		return ended
	}
	if is || err != nil {
		return err
	}
	return context.Cause(ctx)
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
