// Package defroute is the driver for `default-route` (NPWG v1.3, 3.2.1): it
// makes a pod's default routes go through given gateways on one interface,
// after all plugins have run, because a foreign plugin cannot be told to leave
// the default route alone. It makes no interface and no address.
package defroute

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/network/defaultroute"
)

// tries bounds the passes that remove foreign default routes: something in the
// pod may put them back all the time.
const tries = 3

// Driver sets default routes. It reads Key.IfName, Gateways and Netns of a
// Spec and has no state of its own.
type Driver struct{}

// New makes the driver.
func New() *Driver { return &Driver{} }

// Attach makes the default route of every family among the gateways go via
// them, several of one family as one ECMP route, removes all other default
// routes of that family from table main and reads back what is there. The
// other family is left alone. A gateway that the interface cannot reach is
// code 102.
func (d *Driver) Attach(ctx context.Context, _ driver.Run, s core.Spec) (core.Link, error) {
	if err := ctx.Err(); err != nil {
		return core.Link{}, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	if s.Kind() == core.KindDefaultRoute && len(s.DefaultRoute.Gateways) == 0 {
		return core.Link{}, core.Errorf(core.CodeConfig, "attach %s: default-route names no gateway", s.Key)
	}
	p, err := enter(s)
	if err != nil {
		return core.Link{}, fmt.Errorf("attach %s: %w", s.Key, err)
	}
	defer p.close()
	for _, gws := range families(s.DefaultRoute.Gateways) {
		if err := p.set(gws); err != nil {
			return core.Link{}, fmt.Errorf("attach %s: %w", s.Key, err)
		}
	}
	return defaultroute.Link(s), nil
}

// Check proves that the default routes are ours and that there is no other.
func (d *Driver) Check(_ context.Context, _ driver.Run, s core.Spec, _ core.Link) error {
	p, err := enter(s)
	if errors.Is(err, core.ErrNotFound) {
		return core.Difference("interface is missing")
	}
	if err != nil {
		return err
	}
	defer p.close()
	var errs []error
	for _, gws := range families(s.DefaultRoute.Gateways) {
		ours, others, err := p.defaults(gws)
		if err != nil {
			return err
		}
		if len(ours) == 0 {
			errs = append(errs, core.Difference("default route via "+texts(gws)+" is missing"))
		}
		for _, r := range others {
			errs = append(errs, core.Difference("another default route: "+p.describe(r)))
		}
	}
	return errors.Join(errs...)
}

// Detach removes the default routes that are still as Attach made them. Those
// that Attach replaced do not come back: their interfaces go next.
func (d *Driver) Detach(_ context.Context, _ driver.Run, s core.Spec) error {
	p, err := enter(s)
	if errors.Is(err, core.ErrNetnsGone) || errors.Is(err, core.ErrNotFound) {
		return nil // with the interface its routes are gone
	}
	if err != nil {
		return fmt.Errorf("detach %s: %w", s.Key, err)
	}
	defer p.close()
	for _, gws := range families(s.DefaultRoute.Gateways) {
		ours, _, err := p.defaults(gws)
		for _, r := range ours {
			err = errors.Join(err, p.remove(r))
		}
		if err != nil {
			return fmt.Errorf("detach %s: %w", s.Key, err)
		}
	}
	return nil
}

// pod is the inside of a namespace, with the interface that the routes use.
type pod struct {
	ns    *netns.Handle
	read  *rtnl.Conn
	write *netlink.Handle // rtnl writes no multipath routes
	link  rtnl.Link
}

// enter opens the namespace and finds the interface: core.ErrNetnsGone,
// core.ErrNotFound.
func enter(s core.Spec) (_ *pod, err error) {
	if s.Kind() != core.KindDefaultRoute {
		return nil, core.Errorf(core.CodeConfig, "the spec names no default route")
	}
	p := &pod{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if p.ns, err = netns.Verify(s.Netns); err != nil {
		return nil, err
	}
	if p.read, err = rtnl.Open(p.ns); err != nil {
		return nil, err
	}
	if p.link, err = p.read.LinkByName(s.Key.IfName); err != nil {
		return nil, err
	}
	err = p.ns.Do(func() error {
		p.write, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	return p, err
}

func (p *pod) close() {
	if p.write != nil {
		_ = p.write.Close()
	}
	if p.read != nil {
		_ = p.read.Close()
	}
	if p.ns != nil {
		_ = p.ns.Close()
	}
}

// set makes ours before it removes others, so that there always is a way out.
func (p *pod) set(gws []netip.Addr) error {
	for try := 1; ; try++ {
		if err := p.write.RouteReplace(p.wanted(gws)); err != nil {
			return core.WithCode(codeOf(err), "default route via "+texts(gws)+" on "+p.link.Name, err)
		}
		fail.Here("defroute.replaced")
		_, others, err := p.defaults(gws)
		for _, r := range others {
			err = errors.Join(err, p.remove(r))
		}
		if err != nil {
			return err
		}
		ours, others, err := p.defaults(gws)
		if err != nil || (len(ours) > 0 && len(others) == 0) {
			return err
		}
		if try == tries {
			return core.Errorf(core.CodeIO, "default route via %s on %s does not stay: %d others after %d tries", texts(gws), p.link.Name, len(others), tries)
		}
	}
}

// codeOf tells a gateway that cannot be reached from other failures.
func codeOf(err error) uint {
	for _, no := range []error{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EINVAL} {
		if errors.Is(err, no) {
			return core.CodeValue
		}
	}
	return core.CodeIO
}

// wanted is the route to make: default metric, so that it takes the place of
// the one that a plugin made.
func (p *pod) wanted(gws []netip.Addr) *netlink.Route {
	r := &netlink.Route{Dst: ipNet(core.Anywhere(gws[0])), Table: unix.RT_TABLE_MAIN, Protocol: unix.RTPROT_STATIC}
	if len(gws) == 1 {
		r.LinkIndex, r.Gw = p.link.Index, gws[0].AsSlice()
		return r
	}
	for _, gw := range gws {
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: p.link.Index, Gw: gw.AsSlice()})
	}
	return r
}

// defaults sorts the default routes of gws' family into those that are as
// wanted and the others.
func (p *pod) defaults(gws []netip.Addr) (ours, others []rtnl.Route, err error) {
	all, err := p.read.Routes(0)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		switch {
		case r.Dst != core.Anywhere(gws[0]):
		case p.serves(r, gws):
			ours = append(ours, r)
		default:
			others = append(others, r)
		}
	}
	return ours, others, nil
}

// serves tells whether r goes through exactly these gateways, in any order.
func (p *pod) serves(r rtnl.Route, gws []netip.Addr) bool {
	hops := r.Multipath
	if len(hops) == 0 {
		hops = []rtnl.Hop{{GW: r.GW, Index: r.Index}}
	}
	var has []netip.Addr
	for _, h := range hops {
		if h.Index != p.link.Index {
			return false
		}
		has = append(has, h.GW)
	}
	slices.SortFunc(has, netip.Addr.Compare)
	return slices.Equal(has, gws)
}

// remove deletes exactly this route; gone is success.
func (p *pod) remove(r rtnl.Route) error {
	del := &netlink.Route{
		Dst: ipNet(r.Dst), LinkIndex: r.Index, Priority: r.Priority, Table: r.Table,
		Protocol: netlink.RouteProtocol(r.Protocol), Type: r.Type, Scope: unix.RT_SCOPE_NOWHERE, // any
	}
	if r.GW.Is4() == r.Dst.Addr().Is4() { // else the metric and the link must do
		del.Gw = r.GW.AsSlice()
	}
	for _, h := range r.Multipath {
		del.MultiPath = append(del.MultiPath, &netlink.NexthopInfo{LinkIndex: h.Index, Gw: h.GW.AsSlice(), Hops: h.Weight - 1})
	}
	err := p.write.RouteDel(del)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove default route %s: %w", p.describe(r), err)
	}
	return nil
}

