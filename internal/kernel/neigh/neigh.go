// Package neigh asks the neighbours of a link who has an address, and tells them who has: by
// ARP (RFC 826, RFC 5227) and by neighbour discovery (RFC 4861, RFC 4862), on a packet socket,
// so that what the kernel believes of neighbours neither answers nor changes. It must not
// know why it is asked.
package neigh

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// Question asks who has an address.
type Question struct {
	IfName string   // of a link that is up
	MAC    core.MAC // the link's own
	// From is the address of the link that asks; the zero value asks as one that has
	// none yet (RFC 5227, 2.1.1; RFC 4862, 5.4.2).
	From netip.Addr
	For  netip.Addr
}

// maxFrame is more than an answer has, in bytes.
const maxFrame = 256

// Who sends the question now, and again after each pause until ctx ends, and gives the
// MAC of the first other than the link's own that says it has the address. Nobody does:
// core.ErrNotFound. A nil namespace is the process's own.
func Who(ctx context.Context, ns *netns.Handle, q Question, pause time.Duration) (mac core.MAC, err error) {
	var f *os.File
	if err = ns.Do(func() (err error) { f, err = open(q); return err }); err == nil {
		defer func() { go func() { _ = f.Close() }() }() // which waits for an RCU grace period
		mac, err = q.ask(ctx, f, pause)
	}
	if err != nil {
		return nil, fmt.Errorf("who has %s on %s: %w", q.For, q.IfName, err)
	}
	return mac, nil
}

// open makes the socket, which hears what the link gets of the family's protocol.
func open(q Question) (*os.File, error) {
	if len(q.MAC) != 6 {
		return nil, fmt.Errorf("mac %q is not an Ethernet address", q.MAC)
	}
	link, err := net.InterfaceByName(q.IfName)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", core.ErrNotFound, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket AF_PACKET", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(q.protocol()), Ifindex: link.Index}); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("bind AF_PACKET", err)
	}
	return os.NewFile(uintptr(fd), "packets of "+q.IfName), nil
}

func (q Question) protocol() uint16 {
	if q.For.Is4() {
		return unix.ETH_P_ARP
	}
	return unix.ETH_P_IPV6
}

// bigEndian is a number as the kernel takes it.
func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// ask sends and hears until there is an answer or ctx ends. A question that a crowded link
// drops is asked again; core.ErrUnavailable: it has dropped all.
func (q Question) ask(ctx context.Context, f *os.File, pause time.Duration) (core.MAC, error) {
	defer context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })()
	question, err := q.frame()
	if err != nil {
		return nil, err
	}
	asked := false
	for buf := make([]byte, maxFrame); ctx.Err() == nil; {
		switch _, err := f.Write(question); {
		case err == nil:
			asked = true
		case !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ENOBUFS):
			return nil, err
		}
		if mac, err := q.hear(ctx, f, buf, pause); mac != nil || err != nil {
			return mac, err
		}
	}
	if !asked {
		return nil, fmt.Errorf("the link sends nothing: %w", core.ErrUnavailable)
	}
	return nil, fmt.Errorf("nobody answers: %w", core.ErrNotFound)
}

// hear waits a while for an answer; nil: there is none.
func (q Question) hear(ctx context.Context, f *os.File, buf []byte, pause time.Duration) (core.MAC, error) {
	for end := time.Now().Add(pause); time.Now().Before(end) && ctx.Err() == nil; {
		if err := f.SetReadDeadline(end); err != nil {
			return nil, err
		}
		n, err := f.Read(buf)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		if mac := q.answer(buf[:n]); mac != nil {
			return mac, nil
		}
	}
	return nil, nil
}

// frame is the question as it goes over the wire.
func (q Question) frame() ([]byte, error) {
	if q.For.Is4() {
		return q.arp(), nil
	}
	return q.solicitation()
}

// Offsets in an ARP packet over Ethernet for IPv4 behind the Ethernet header.
const (
	ethernet  = 14
	arpSender = ethernet + 8
	arpFrom   = arpSender + 6
	arpEnd    = ethernet + 28
)

func (q Question) arp() []byte {
	f := bytes.Repeat([]byte{0xff}, 6)
	f = append(append(f, q.MAC...), 0x08, 0x06, 0, 1, 0x08, 0x00, 6, 4, 0, 1) // a request
	f = append(f, q.MAC...)
	from := netip.IPv4Unspecified()
	if q.From.IsValid() {
		from = q.From
	}
	f = append(append(f, from.AsSlice()...), 0, 0, 0, 0, 0, 0)
	return append(f, q.For.AsSlice()...)
}

// solicitation is a neighbour solicitation to the address's multicast group. One that
// asks as nobody names no link-layer address.
func (q Question) solicitation() ([]byte, error) {
	target := q.For.As16()
	group := [16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]}
	from, body := netip.IPv6Unspecified().As16(), append([]byte{0, 0, 0, 0}, target[:]...)
	if q.From.IsValid() {
		from = q.From.As16()
		body = append(append(body, 1, 1), q.MAC...)
	}
	m := icmp.Message{Type: ipv6.ICMPTypeNeighborSolicitation, Body: &icmp.RawBody{Data: body}}
	text, err := m.Marshal(icmp.IPv6PseudoHeader(from[:], group[:]))
	if err != nil {
		return nil, err
	}
	f := append([]byte{0x33, 0x33}, group[12:]...)
	f = append(append(f, q.MAC...), 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(text)), unix.IPPROTO_ICMPV6, 255)
	return append(append(append(f, from[:]...), group[:]...), text...), nil
}

// answer is the MAC of another who says in a frame that it has the address, nil for none.
func (q Question) answer(f []byte) (mac core.MAC) {
	if q.For.Is4() {
		mac = q.arpAnswer(f)
	} else {
		mac = q.advertised(f)
	}
	if bytes.Equal(mac, q.MAC) {
		return nil
	}
	return mac
}

// arpAnswer: whoever sends ARP from the address has it, whatever it says.
func (q Question) arpAnswer(f []byte) core.MAC {
	if len(f) < arpEnd || binary.BigEndian.Uint16(f[12:]) != unix.ETH_P_ARP || !bytes.Equal(f[arpFrom:arpFrom+4], q.For.AsSlice()) {
		return nil
	}
	return bytes.Clone(f[arpSender:arpFrom])
}

// Offsets in a neighbour advertisement behind the Ethernet header.
const (
	ipNext   = ethernet + 6
	ipHops   = ethernet + 7
	naType   = ethernet + 40
	naTarget = naType + 8
	naOption = naTarget + 16
)

// advertised: whoever advertises the address has it, at the MAC of the option, else at
// the one that the frame is from.
func (q Question) advertised(f []byte) core.MAC {
	if len(f) < naOption || binary.BigEndian.Uint16(f[12:]) != unix.ETH_P_IPV6 || f[ipNext] != unix.IPPROTO_ICMPV6 || f[ipHops] != 255 ||
		f[naType] != byte(ipv6.ICMPTypeNeighborAdvertisement) || !bytes.Equal(f[naTarget:naOption], q.For.AsSlice()) {
		return nil
	}
	if len(f) >= naOption+8 && f[naOption] == 2 && f[naOption+1] == 1 {
		return bytes.Clone(f[naOption+2 : naOption+8])
	}
	return bytes.Clone(f[6:12])
}
