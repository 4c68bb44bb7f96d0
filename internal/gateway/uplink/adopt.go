package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
)

// Former is a transfer that somebody else has carried out.
type Former struct {
	Network   string
	Bridge    string // its device has what the NIC had
	Port      string // the NIC's name on the bridge
	Exchanged bool   // bridge and NIC have changed names
}

// Adopt records a transfer that somebody else has carried out as one of the node's own,
// done; neither the switch nor the kernel is touched. One that is recorded already is left
// as it is. It tells whether it recorded anything. core.ErrNotFound: there is no such NIC,
// or the bridge has no device.
func (t *Transfers) Adopt(ctx context.Context, f Former) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.find(f.Network); known {
		return false, nil
	}
	c, err := rtnl.Open(t.cfg.Host)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	u, err := t.former(ctx, c, f)
	if err == nil {
		err = t.cfg.Journal.Take(ctx, u)
	}
	if err != nil {
		return false, fmt.Errorf("bridge %s of provider network %s: %w", f.Bridge, f.Network, err)
	}
	return true, nil
}

// former is the record of such a transfer.
func (t *Transfers) former(ctx context.Context, c *rtnl.Conn, f Former) (core.Uplink, error) {
	nic, err := c.LinkByName(f.Port)
	if err != nil {
		return core.Uplink{}, err
	}
	bridge, err := c.LinkByName(f.Bridge)
	if err != nil {
		return core.Uplink{}, err
	}
	u := core.Uplink{
		Network: f.Network, Bridge: f.Bridge, NIC: f.Port, Port: f.Port, MAC: nic.MAC, Permanent: nic.Permanent, Bus: nic.Bus,
		Phase: core.Taken, BootID: t.cfg.BootID, Index: bridge.Index,
	}
	if f.Exchanged {
		u.NIC = f.Bridge
	}
	inv, err := (&mover{Transfers: t, c: c}).take(&u, bridge)
	if err == nil {
		inv.Kept, err = t.machine.Keeps(ctx, nic.Index)
	}
	if err == nil {
		u.Had, err = json.Marshal(inv.lasting())
	}
	return u, err
}

// Release forgets a transfer whose bridge is another's from now on: NIC and bridge stay as
// they are, and the kernel hears the NIC again. The machine's managers go on to leave both
// alone, which a reboot ends. One that is not known is success; core.ErrUnavailable: it is
// under way.
func (t *Transfers) Release(ctx context.Context, network string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	u, known := t.find(network)
	if !known {
		return nil
	}
	if u.Phase != core.Taken {
		return fmt.Errorf("provider network %s: its NIC %s is on its way: %w", network, u.NIC, core.ErrUnavailable)
	}
	c, err := rtnl.Open(t.cfg.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	nic, err := find(c, u)
	if err == nil {
		err = t.hear(nic.Name)
	}
	if err != nil && !errors.Is(err, core.ErrNotFound) { // without the NIC there is nothing to hear
		return fmt.Errorf("provider network %s: %w", network, err)
	}
	fail.Here("uplink.released")
	return t.cfg.Journal.Return(ctx, network)
}
