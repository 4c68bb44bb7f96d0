package kubenet_test

import (
	"io"
	"net"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/netns/netnstest"
	"github.com/fairlead/fairlead/internal/testbed/inside"
)

// socket is one UDP socket of ns that asks again and again, as a resolver's.
func (b *bed) socket(ns *netns.Handle, host string, port int) net.Conn {
	b.t.Helper()
	c := inside.Dial(ns, inside.Peer{Network: "udp", Host: host, Port: port, Limit: patience})
	require.NotNil(b.t, c)
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// until asks until the answer is of who, and gives it.
func (b *bed) until(c net.Conn, who string) string {
	b.t.Helper()
	buf := make([]byte, 64)
	for deadline := time.Now().Add(2 * patience); ; time.Sleep(20 * time.Millisecond) {
		_, _ = c.Write([]byte("?")) // that nobody was there is told here
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		n, err := c.Read(buf)
		if answer := strings.TrimSpace(string(buf[:n])); strings.HasPrefix(answer, who) {
			return answer
		}
		require.True(b.t, time.Now().Before(deadline), "no answer of %s: %q, %v", who, buf[:n], err)
	}
}

// transfer is how long it takes to bring so many bytes from one pod to another.
func (b *bed) transfer(from, to pod, bytes int) time.Duration {
	b.t.Helper()
	var l net.Listener
	netnstest.Do(b.t, to.Handle, func() (err error) {
		l, err = net.Listen("tcp4", net.JoinHostPort(to.v4, "0"))
		return err
	})
	defer func() { _ = l.Close() }()
	got := make(chan int64, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- 0
			return
		}
		n, _ := io.Copy(io.Discard, conn)
		_ = conn.Close()
		got <- n
	}()
	var c net.Conn
	netnstest.Do(b.t, from.Handle, func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	})
	began := time.Now()
	_, err := c.Write(make([]byte, bytes))
	require.NoError(b.t, err)
	require.NoError(b.t, c.Close())
	require.EqualValues(b.t, bytes, <-got)
	return time.Since(began)
}
