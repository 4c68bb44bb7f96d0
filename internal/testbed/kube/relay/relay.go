// Package relay opens connections and listeners inside network namespaces, and
// carries bytes between those of two.
package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// InNetns runs f on a thread in a network namespace. A thread that cannot
// return home is given up: it ends with its goroutine.
func InNetns(path string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- visit(path, f)
	}()
	return <-done
}

// visit must run on a locked thread.
func visit(path string, f func() error) error {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	there, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	result := f()
	if err := unix.Setns(home, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("return from %s: %w", path, err)
	}
	runtime.UnlockOSThread()
	return result
}

// Dial connects from inside a network namespace; "" is this process's own.
// addr is an IP address and port.
func Dial(ctx context.Context, netns, network, addr string) (c net.Conn, err error) {
	d := &net.Dialer{}
	if netns == "" {
		return d.DialContext(ctx, network, addr)
	}
	err = InNetns(netns, func() error {
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Listen listens inside a network namespace.
func Listen(netns, network, addr string) (l net.Listener, err error) {
	err = InNetns(netns, func() error {
		l, err = net.Listen(network, addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", netns, err)
	}
	return l, nil
}

// Relay accepts connections and joins each to another.
type Relay struct {
	listener net.Listener
	connect  func(net.Conn) (net.Conn, error)

	wg    sync.WaitGroup
	mu    sync.Mutex
	ended bool
	conns map[net.Conn]struct{}
}

// New serves the listener until Close; connect makes the other end of an
// accepted connection, and may speak with its near end first.
func New(l net.Listener, connect func(net.Conn) (net.Conn, error)) *Relay {
	r := &Relay{listener: l, connect: connect, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.serve)
	return r
}

func (r *Relay) serve() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.wg.Go(func() { r.join(c) })
	}
}

// join carries bytes both ways until one end closes; then both are closed.
func (r *Relay) join(a net.Conn) {
	defer a.Close()
	if !r.keep(a) {
		return
	}
	defer r.drop(a)
	b, err := r.connect(a)
	if err != nil {
		return // the caller sees a closed connection
	}
	defer b.Close()
	if !r.keep(b) {
		return
	}
	defer r.drop(b)
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // an end of either side is the end
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	wg.Wait()
}

// Addr is the listener's address.
func (r *Relay) Addr() net.Addr { return r.listener.Addr() }

// keep notes a connection that Close must end; false after Close.
func (r *Relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.conns[c] = struct{}{}
	}
	return !r.ended
}

func (r *Relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// Close ends the listener and all connections and waits for their goroutines.
func (r *Relay) Close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.ended = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
