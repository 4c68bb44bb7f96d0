package uplink

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// leave has a transfer make room for the one that is wanted. Of a NIC that is gone the network
// keeps what it had until the NIC that is wanted instead is there, or can be made: what goes then does not
// come back.
func (t *Transfers) leave(ctx context.Context, c *rtnl.Conn, u core.Uplink, w Want) error {
	if _, err := c.LinkByName(w.NIC); err != nil && u.Phase == core.Taken && !w.Make {
		if _, gone := find(c, u); errors.Is(gone, core.ErrNotFound) {
			return missing(w.NIC, err)
		}
	}
	return t.back(ctx, c, u)
}

// missing is why a network's NIC could not be looked at.
func missing(nic string, err error) error {
	if errors.Is(err, core.ErrNotFound) {
		return fmt.Errorf("this node has no link %s: %w", nic, core.ErrNotFound)
	}
	return err
}

// without gives a transfer up whose NIC is gone: back, but for what concerns the NIC. The
// addresses that it had go with the bridge's device, as they would have with the NIC: another
// NIC may lead to another network, and has its own.
func (m *mover) without(ctx context.Context, u core.Uplink) error {
	for _, step := range []func() error{
		func() error { return m.unbound(u) },
		func() error { return m.unsaid(ctx, u) },
		func() error { return m.cfg.Switch.DetachUplink(ctx, u.Network, u.Bridge) },
		func() error { return m.gone(ctx, u) },
		func() error { return m.machine.Forget(ctx, u.Bridge) },
		func() error { return m.cfg.Journal.Return(ctx, u.Network) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	had, _ := recorded(u) // for people
	m.cfg.Log.Warn("NIC of a provider network is gone: what it had went with its bridge", "network", u.Network, "nic", u.NIC, "had", had.texts())
	return nil
}

// unbound has the rules that name the bridge name the NIC again: rules outlive their links.
func (m *mover) unbound(u core.Uplink) error {
	if u.Port != u.NIC { // they name what both were called
		return nil
	}
	from, err := rulesOf(m.c, u.Bridge)
	if err != nil {
		return err
	}
	to, err := rulesOf(m.c, u.NIC)
	if err != nil {
		return err
	}
	of := Inventory{Name: u.Bridge, Rules: from}
	p := plan(of, of, Inventory{Name: u.NIC, Rules: to})
	return errors.Join(m.carry("way-back", p.Ways), m.carry("drop-back", p.Drop))
}

// unsaid takes back what was said of a NIC that is gone, under the name that it had on the
// bridge. A NIC of another network may have that name by now.
func (m *mover) unsaid(ctx context.Context, u core.Uplink) error {
	rows, err := m.cfg.Switch.Uplinks()
	if err != nil {
		return err
	}
	names := []string{u.Port}
	for _, r := range rows {
		if r.Network == u.Network && r.NIC != "" && r.NIC != u.Port {
			names = append(names, r.NIC)
		}
	}
	for _, name := range names {
		if slices.ContainsFunc(m.All(), func(o core.Uplink) bool { return o.Network != u.Network && o.Port == name }) {
			continue
		}
		if err := errors.Join(m.hear(name), m.machine.Forget(ctx, name)); err != nil {
			return err
		}
	}
	return nil
}
