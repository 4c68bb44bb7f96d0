package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// inNetns runs f on a thread in a network namespace. A thread that cannot
// return home is given up: it ends with its goroutine.
func inNetns(path string, f func() error) error {
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

// dialIn connects from inside a network namespace; "" is this process's own.
// addr is an IP address and port.
func dialIn(ctx context.Context, netns, network, addr string) (c net.Conn, err error) {
	d := &net.Dialer{}
	if netns == "" {
		return d.DialContext(ctx, network, addr)
	}
	err = inNetns(netns, func() error {
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// relay accepts connections and joins each to another.
type relay struct {
	listener net.Listener
	connect  func(net.Conn) (net.Conn, error)

	wg    sync.WaitGroup
	mu    sync.Mutex
	ended bool
	conns map[net.Conn]struct{}
}

func newRelay(l net.Listener, connect func(net.Conn) (net.Conn, error)) *relay {
	r := &relay{listener: l, connect: connect, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.serve)
	return r
}

func (r *relay) serve() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.wg.Go(func() { r.join(c) })
	}
}

// join carries bytes both ways until one end closes; then both are closed.
func (r *relay) join(a net.Conn) {
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

// keep notes a connection that close must end; false after close.
func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.conns[c] = struct{}{}
	}
	return !r.ended
}

func (r *relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// close ends the listener and all connections and waits for their goroutines.
func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.ended = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
