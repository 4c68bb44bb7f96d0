package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// internal attaches an internal port: OVS makes the device on the host, and it
// is moved into the pod. The move costs a grace period of RCU (17 ms), which a
// veth does not. The userspace datapath keeps the device's tap open, and goes on
// forwarding; it finds no device by name any more, so that rate limits do not
// work. The kernel's datapath loses a device that is renamed, so that plan asks
// for none there (plan.Node).
func (a attachment) internal(ctx context.Context) (core.Link, error) {
	c, err := rtnl.Open(a.pod)
	if err != nil {
		return core.Link{}, err
	}
	defer func() { _ = c.Close() }()
	inside, err := a.inside(c)
	if err != nil {
		return core.Link{}, err
	}
	outside, err := a.outside(ctx, inside.Index != 0)
	if err != nil {
		return core.Link{}, err
	}
	if outside.Index != 0 {
		if inside, err = a.move(c, outside, inside); err != nil {
			return core.Link{}, err
		}
	}
	far, err := a.configure(inside.Index, false)
	if err != nil {
		return core.Link{}, err
	}
	return a.link(far), nil
}

// inside is our device if it is in the pod already, whether it has its final
// name or not; the zero Link if it is not. A stranger there is core.ErrExists.
func (a attachment) inside(c *rtnl.Conn) (rtnl.Link, error) {
	for _, name := range []string{a.spec.Key.IfName, a.spec.HostIf} {
		l, err := c.LinkByName(name)
		switch {
		case errors.Is(err, core.ErrNotFound):
		case err != nil:
			return l, err
		case !ownDevice(l, a.spec):
			return l, fmt.Errorf("link %s in the pod: %w", name, core.ErrExists)
		default:
			return l, nil
		}
	}
	return rtnl.Link{}, nil
}

// ownDevice tells that a pod's link is the Spec's internal port: a tap or a
// vport with its MAC.
func ownDevice(l rtnl.Link, s nic) bool {
	return (l.Kind == "tun" || l.Kind == "openvswitch") && l.MAC.String() == s.MAC.String()
}

// outside makes the port and gives its device while that is on the host: it is
// new, or OVS was restarted and made it again. The zero Link: it is in the pod.
func (a attachment) outside(ctx context.Context, moved bool) (l rtnl.Link, err error) {
	if len(a.spec.MAC) == 0 {
		return l, core.Errorf(core.CodeConfig, "an internal port needs a MAC address in its spec: it is known by it")
	}
	c, err := a.driver.host.Get()
	if err != nil {
		return l, err
	}
	defer a.driver.host.Put(c)
	if !moved {
		if err := a.roomForDevice(ctx, c); err != nil {
			return l, err
		}
	}
	if err := a.addPort(ctx); err != nil {
		return l, err
	}
	if _, err := a.driver.forwards(ctx, a.time, a.spec.HostIf); err != nil {
		return l, err
	}
	l, err = c.LinkByName(a.spec.HostIf)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, core.ErrNotFound) && moved:
		return rtnl.Link{}, nil
	case errors.Is(err, core.ErrNotFound):
		return l, core.Errorf(core.CodeIO, "internal port %s: Open vSwitch made no device in the agent's network namespace; both must run in the same one", a.spec.HostIf)
	}
	return l, err
}

// roomForDevice is core.ErrExists for a link on the host that bears the port's
// name and is no port of ours: OVS would take it for the port's device.
func (a attachment) roomForDevice(ctx context.Context, c *rtnl.Conn) error {
	_, err := c.LinkByName(a.spec.HostIf)
	_, port := a.driver.cfg.OVS.PortByName(a.spec.HostIf)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return a.settle(ctx, c)
	case err == nil && !port:
		return fmt.Errorf("link %s: %w", a.spec.HostIf, core.ErrExists)
	}
	return err
}

// move puts the device into the pod under its final name. stale is what an
// earlier ovs-vswitchd left there: a tap that nobody serves.
func (a attachment) move(c *rtnl.Conn, l, stale rtnl.Link) (in rtnl.Link, err error) {
	done := a.time.Step("ovs.move")
	defer func() { done(err) }()
	if stale.Index != 0 {
		if err := c.DelLink(stale.Index); err != nil {
			return in, err
		}
	}
	if err := a.setNetns(l.Index); err != nil {
		return in, fmt.Errorf("move %s into the pod: %w", l.Name, err)
	}
	fail.Here("ovs.move")
	if in, err = c.LinkByName(l.Name); err != nil {
		return in, err
	}
	if err := c.SetName(in.Index, a.spec.Key.IfName); err != nil {
		return in, err
	}
	fail.Here("ovs.rename")
	return in, c.SetMAC(in.Index, a.spec.MAC)
}

// setNetns is not among rtnl's verbs on purpose: nothing else is ever moved.
func (a attachment) setNetns(index int) error {
	at := vnetns.None()
	if a.driver.cfg.Host != nil {
		at = vnetns.NsHandle(a.driver.cfg.Host.Fd())
	}
	h, err := netlink.NewHandleAt(at, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByIndex(index)
	if err != nil {
		return err
	}
	return h.LinkSetNsFd(l, a.pod.Fd())
}
