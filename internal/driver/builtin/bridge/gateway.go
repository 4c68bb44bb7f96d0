package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// podInterface is the index of the pod's interface in a result.
const podInterface = 2

// plan completes the IPAM plugin's answer: whose the addresses are, the
// gateways that it did not name, and, if asked for, a default route for each
// family that has none with a gateway.
func (a *addition) plan() {
	seen := map[bool]bool{} // families whose default route was looked for
	for i := range a.result.IPs {
		ip := &a.result.IPs[i]
		at := podInterface
		ip.Interface = &at
		if !ip.Gateway.IsValid() && a.conf.IsGateway {
			ip.Gateway = ip.Address.Masked().Addr().Next()
		}
		v4 := ip.Address.Addr().Is4()
		if !a.conf.IsDefaultGateway || seen[v4] {
			continue
		}
		seen[v4] = true
		anywhere := core.Anywhere(ip.Address.Addr())
		if !slices.ContainsFunc(a.result.Routes, func(r inproc.Route) bool { return r.Dst == anywhere && r.GW.IsValid() }) {
			a.result.Routes = append(a.result.Routes, inproc.Route{Dst: anywhere, GW: ip.Gateway})
		}
	}
}

// gatewaysOf are the addresses of the bridge for pods with these, IPv4 first.
func gatewaysOf(ips []inproc.IP) (out []netip.Prefix) {
	for _, v4 := range []bool{true, false} {
		for _, ip := range ips {
			if ip.Address.Addr().Is4() == v4 && ip.Gateway.IsValid() {
				out = append(out, netip.PrefixFrom(ip.Gateway, ip.Address.Bits()))
			}
		}
	}
	return out
}

// forwarding is a setting that makes the host a router for one family.
type forwarding struct {
	inproc.Sysctl
	family int
}

// forwardings are what these gateways need.
func forwardings(gws []netip.Prefix) (out []forwarding) {
	if slices.ContainsFunc(gws, func(g netip.Prefix) bool { return g.Addr().Is4() }) {
		out = append(out, forwarding{inproc.Sysctl{Path: "net/ipv4/ip_forward", Value: "1", Must: true}, unix.AF_INET})
	}
	if slices.ContainsFunc(gws, func(g netip.Prefix) bool { return g.Addr().Is6() }) {
		out = append(out, forwarding{inproc.Sysctl{Path: "net/ipv6/conf/all/forwarding", Value: "1", Must: true}, unix.AF_INET6})
	}
	return out
}

// gateways gives the bridge the pods' gateways and has the host forward.
func (a *addition) gateways(ctx context.Context) error {
	if !a.conf.IsGateway || !a.conf.layer3() {
		return nil
	}
	gws := gatewaysOf(a.result.IPs)
	for _, gw := range gws {
		if err := a.ensureAddr(ctx, gw); err != nil {
			return err
		}
	}
	for _, f := range forwardings(gws) {
		if on, err := a.c.Forwards(f.family); err == nil && on {
			continue
		}
		if err := a.set(f.Sysctl); err != nil {
			return err
		}
	}
	return nil
}

// ensureAddr gives the bridge an address. That it is there is the usual case and
// needs no turn: who puts it there has set the MAC before.
func (a *addition) ensureAddr(ctx context.Context, want netip.Prefix) error {
	there, before, err := a.inTheWay(want)
	if err != nil || there && len(before) == 0 {
		return err
	}
	done, err := a.turns.Lock(ctx, a.conf.Bridge)
	if err != nil {
		return err
	}
	defer done()
	if there, before, err = a.inTheWay(want); err != nil {
		return err
	}
	mac, err := a.lastingMAC()
	if err != nil {
		return err
	}
	for _, other := range before {
		if !a.conf.ForceAddress {
			return fmt.Errorf("%q has the address %s and shall have %s; forceAddress would replace it", a.conf.Bridge, other, want)
		}
		if err := a.c.DelAddr(a.bridge.Index, other); err != nil {
			return err
		}
	}
	if there {
		return nil
	}
	// Without one of its own the bridge has its lowest port's MAC, which changes
	// as pods come and go: the pods would lose their gateway.
	if err := a.c.SetMAC(a.bridge.Index, mac); err != nil {
		return err
	}
	return a.c.AddAddr(a.bridge.Index, want, false)
}

// lastingMAC is the one that the bridge is to keep: of a bridge with an address
// the present one, for pods know it by now; it may have been set since we looked.
// Else that of before our port came.
func (a *addition) lastingMAC() (core.MAC, error) {
	have, err := a.c.Addrs(a.bridge.Index)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(have, func(h rtnl.Addr) bool { return !h.Prefix.Addr().IsLinkLocalUnicast() }) {
		return a.bridge.MAC, nil
	}
	br, err := a.c.LinkByIndex(a.bridge.Index)
	return br.MAC, err
}

// inTheWay tells whether the bridge has the address, and which others, met
// before it, cannot stay beside it: every one of IPv4, and those of IPv6 whose
// networks overlap.
func (a *addition) inTheWay(want netip.Prefix) (there bool, before []netip.Prefix, err error) {
	have, err := a.c.Addrs(a.bridge.Index)
	if err != nil {
		return false, nil, err
	}
	there, before = conflicts(have, want)
	return there, before, nil
}

func conflicts(have []rtnl.Addr, want netip.Prefix) (there bool, before []netip.Prefix) {
	for _, h := range have {
		switch {
		case h.Prefix.Addr().Is4() != want.Addr().Is4():
		case h.Prefix == want:
			return true, before
		case want.Addr().Is4() || h.Prefix.Overlaps(want):
			before = append(before, h.Prefix)
		}
	}
	return false, before
}
