package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/internal/cri/fault"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

const (
	dialLimit = 10 * time.Second
	// lull is how long the pod may be silent after the client has ended its part:
	// a client that went away for good looks the same.
	lull = time.Minute
)

// loopbacks are where a pod's server may listen, in the order of trial: kubectl
// port-forward reaches what is bound to localhost, whatever its family.
var loopbacks = []string{"127.0.0.1", "::1"}

// PortForward connects one stream with one connection to a port of the sandbox.
func (s served) PortForward(ctx context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	// The protocol's handler has no context that ends.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	conn, err := s.dial(ctx, sandbox, port)
	if err != nil {
		return fault.Of(err, "forward port %d of sandbox %s", port, sandbox)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	return fault.Of(exchange(ctx, conn, stream), "forward port %d of sandbox %s", port, sandbox)
}

// dial opens a connection inside the sandbox's network namespace. The socket
// stays there; no goroutine does.
func (s *Server) dial(ctx context.Context, sandbox string, port int32) (*net.TCPConn, error) {
	if port <= 0 || port > 65535 {
		return nil, status.Errorf(codes.InvalidArgument, "%d is no port", port)
	}
	path, err := s.conf.Netns(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	ns, err := netns.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	var conn *net.TCPConn
	err = ns.Do(func() (err error) {
		conn, err = dialLoopback(ctx, int(port))
		return err
	})
	return conn, err
}

func dialLoopback(ctx context.Context, port int) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: dialLimit}
	var why []string
	for _, ip := range loopbacks {
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
		if err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				return tcp, nil
			}
			_ = conn.Close()
			err = fmt.Errorf("dial %s: %T is no TCP connection", ip, conn)
		}
		why = append(why, err.Error())
	}
	return nil, status.Error(codes.Unavailable, strings.Join(why, "; "))
}

// exchange copies both ways until the pod has ended its part, or says nothing
// for a lull after the client ended its own.
func exchange(ctx context.Context, conn *net.TCPConn, stream io.ReadWriter) error {
	quiet := &deadline{conn: conn}
	go func() {
		// Its error shows in the other direction, or nobody waits for it any more.
		_, _ = io.Copy(conn, stream)
		_ = conn.CloseWrite()
		quiet.begin()
	}()
	_, err := io.Copy(stream, quiet)
	if err == nil || errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// deadline reads from a connection; each read is bounded by lull after begin.
type deadline struct {
	conn  *net.TCPConn
	begun atomic.Bool
}

func (d *deadline) begin() {
	d.begun.Store(true)
	_ = d.conn.SetReadDeadline(time.Now().Add(lull)) // for the read that waits now
}

func (d *deadline) Read(b []byte) (int, error) {
	n, err := d.conn.Read(b)
	if d.begun.Load() && err == nil {
		err = d.conn.SetReadDeadline(time.Now().Add(lull))
	}
	return n, err
}
