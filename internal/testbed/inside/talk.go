package inside

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
)

// Serve answers on a TCP and a UDP port, until the test ends, with "NAME sees
// ADDRESS": who it is and who asks. Without hosts it listens at all addresses, and
// UDP is answered from the one that the way back prefers.
func Serve(t testing.TB, ns *netns.Handle, name string, port int, hosts ...string) {
	t.Helper()
	words := func(from net.Addr) []byte {
		host, _, _ := net.SplitHostPort(from.String())
		return []byte(name + " sees " + host + "\n")
	}
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	for _, host := range hosts {
		var l net.Listener
		var c net.PacketConn
		at := net.JoinHostPort(host, fmt.Sprint(port))
		netnstest.Do(t, ns, func() (err error) {
			if l, err = net.Listen("tcp", at); err == nil {
				c, err = net.ListenPacket("udp", at)
			}
			return err
		})
		t.Cleanup(func() { _ = errors.Join(l.Close(), c.Close()) })
		go serveTCP(l, words)
		go serveUDP(c, words)
	}
}

func serveTCP(l net.Listener, words func(net.Addr) []byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write(words(c.RemoteAddr()))
		_ = c.Close()
	}
}

func serveUDP(c net.PacketConn, words func(net.Addr) []byte) {
	buf := make([]byte, 64)
	for {
		_, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // else it is about somebody else's packet, such as one that found nobody
			_, _ = c.WriteTo(words(from), from)
		}
	}
}

// Peer is whom to ask, and how long at the most.
type Peer struct {
	Network string // tcp or udp
	Host    string
	Port    int
	Limit   time.Duration // ends what hangs, and decides nothing
}

// Dial connects to a peer; nil where nobody lets it.
func Dial(ns *netns.Handle, p Peer) (c net.Conn) {
	_ = ns.Do(func() (err error) {
		c, err = net.DialTimeout(p.Network, net.JoinHostPort(p.Host, fmt.Sprint(p.Port)), p.Limit)
		return err
	})
	return c
}

// Query is what a peer says to ns, "" for no answer.
func Query(ns *netns.Handle, p Peer) string {
	c := Dial(ns, p)
	if c == nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	return Talk(c, p.Limit)
}

// Talk says something and hears the answer's first line, "" for none in time.
func Talk(c net.Conn, limit time.Duration) string {
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write([]byte("?")); err != nil {
		return ""
	}
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}
