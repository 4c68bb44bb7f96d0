package icmp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/icmp"
)

// Many asks many addresses, over one socket for each family. It is safe for concurrent
// use.
type Many struct {
	heard func(netip.Addr)
	id    int // of its requests
	conns []*channel
	wg    sync.WaitGroup
}

// channel is the socket of a family.
type channel struct {
	family
	net.PacketConn
}

// OpenMany makes one of this namespace, which tells heard of each answer until Close. It
// needs CAP_NET_RAW: without that the error wraps os.ErrPermission. A machine may have
// one family alone.
func OpenMany(ctx context.Context, heard func(netip.Addr)) (*Many, error) {
	m := &Many{heard: heard, id: rand.IntN(1 << 16)}
	var last error
	for _, f := range []family{four, six} {
		conn, err := (&net.ListenConfig{}).ListenPacket(ctx, f.network, f.any)
		if err != nil {
			last = fmt.Errorf("open a socket for echoes: %w", err)
			continue
		}
		c := &channel{f, conn}
		m.conns = append(m.conns, c)
		m.wg.Go(func() { m.read(c) })
	}
	if len(m.conns) == 0 {
		return nil, last
	}
	return m, nil
}

// Ask sends one echo request, and waits for nothing.
func (m *Many) Ask(to netip.Addr) error {
	raw := icmp.Message{Body: &icmp.Echo{ID: m.id, Seq: 1}}
	for _, c := range m.conns {
		if to.Is4() != (c.proto == four.proto) {
			continue
		}
		raw.Type = c.ask
		b, err := raw.Marshal(nil) // for IPv6 the kernel fills the checksum in
		if err == nil {
			_, err = c.WriteTo(b, &net.IPAddr{IP: to.AsSlice()})
		}
		if err != nil {
			return fmt.Errorf("echo %s: %w", to, err)
		}
		return nil
	}
	return fmt.Errorf("echo %s: this machine has not its family", to)
}

// Close ends it; heard is not called any more when it returns.
func (m *Many) Close() {
	for _, c := range m.conns {
		_ = c.PacketConn.Close()
	}
	m.wg.Wait()
}

// read hears all of the host's messages, of which some are answers.
func (m *Many) read(c *channel) {
	buf := make([]byte, 1500)
	for {
		n, peer, err := c.ReadFrom(buf)
		if err != nil {
			return // closed: a socket that hears all has no other end
		}
		got, err := icmp.ParseMessage(c.proto, buf[:n])
		if err != nil || got.Type != c.answer {
			continue
		}
		if e, ok := got.Body.(*icmp.Echo); !ok || e.ID != m.id {
			continue
		}
		if ip, ok := netip.AddrFromSlice(peer.(*net.IPAddr).IP); ok { // as of all sockets of these networks
			m.heard(ip.Unmap())
		}
	}
}
