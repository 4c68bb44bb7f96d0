package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// mark is the alias of VLAN links that were made for a network; Kube-OVN's have it too.
func mark(network string) string { return "kube-ovn:" + network }

// VLANName takes the name of a VLAN link that is to be made apart: eth1.100 is VLAN 100 above
// eth1.
func VLANName(name string) (below string, id int, err error) {
	dot := strings.LastIndexByte(name, '.')
	if dot > 0 {
		n, err := strconv.ParseUint(name[dot+1:], 10, 16)
		if err == nil && n > 0 && n < 4095 {
			return name[:dot], int(n), nil
		}
	}
	return "", 0, fmt.Errorf("%q does not say which VLAN link it is, as eth1.100 does, with an id from 1 to 4094", name)
}

// foresee is the transfer of a VLAN link that is to be made. Nothing of it is there yet.
func foresee(c *rtnl.Conn, w Want) (u core.Uplink, err error) {
	below, id, err := VLANName(w.NIC)
	if err != nil {
		return u, fmt.Errorf("this node has no link %s, and cannot make it: %w", w.NIC, err)
	}
	parent, err := lower(c, w.NIC, below)
	if err != nil {
		return u, err
	}
	links, err := c.Links()
	if err != nil {
		return u, err
	}
	for _, l := range links {
		switch {
		case l.Lower == parent.Index && l.VLAN == id && l.Name != rtnl.Draft(w.NIC) && l.Name != rtnl.Draft(BridgeOf(w.Network)):
			return u, fmt.Errorf("VLAN %d of %s is %s's: %w", id, below, l.Name, core.ErrExists)
		case l.Index == parent.MasterIndex && l.Kind != kindDatapath:
			return u, fmt.Errorf("%s is a member of %s (%s): name a VLAN of that: %w", below, l.Name, l.Kind, core.ErrExists)
		}
	}
	return core.Uplink{MAC: parent.MAC, VLAN: id, Below: below}, steady(parent, links)
}

// lower is the link above which a VLAN link is to be made; it must be up for that.
func lower(c *rtnl.Conn, name, below string) (rtnl.Link, error) {
	l, err := c.LinkByName(below)
	switch {
	case errors.Is(err, core.ErrNotFound):
		return l, fmt.Errorf("%s is to be made above %s, which this node has not: %w", name, below, core.ErrNotFound)
	case err != nil:
		return l, err
	case !l.Up:
		return l, fmt.Errorf("%s is to be made above %s, which is down: %w", name, below, core.ErrUnavailable)
	}
	return l, nil
}

// vlan notes of a transfer that its NIC is a VLAN link, and whether it was made for the
// network: then it goes with it. Where it would be made it is refused if it is not the one
// that its name says.
func vlan(u *core.Uplink, nic rtnl.Link, links []rtnl.Link, makes bool) error {
	below, id, err := VLANName(u.NIC)
	says := err == nil // a link that is there may have any name
	u.VLAN = nic.VLAN
	if says && nic.VLAN != 0 && nic.Alias == mark(u.Network) {
		u.Below = below
	}
	right := nic.VLAN == id && slices.ContainsFunc(links, func(l rtnl.Link) bool { return l.Index == nic.Lower && l.Name == below })
	if makes && says && !right {
		return fmt.Errorf("%s is there and is not VLAN %d of %s: %w", u.NIC, id, below, core.ErrExists)
	}
	return nil
}

// makeVLAN makes the link that a transfer is about, under the name that it has on the bridge,
// for no manager to touch.
func (m *mover) makeVLAN(ctx context.Context, u core.Uplink) (rtnl.Link, error) {
	parent, err := lower(m.c, u.NIC, u.Below)
	if err != nil {
		return rtnl.Link{}, err
	}
	if err := m.machine.Hold(ctx, u.Port); err != nil {
		return rtnl.Link{}, err
	}
	l, err := m.c.NewVLAN(rtnl.VLAN{Name: u.Port, Lower: parent.Index, ID: u.VLAN, Alias: mark(u.Network)})
	if err != nil {
		return l, err
	}
	m.cfg.Log.Info("VLAN link made for a provider network", "network", u.Network, "link", u.Port, "above", u.Below)
	fail.Here("uplink.made")
	return l, nil
}

// unmake takes a transfer back whose NIC was made for it, whether or not it is there.
func (t *Transfers) unmake(ctx context.Context, c *rtnl.Conn, u core.Uplink) error {
	m := &mover{Transfers: t, c: c}
	for _, step := range []func() error{
		func() error { return t.hear(u.Port) },
		func() error { return t.cfg.Switch.DetachUplink(ctx, u.Network, u.Bridge) },
		func() error { return m.gone(ctx, u) },
		func() error { return m.removeVLAN(u) },
		func() error { return m.managed(ctx, u, rtnl.Link{Name: u.Port}) },
		func() error { return t.cfg.Journal.Return(ctx, u.Network) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	t.cfg.Log.Info("VLAN link of a provider network removed", "network", u.Network, "link", u.NIC)
	return nil
}

// removeVLAN removes the links that were made for a transfer: those with its mark, and what a
// crash left of making one.
func (m *mover) removeVLAN(u core.Uplink) error {
	links, err := m.c.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		if is(u, l) || l.VLAN == u.VLAN && l.Name == rtnl.Draft(u.Port) {
			if err := m.c.DelLink(l.Index); err != nil {
				return err
			}
			fail.Here("uplink.unmade")
		}
	}
	return nil
}
