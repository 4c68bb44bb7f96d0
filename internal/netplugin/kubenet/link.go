package kubenet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/driver/builtin/inproc"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/netplugin"
)

// Bounds of what a node's link can tell of an MTU, in bytes.
const (
	leastUsefulMTU = 576  // RFC 791: every host takes as much
	fallbackMTU    = 1460 // Ethernet behind a tunnel, as kubelet's
)

// ensureBridge makes the bridge, or finds it, with an MTU and, before its first
// port, a MAC of its own: pods know their gateway by it, and the filter of
// promiscuous-bridge. Its IPv6 address need not be proved unique: nobody else can
// be on it.
func (p *Plugin) ensureBridge(ctx context.Context) error {
	p.making.Lock()
	defer p.making.Unlock()
	c, err := rtnl.Open(p.conf.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	br, err := c.PortByName(Bridge)
	if errors.Is(err, core.ErrNotFound) {
		if br.Link, err = p.newBridge(c); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if br.Kind != rtnl.KindBridge {
		return fmt.Errorf("there is a link %s already that is no bridge", Bridge)
	}
	if br.MTU != p.settings.MTU {
		if err := c.SetMTU(br.Index, p.settings.MTU); err != nil {
			return err
		}
	}
	if p.settings.Hairpin == netplugin.PromiscuousBridge && !br.Promisc {
		if err := c.SetPromisc(br.Index); err != nil {
			return err
		}
	}
	return p.ensureDedup(ctx, br.MAC)
}

func (p *Plugin) newBridge(c *rtnl.Conn) (rtnl.Link, error) {
	br, err := c.NewBridge(Bridge, p.settings.MTU)
	if err == nil {
		err = c.SetMAC(br.Index, br.MAC) // from now on it is not that of a port
	}
	if err != nil {
		return br, err
	}
	settings := []inproc.Sysctl{{Path: "net/ipv6/conf/" + Bridge + "/accept_dad", Value: "0"}}
	return br, p.conf.Host.Do(func() error { return inproc.Set(settings) })
}

// leastMTU is the least of the links that pods' packets may leave by.
func leastMTU(host *netns.Handle) (mtu int, err error) {
	err = host.Do(func() (err error) {
		mtu, err = lookForMTU()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("MTU of the node's links: %w", err)
	}
	return mtu, nil
}

// lookForMTU looks at the calling thread's namespace. The bridge and its ports
// have what an earlier process found.
func lookForMTU() (int, error) {
	c, err := rtnl.Open(nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	links, err := c.Links()
	if err != nil {
		return 0, err
	}
	own := map[int]bool{}
	for _, l := range links {
		if l.Name == Bridge {
			own[l.Index] = true
		}
	}
	for _, l := range links {
		if l.MasterIndex != 0 && own[l.MasterIndex] {
			own[l.Index] = true
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	return leastOf(slices.DeleteFunc(all, func(i net.Interface) bool { return own[i.Index] })), nil
}

func leastOf(links []net.Interface) int {
	least := 0
	for _, l := range links {
		if l.Flags&net.FlagUp == 0 || l.Flags&(net.FlagLoopback|net.FlagPointToPoint) != 0 {
			continue
		}
		if least == 0 || l.MTU < least {
			least = l.MTU
		}
	}
	if least < leastUsefulMTU {
		return fallbackMTU
	}
	return least
}
