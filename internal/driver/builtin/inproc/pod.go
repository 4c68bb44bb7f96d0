package inproc

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/kernel/sysfs"
)

// dadLimit is how long IPv6 addresses may take to prove themselves unique.
const dadLimit = 5 * time.Second

// Sysctl is a setting inside a namespace.
type Sysctl struct {
	Path, Value string // path below /proc/sys
	Must        bool   // else a failure is passed over, as the programs do
}

// Sysctls are those of an interface called name that gets r's addresses: with
// one of IPv6 it, and lo, have IPv6, and it keeps its addresses while down.
func (r Result) Sysctls(name string) []Sysctl {
	for _, ip := range r.IPs {
		if ip.Address.Addr().Is6() {
			return []Sysctl{
				{"net/ipv6/conf/lo/disable_ipv6", "0", true},
				{"net/ipv6/conf/" + name + "/disable_ipv6", "0", true},
				{"net/ipv6/conf/" + name + "/keep_addr_on_down", "1", true},
			}
		}
	}
	return nil
}

// Enter opens a socket in ns and makes the settings on the same visit.
func Enter(ns *netns.Handle, settings []Sysctl) (c *rtnl.Conn, err error) {
	err = ns.Do(func() (err error) {
		if c, err = rtnl.Open(nil); err != nil {
			return err
		}
		return Set(settings)
	})
	if err != nil && c != nil {
		_ = c.Close()
	}
	return c, err
}

// Set makes the settings in the calling thread's namespace.
func Set(settings []Sysctl) error {
	for _, s := range settings {
		if err := sysfs.SetSysctl(s.Path, s.Value); err != nil && s.Must {
			return err
		}
	}
	return nil
}

// Configure gives the pod's interface, the link of that index in c's namespace,
// the addresses of r, brings it up and gives it r's routes. With an IPv6
// gateway it waits until no address is tentative any more.
func (r Result) Configure(ctx context.Context, c *rtnl.Conn, index int) error {
	for _, ip := range r.IPs {
		if err := c.AddAddr(index, ip.Address, false); err != nil {
			return err
		}
	}
	if err := c.SetUp(index); err != nil {
		return err
	}
	gw4, gw6 := r.Gateways()
	if gw6.IsValid() {
		if err := settle(ctx, c, index); err != nil {
			return err
		}
	}
	for _, route := range r.Routes {
		if err := c.AddRoute(route.Kernel(index, gw4, gw6)); err != nil {
			return err
		}
	}
	return nil
}

// Gateways are the first of each family, which routes without one go through.
func (r Result) Gateways() (gw4, gw6 netip.Addr) {
	for _, ip := range r.IPs {
		switch gw := ip.Gateway; {
		case gw.Is4() && !gw4.IsValid():
			gw4 = gw
		case gw.Is6() && !gw6.IsValid():
			gw6 = gw
		}
	}
	return gw4, gw6
}

// Kernel is the route as it is made on the link of that index. MTU and advmss are not: the programs do
// not set them either.
func (r Route) Kernel(index int, gw4, gw6 netip.Addr) rtnl.Route {
	out := rtnl.Route{Dst: r.Dst, GW: r.GW, Index: index, Priority: r.Priority}
	if !out.GW.IsValid() && r.Dst.Addr().Is4() {
		out.GW = gw4
	} else if !out.GW.IsValid() {
		out.GW = gw6
	}
	if r.Table != nil {
		out.Table = *r.Table
	}
	if r.Scope != nil {
		out.Scope = *r.Scope
	}
	return out
}

// settle waits until duplicate address detection (RFC 4862, 5.4) is over; the
// kernel tells its end only to who listens to all of the namespace. A link that
// has no carrier cannot know: that is not held against it.
func settle(ctx context.Context, c *rtnl.Conn, index int) error {
	err := Await(ctx, dadLimit, func() (bool, error) {
		addrs, err := c.Addrs(index)
		if err != nil {
			return false, err
		}
		for _, a := range addrs {
			if a.Flags&unix.IFA_F_DADFAILED != 0 {
				return false, fmt.Errorf("address %s is in use by another host", a.Prefix)
			}
			if a.Flags&unix.IFA_F_TENTATIVE != 0 {
				return false, nil
			}
		}
		return true, nil
	})
	if !errors.Is(err, ErrTimeout) {
		return err
	}
	p, lerr := c.PortByIndex(index)
	if lerr != nil || p.State != rtnl.OperUp {
		return lerr
	}
	return fmt.Errorf("addresses are still tentative: %w", err)
}

// ErrTimeout is Await's when it has waited long enough.
var ErrTimeout = errors.New("not in time")

const maxPause = 20 * time.Millisecond

// Await asks again and again, soon at first, until done is true, fails, limit
// is over (ErrTimeout), or ctx is.
func Await(ctx context.Context, limit time.Duration, done func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, maxPause) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s: %w", limit, ErrTimeout)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
