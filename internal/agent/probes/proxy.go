package probes

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/tcp"
)

const (
	atOnce    = 256              // connections; more are refused
	dialLimit = 5 * time.Second  // the pod is in the namespace: it is there, or it is not
	idleLimit = 90 * time.Second // without a byte a connection ends
	relisten  = 5 * time.Second  // after a failure
)

// listen is the proxy at one address, until ctx ends. While somebody else has the port it
// tries again; a machine without the family has nothing to serve.
func (k *Keeper) listen(ctx context.Context, at netip.AddrPort, fault *atomic.Pointer[string]) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		l, err := tcp.Foreign(ctx, k.cfg.Host, at)
		if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) && at.Addr().Is6() {
			return
		}
		if err == nil {
			fault.Store(nil)
			err = k.serve(ctx, l, &wg)
		}
		if err != nil && ctx.Err() == nil {
			said := err.Error()
			if was := fault.Swap(&said); was == nil || *was != said {
				k.cfg.Log.Error("probes do not reach pods of other Vpcs: the proxy does not listen", "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(relisten):
		}
	}
}

// serve takes connections until that fails; wg has those that are left.
func (k *Keeper) serve(ctx context.Context, l net.Listener, wg *sync.WaitGroup) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() { _ = l.Close() }()
	turns := make(chan struct{}, atOnce)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		conn, ok := c.(*net.TCPConn)
		if !ok {
			_ = c.Close()
			continue
		}
		select {
		case turns <- struct{}{}:
			wg.Go(func() {
				defer func() { <-turns }()
				k.lead(ctx, conn)
			})
		default:
			k.refuse(conn)
		}
	}
}

// refuse ends a connection as a port does at which nobody listens.
func (k *Keeper) refuse(c *net.TCPConn) {
	k.refused.Add(1)
	_ = c.SetLinger(0)
	_ = c.Close()
}

// lead connects to the pod that was meant, and copies both ways.
func (k *Keeper) lead(ctx context.Context, from *net.TCPConn) {
	meant, err := netip.ParseAddrPort(from.LocalAddr().String())
	if err != nil {
		k.refuse(from)
		return
	}
	to, err := k.dial(ctx, netip.AddrPortFrom(meant.Addr().Unmap(), meant.Port()))
	if err != nil {
		k.refuse(from)
		return
	}
	k.led.Add(1)
	ends := func() { _, _ = from.Close(), to.Close() }
	defer ends()
	defer context.AfterFunc(ctx, ends)()
	var wg sync.WaitGroup
	wg.Go(func() { pass(from, to) })
	wg.Go(func() { pass(to, from) })
	wg.Wait()
}

var errNobody = errors.New("no pod of another Vpc is probed there")

func (k *Keeper) dial(ctx context.Context, meant netip.AddrPort) (*net.TCPConn, error) {
	all := k.now()
	i := slices.IndexFunc(all, func(p port) bool { return p.To == meant && p.why == "" })
	if i < 0 {
		return nil, errNobody
	}
	ns, err := netns.Verify(all[i].netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	ctx, stop := context.WithTimeout(ctx, dialLimit)
	defer stop()
	return tcp.Dial(ctx, ns, meant)
}

// pass copies what one end says to the other, and its end. An end that fails takes both
// along.
func pass(from, to *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		_ = from.SetReadDeadline(time.Now().Add(idleLimit))
		n, err := from.Read(buf)
		if n > 0 {
			_ = to.SetWriteDeadline(time.Now().Add(idleLimit))
			if _, failed := to.Write(buf[:n]); failed != nil {
				err = failed
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite()
			return
		case err != nil:
			for _, c := range []*net.TCPConn{from, to} {
				_ = c.SetLinger(0)
				_ = c.Close()
			}
			return
		}
	}
}
