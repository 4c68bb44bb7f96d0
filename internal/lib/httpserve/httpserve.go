// Package httpserve serves HTTP for as long as a part of a command runs: what is
// to be read on an address or a socket. It knows nothing of what is served.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// headerLimit bounds how long a client may take to ask.
const headerLimit = 10 * time.Second

// Open listens on a TCP address, so that one which cannot be had is told at
// once. The function serves h there, as Serve does; it must be called. "" is no
// address, and the function returns at once.
func Open(ctx context.Context, address string, h http.Handler) (func() error, error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err // it names the address
	}
	return func() error { return Serve(ctx, l, h) }, nil
}

// Socket listens on a unix socket at a path where nothing is. The socket has its mode from
// its first instant, without a mask of the whole process and without another path: bind(2)
// on Linux gives the file the mode of the socket's own inode, less the mask.
func Socket(path string, mode os.FileMode) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), uint32(mode.Perm())) }), err)
	}}
	return lc.Listen(context.Background(), "unix", path) //nolint:forbidigo // it waits for nothing
}

// Serve serves h until ctx ends, which is no error, and closes l. Requests under
// way are told then, by their contexts, and cut off: what is served here is read,
// and can be read again.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerLimit,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Probe answers a kubelet's probe: 200 ok, or 503 with the reason.
func Probe(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
