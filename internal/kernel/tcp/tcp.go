// Package tcp is TCP of network namespaces, as the kernel has it: at which addresses a
// namespace listens, a listener for connections to addresses that the namespace has not,
// and a connection that begins in another one. It must not know pods or rules.
package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Listener is where a namespace takes connections.
type Listener struct {
	At    netip.AddrPort // an unspecified address is all of the family
	Only6 bool           // at ::, and not at 0.0.0.0 too
}

// Takes tells that a connection to an address comes to the listener.
func (l Listener) Takes(to netip.AddrPort) bool {
	switch {
	case l.At.Port() != to.Port():
		return false
	case l.At.Addr().IsUnspecified():
		return l.At.Addr().Is4() == to.Addr().Is4() || l.At.Addr().Is6() && !l.Only6
	}
	return l.At.Addr().Unmap() == to.Addr()
}

// What the kernel is asked (struct inet_diag_req_v2), and what it answers (struct
// inet_diag_msg), in bytes; and the attribute that a listener at :: is of IPv6 alone
// (INET_DIAG_SKV6ONLY).
const (
	requestLen  = 56
	answerLen   = 72
	atPort      = 4
	atAddr      = 8
	listenState = 10
	only6       = 11
)

// Listeners are those of a namespace, asked by sock_diag(7): nobody there is connected to.
func Listeners(ns *netns.Handle) (out []Listener, err error) {
	cfg := &netlink.Config{}
	if ns != nil {
		cfg.NetNS = ns.Fd()
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, cfg)
	if err != nil {
		return nil, fmt.Errorf("list listeners: %w", err)
	}
	defer func() { _ = conn.Close() }()
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ask := make([]byte, requestLen)
		ask[0], ask[1] = family, unix.IPPROTO_TCP
		binary.NativeEndian.PutUint32(ask[4:], 1<<listenState)
		answers, err := conn.Execute(netlink.Message{
			Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | netlink.Dump}, Data: ask,
		})
		if err != nil {
			return nil, fmt.Errorf("list listeners: %w", err)
		}
		for _, m := range answers {
			l, err := parse(m.Data)
			if err != nil {
				return nil, fmt.Errorf("list listeners: %w", err)
			}
			out = append(out, l)
		}
	}
	return out, nil
}

func parse(b []byte) (l Listener, err error) {
	if len(b) < answerLen {
		return l, errors.New("message is cut")
	}
	size := net.IPv4len
	if b[0] == unix.AF_INET6 {
		size = net.IPv6len
	}
	ip, _ := netip.AddrFromSlice(b[atAddr : atAddr+size])
	l.At = netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[atPort:]))
	d, err := netlink.NewAttributeDecoder(b[answerLen:])
	if err != nil {
		return l, err
	}
	for d.Next() {
		if d.Type() == only6 {
			l.Only6 = d.Uint8() != 0
		}
	}
	return l, d.Err()
}

// Foreign listens in a namespace (nil: the current one) at an address, also for connections to addresses
// that are not the namespace's and that a rule leads there (TPROXY): such a connection's
// local address is the one that was meant. It needs CAP_NET_ADMIN.
func Foreign(ctx context.Context, ns *netns.Handle, at netip.AddrPort) (l net.Listener, err error) {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if at.Addr().Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		ctl := raw.Control(func(fd uintptr) {
			err = os.NewSyscallError("setsockopt transparent", unix.SetsockoptInt(int(fd), level, option, 1))
		})
		return errors.Join(ctl, err)
	}}
	err = ns.Do(func() (err error) {
		l, err = config.Listen(ctx, "tcp", at.String())
		return err
	})
	return l, err
}

// Dial connects in a namespace.
func Dial(ctx context.Context, ns *netns.Handle, to netip.AddrPort) (conn *net.TCPConn, err error) {
	err = ns.Do(func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		if err == nil {
			conn = c.(*net.TCPConn) //nolint:forcetypeassert // of network tcp
		}
		return err
	})
	return conn, err
}
