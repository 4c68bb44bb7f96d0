// Package inpod looks into a pod's network namespace and does there what every
// network plugin must, over netlink and without a process. It knows no plugin.
package inpod

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// Identify finds out which namespace a running sandbox has. Its errors are
// GetNetNS's, netplugin.ErrNoNetns among them, and core.ErrNetnsGone.
func Identify(ctx context.Context, host netplugin.Host, sandbox string) (core.Netns, error) {
	path, err := host.GetNetNS(ctx, sandbox)
	if err != nil {
		return core.Netns{}, err
	}
	return netns.Identify(path)
}

// Status is what the kernel tells of a pod of which there is no record; nil for
// one whose sandbox has ended.
func Status(ctx context.Context, host netplugin.Host, sandbox string) (*netplugin.PodNetworkStatus, error) {
	path, err := host.GetNetNS(ctx, sandbox)
	if errors.Is(err, netplugin.ErrNoNetns) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ips, err := addresses(path)
	return netplugin.StatusOf(ips), err
}

// visit calls fn with a socket in the namespace at path.
func visit(path string, fn func(c *rtnl.Conn) error) error {
	ns, err := netns.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	c, err := rtnl.Open(ns)
	if err != nil {
		return err
	}
	return errors.Join(fn(c), c.Close())
}

// LoopbackUp is what the plugin loopback does; the kernel gives lo its addresses.
// There is nothing to undo: lo goes with its namespace.
func LoopbackUp(netns string) error {
	return visit(netns, func(c *rtnl.Conn) error {
		lo, err := c.LinkByName("lo")
		if err != nil || lo.Up {
			return err
		}
		return c.SetUp(lo.Index)
	})
}

// addresses are eth0's, IPv4 first.
func addresses(netns string) (out []netip.Addr, err error) {
	err = visit(netns, func(c *rtnl.Conn) error {
		eth0, err := c.LinkByName(netplugin.IfName)
		if err != nil {
			return err
		}
		addrs, err := c.Addrs(eth0.Index)
		for _, a := range addrs {
			if ip := a.Prefix.Addr(); ip.IsGlobalUnicast() {
				out = append(out, ip)
			}
		}
		return err
	})
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return out, err
}
