// Package icmp asks a neighbour of a device whether it answers, as ping does. It must
// not know whom it asks.
package icmp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
)

// family is what differs between IPv4 and IPv6 (RFC 792, RFC 4443).
type family struct {
	network, any string
	proto        int
	ask, answer  icmp.Type
}

var (
	four = family{"ip4:icmp", "0.0.0.0", unix.IPPROTO_ICMP, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	six  = family{"ip6:ipv6-icmp", "::", unix.IPPROTO_ICMPV6, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
)

// Echo sends one echo request out of a device of this namespace and waits for its
// answer until limit is over: then it is core.ErrUnavailable.
func Echo(ctx context.Context, device string, to netip.Addr, limit time.Duration) error {
	if err := echo(ctx, device, to, limit); err != nil {
		return fmt.Errorf("echo %s by %s: %w", to, device, err)
	}
	return nil
}

func echo(ctx context.Context, device string, to netip.Addr, limit time.Duration) error {
	f := six
	if to.Is4() {
		f = four
	}
	bound := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }), err)
	}}
	conn, err := bound.ListenPacket(ctx, f.network, f.any)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // which ends the read
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	want := icmp.Echo{ID: rand.IntN(1 << 16), Seq: 1}
	raw, err := (&icmp.Message{Type: f.ask, Body: &want}).Marshal(nil) // for IPv6 the kernel fills the checksum in
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(raw, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return err
	}
	return f.await(conn, to, want.ID)
}

// await reads until the answer comes: a raw socket hears all of the host's messages.
func (f family) await(conn net.PacketConn, from netip.Addr, id int) error {
	buf := make([]byte, 1500)
	for {
		n, peer, err := conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return context.Canceled
		}
		if err != nil {
			return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
		}
		m, err := icmp.ParseMessage(f.proto, buf[:n])
		if err != nil || m.Type != f.answer || peer.String() != from.String() {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == id {
			return nil
		}
	}
}