// describe says in words where r goes.
func (p *pod) describe(r rtnl.Route) string {
	var hops []string
	for _, h := range append(r.Multipath, rtnl.Hop{GW: r.GW, Index: r.Index}) {
		if h.Index == 0 {
			continue // the head of a multipath route
		}
		name := fmt.Sprintf("link %d", h.Index)
		if l, err := p.read.LinkByIndex(h.Index); err == nil {
			name = l.Name
		}
		if h.GW.IsValid() {
			name = h.GW.String() + " on " + name
		}
		hops = append(hops, name)
	}
	return fmt.Sprintf("via %s, metric %d", strings.Join(hops, " and "), r.Priority)
}

// families splits gateways by family, each sorted and without repetitions.
func families(gws []netip.Addr) [][]netip.Addr {
	sorted := slices.Compact(slices.SortedFunc(slices.Values(gws), netip.Addr.Compare)) // IPv4 comes first
	split := slices.IndexFunc(sorted, netip.Addr.Is6)
	if split < 0 {
		split = len(sorted)
	}
	var out [][]netip.Addr
	for _, f := range [][]netip.Addr{sorted[:split], sorted[split:]} {
		if len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func texts(gws []netip.Addr) string {
	var out []string
	for _, gw := range gws {
		out = append(out, gw.String())
	}
	return strings.Join(out, ", ")
}
