package uplink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/manager"
	"github.com/fairlead/fairlead/internal/kernel/neigh"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/ovs"
)

// mover carries one transfer out.
type mover struct {
	*Transfers
	c      *rtnl.Conn
	trunks []int // nil leaves the NIC's port as it is, if it is there
	above  []string
	makes  bool // the NIC, if it was made and is gone
	// fell: the bridge's device was down, and the kernel has dropped its routes and its
	// IPv6 addresses.
	fell bool
	kept manager.Kept
}

// forth has the bridge's device have all that the NIC has, and the NIC nothing. Whatever
// of this is so already costs nothing. The order is the point of it:
//
//	bridge  made without the NIC, for no manager to touch, its device up with the NIC's MAC, MTU and sysctls
//	        addresses and neighbours put on it; the kernel still goes by the NIC
//	        a strict rp_filter made loose: frames come one way and go the other for a while
//	NIC     made a port: frames for the node come by either way from now on
//	        a gateway asked for by the bridge; without an answer nothing was lost
//	bridge  rules and routes put on it: the node goes by the bridge
//	NIC     routes, rules and addresses dropped, then deaf (userspace datapath)
//	        its manager told, and led to the bridge if it renews addresses
//	        the gateway asked again, the bridge's rp_filter as it was
func (m *mover) forth(ctx context.Context, u *core.Uplink) (Status, error) {
	ctx, stop := context.WithTimeout(ctx, m.cfg.Limit)
	defer stop()
	nic, err := m.nic(ctx, u)
	if err != nil {
		return Status{}, err
	}
	above, clash, err := m.vlans(nic)
	if err == nil && u.Phase == core.Taking {
		err = clash
	}
	if err != nil {
		return Status{}, err
	}
	row := ovs.Uplink{
		Network: u.Network, Bridge: u.Bridge, NIC: nic.Name, MAC: nic.MAC, ChassisMAC: chassisMAC(m.cfg.Node, u.Network),
		MTU: nic.MTU, Trunks: m.trunk(above), Exchanged: u.Port != u.NIC,
	}
	if err := m.machine.Hold(ctx, u.Bridge); err != nil {
		return Status{}, err
	}
	bridge, err := m.bridge(ctx, row)
	if err != nil {
		return Status{}, err
	}
	p, gateways, err := m.plan(u, nic, bridge)
	if err != nil {
		return Status{}, err
	}
	for _, step := range []func() error{
		func() error { return m.carry("address", p.Addrs) },
		func() error { return m.loosen(ctx, u, p) },
		func() error { return m.port(ctx, row, nic) },
		func() error { return m.reaches(ctx, m.c, bridge, gateways) },
		func() error { return errors.Join(m.carry("way", p.Ways), ctx.Err()) },
		func() error { return m.carry("drop", p.Drop) },
		func() error { return errors.Join(m.deafen(ctx, nic, above), m.led(ctx, *u, nic)) },
		func() error { return m.reaches(ctx, m.c, bridge, gateways) },
		func() error { return m.tighten(*u) },
		func() error { return m.done(ctx, u, bridge, len(p.Addrs)+len(p.Ways)+len(p.Drop) > 0) },
	} {
		if err := step(); err != nil {
			return Status{}, err
		}
	}
	return Status{NIC: nic.Name, Bridge: u.Bridge, MTU: nic.MTU, Above: names(above)}, clash
}

// led has the machine's managers leave the NIC alone, and go on on the bridge.
func (m *mover) led(ctx context.Context, u core.Uplink, nic rtnl.Link) error {
	var had Inventory
	err := json.Unmarshal(u.Had, &had)
	if err == nil {
		on := manager.Links{Port: nic.Name, Device: u.Bridge}
		m.kept, err = m.machine.Give(ctx, on, nic.Index, had.Kept)
	}
	if err != nil {
		return fmt.Errorf("tell the managers of %s: %w", nic.Name, err)
	}
	fail.Here("uplink.led")
	return nil
}

// nic is the transfer's NIC, up, under the name that its port has.
func (m *mover) nic(ctx context.Context, u *core.Uplink) (rtnl.Link, error) {
	nic, err := find(m.c, *u)
	if errors.Is(err, core.ErrNotFound) && m.makes && u.Below != "" {
		nic, err = m.makeVLAN(ctx, *u)
	}
	if err != nil {
		return nic, err
	}
	if !nic.Up {
		if err := m.c.SetUp(nic.Index); err != nil {
			return nic, err
		}
	}
	name := u.Port
	if u.Port == u.NIC {
		name = nic.Name // whatever it is called now
	}
	if nic.Name == name {
		return nic, nil
	}
	// Linux 6.2 and later rename a link that is up; before that it would lose its routes.
	if err := m.c.SetName(nic.Index, name); err != nil {
		return nic, fmt.Errorf("change names of bridge and NIC (Linux >= 6.2): %w", err)
	}
	fail.Here("uplink.renamed")
	nic.Name = name
	return nic, nil
}

// bridge makes the bridge, and its device ready for what comes.
func (m *mover) bridge(ctx context.Context, row ovs.Uplink) (rtnl.Link, error) {
	if err := m.cfg.Switch.EnsureUplinkBridge(ctx, row); err != nil {
		return rtnl.Link{}, err
	}
	fail.Here("uplink.bridged")
	if err := m.cfg.Switch.WaitDevice(ctx, row.Bridge); err != nil {
		return rtnl.Link{}, err
	}
	bridge, err := m.c.LinkByName(row.Bridge)
	if err != nil {
		return bridge, err
	}
	if !bytes.Equal(bridge.MAC, row.MAC) {
		if err := m.c.SetMAC(bridge.Index, row.MAC); err != nil {
			return bridge, err
		}
	}
	if bridge.MTU != row.MTU {
		if err := m.c.SetMTU(bridge.Index, row.MTU); err != nil {
			return bridge, err
		}
	}
	if m.fell = !bridge.Up; m.fell {
		if err := m.rise(row, bridge); err != nil {
			return bridge, err
		}
	}
	fail.Here("uplink.up")
	return bridge, nil
}

// rise brings the bridge's device up, set as the NIC is. The NIC's link-local address comes
// to it as the others do.
func (m *mover) rise(row ovs.Uplink, bridge rtnl.Link) error {
	if err := m.settings(row.NIC, row.Bridge); err != nil {
		return err
	}
	// In one request the kernel would bring it up first.
	for _, ch := range []rtnl.Change{{NoLinkLocal: true}, {Up: true}} {
		if err := m.c.Apply(bridge.Index, ch); err != nil {
			return err
		}
	}
	return nil
}

// plan says what is to be done, and which gateways tell that it was done well.
func (m *mover) plan(u *core.Uplink, nic, bridge rtnl.Link) (Plan, []netip.Addr, error) {
	from, err := m.take(u, nic)
	if err != nil {
		return Plan{}, nil, err
	}
	to, err := m.take(u, bridge)
	if err != nil {
		return Plan{}, nil, err
	}
	want, err := m.wanted(u, from, to)
	if err != nil {
		return Plan{}, nil, err
	}
	if u.Phase == core.Taken && !from.global() { // nothing is taken away that could be missed
		return plan(want, from, to), nil, nil
	}
	return plan(want, from, to), want.gateways(), nil
}

// take is a link's inventory. Rules go by names: where bridge and NIC change theirs, the
// rules stay as they are, and the kernel has numbered the labels of IPv4 addresses.
func (m *mover) take(u *core.Uplink, l rtnl.Link) (Inventory, error) {
	inv, err := take(m.c, l)
	if u.Port != u.NIC {
		inv.Rules = nil
		for i := range inv.Addrs {
			inv.Addrs[i].Label = ""
		}
	}
	return inv, err
}

// wanted is all that the node is to have, with the NIC's index and name. Of one boot that
// is what was recorded and what the NIC has. While the bridge's device is the one that
// the record speaks of, what was taken off it since was somebody's choice. In another
// boot whoever serves the NIC has given it what it is to have now; where nobody did, the
// record counts.
func (m *mover) wanted(u *core.Uplink, nic, bridge Inventory) (Inventory, error) {
	had, err := recorded(*u)
	if err != nil {
		return had, err
	}
	if u.Port != u.NIC {
		had.Rules = nil
	}
	had = had.on(nic)
	there := bridge.on(nic)
	switch {
	case u.Index == bridge.Self && u.Index != 0 && u.BootID == m.cfg.BootID && !m.fell:
		return there.and(nic), nil
	case u.BootID == m.cfg.BootID:
		return had.and(there).and(nic), nil
	case nic.global() || bridge.global():
		return there.and(nic), nil
	}
	return had.local().and(nic), nil
}

// on is the inventory as that of another link.
func (inv Inventory) on(l Inventory) Inventory {
	out := Inventory{Self: l.Self, Name: l.Name}
	for _, a := range inv.Addrs {
		a.Index, a.Label = l.Self, relabel(a.Label, inv.Name, l.Name)
		out.Addrs = append(out.Addrs, a)
	}
	out.Routes = inv.routesFor(l.Self)
	for _, r := range inv.Rules {
		r.IIF, r.OIF = rename(r.IIF, inv.Name, l.Name), rename(r.OIF, inv.Name, l.Name)
		out.Rules = append(out.Rules, r)
	}
	for _, n := range inv.Neighbours {
		n.Index = l.Self
		out.Neighbours = append(out.Neighbours, n)
	}
	return out
}

// and is the inventory with what another one of the same link has beside it.
func (inv Inventory) and(o Inventory) Inventory {
	out := Inventory{Self: inv.Self, Name: inv.Name, Addrs: slices.Clone(inv.Addrs), Routes: inv.routesFor(inv.Self), Rules: slices.Clone(inv.Rules), Neighbours: slices.Clone(inv.Neighbours)}
	for _, a := range o.Addrs {
		if !hasAddr(out.Addrs, a) {
			out.Addrs = append(out.Addrs, a)
		}
	}
	for _, r := range o.routesFor(o.Self) {
		if !slices.ContainsFunc(out.Routes, func(h rtnl.Route) bool { return sameRoute(h, r) }) {
			out.Routes = append(out.Routes, r)
		}
	}
	for _, r := range o.Rules {
		if !slices.ContainsFunc(out.Rules, func(h rtnl.Rule) bool { return sameRule(h, r) }) {
			out.Rules = append(out.Rules, r)
		}
	}
	for _, n := range o.Neighbours {
		if !slices.ContainsFunc(out.Neighbours, func(h rtnl.Neighbour) bool { return h.Addr == n.Addr && h.Flags == n.Flags }) {
			out.Neighbours = append(out.Neighbours, n)
		}
	}
	return out
}

// local is the inventory without what speaks of other links, which have other numbers in
// another boot.
func (inv Inventory) local() Inventory {
	inv.Routes = slices.DeleteFunc(slices.Clone(inv.Routes), func(r rtnl.Route) bool {
		return slices.ContainsFunc(r.Multipath, func(h rtnl.Hop) bool { return h.Index != inv.Self })
	})
	return inv
}

// carry does steps, each a crash point of its own.
func (m *mover) carry(what string, steps []Step) error {
	for _, s := range steps {
		if err := s.do(m.c); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		fail.Here("uplink." + what)
	}
	return nil
}

// port makes the NIC a port of the bridge.
func (m *mover) port(ctx context.Context, row ovs.Uplink, nic rtnl.Link) error {
	if err := m.cfg.Switch.AttachUplink(ctx, row); err != nil {
		return err
	}
	fail.Here("uplink.attached")
	return m.cfg.Switch.WaitDevice(ctx, nic.Name)
}

// deafen has the kernel hear the NIC's frames no more, which Open vSwitch has from a
// packet socket: else both answer. It goes on to hear those of the VLAN links above.
func (m *mover) deafen(ctx context.Context, nic rtnl.Link, above []rtnl.Link) error {
	if !m.cfg.Userspace {
		return nil
	}
	deaf, err := nft.Deaf(m.cfg.Host)
	for _, name := range deaf { // a NIC that has another name by now
		if _, lost := m.c.LinkByName(name); errors.Is(lost, core.ErrNotFound) {
			err = errors.Join(err, nft.Hear(m.cfg.Host, name), m.machine.Forget(ctx, name))
		}
	}
	want := hearing{nic.Index, tags(above)}
	if has := m.deaf[nic.Name]; err != nil || slices.Contains(deaf, nic.Name) && has.nic == want.nic && slices.Equal(has.vlans, want.vlans) {
		return err
	}
	if err := nft.Deafen(m.cfg.Host, nic.Name, want.vlans); err != nil {
		return err
	}
	m.deaf[nic.Name] = want
	fail.Here("uplink.deaf")
	return nil
}

// done records what the bridge's device has, where that is news, and tells neighbours.
func (m *mover) done(ctx context.Context, u *core.Uplink, bridge rtnl.Link, moved bool) error {
	inv, err := m.lasting(u, bridge)
	if err != nil {
		return err
	}
	had, err := json.Marshal(inv)
	if err != nil {
		return fmt.Errorf("record of %s: %w", u.NIC, err)
	}
	if moved {
		m.announce(bridge.Name, bridge.MAC, inv)
	}
	if u.Phase == core.Taken && u.Index == bridge.Index && u.BootID == m.cfg.BootID && bytes.Equal(u.Had, had) {
		return nil
	}
	u.Phase, u.Index, u.BootID, u.Had = core.Taken, bridge.Index, m.cfg.BootID, had
	if err := m.cfg.Journal.Move(ctx, *u); err != nil {
		return err
	}
	if moved {
		m.cfg.Log.Info("NIC given to a provider network", "network", u.Network, "nic", u.NIC, "bridge", u.Bridge)
	}
	return nil
}

// lasting is what the bridge's device has, without what comes by itself. A
// device that fell has lost what it is to have: that is no record of it.
func (m *mover) lasting(u *core.Uplink, bridge rtnl.Link) (Inventory, error) {
	inv, err := m.take(u, bridge)
	if err != nil {
		return inv, err
	}
	if now, err := m.c.LinkByIndex(bridge.Index); err != nil || !now.Up {
		return inv, errors.Join(err, fmt.Errorf("%s went down meanwhile: %w", bridge.Name, core.ErrUnavailable))
	}
	inv.Kept = m.kept
	return inv.lasting(), nil
}

// announce tells neighbours where the addresses are. The MAC is the same: it matters to
// switches, and to nobody if it fails.
func (t *Transfers) announce(link string, mac core.MAC, inv Inventory) {
	var list []netip.Prefix
	for _, a := range inv.Addrs {
		list = append(list, a.Prefix)
	}
	if err := neigh.Announce(t.cfg.Host, link, mac, list); err != nil {
		t.cfg.Log.Debug("addresses not announced", "link", link, "err", err)
	}
}

// back gives the NIC all that the bridge's device has, removes the bridge and forgets the
// transfer: forth in the other direction.
func (t *Transfers) back(ctx context.Context, c *rtnl.Conn, u core.Uplink) error {
	m := &mover{Transfers: t, c: c}
	if u.Phase != core.Returning {
		now := u
		now.Phase = core.Returning
		if err := t.cfg.Journal.Move(ctx, now); err != nil { // a full disk: it is repeated as a whole then
			t.cfg.Log.Warn("return of a NIC not recorded", "network", u.Network, "err", err)
		}
	}
	if u.Below != "" {
		return t.unmake(ctx, c, u)
	}
	nic, err := find(c, u)
	if errors.Is(err, core.ErrNotFound) {
		return m.without(ctx, u)
	}
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return m.c.SetUp(nic.Index) },
		func() error { return t.hear(nic.Name) },
		func() error { return m.unload(u, nic) },
		func() error { return t.cfg.Switch.DetachUplink(ctx, u.Network, u.Bridge) },
		func() error { return m.bare(u) },
		func() error { return m.gone(ctx, u) },
		func() error { return m.named(u, nic) },
		func() error { return m.managed(ctx, u, nic) },
		func() error { return t.cfg.Journal.Return(ctx, u.Network) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	t.cfg.Log.Info("NIC given back", "network", u.Network, "nic", u.NIC)
	return nil
}

// managed has the NIC's manager serve it again. nic has the name that it had on the bridge.
func (m *mover) managed(ctx context.Context, u core.Uplink, nic rtnl.Link) error {
	name := nic.Name
	if u.Port != u.NIC {
		name = u.NIC
	}
	return m.machine.Return(ctx, manager.Links{Port: nic.Name, Device: u.Bridge}, name)
}

// named gives a NIC that changed names with its bridge its own again.
func (m *mover) named(u core.Uplink, nic rtnl.Link) error {
	if nic.Name == u.NIC || u.Port == u.NIC {
		return nil
	}
	if err := m.c.SetName(nic.Index, u.NIC); err != nil {
		return err
	}
	fail.Here("uplink.named")
	return nil
}

// unload moves what the bridge's device has to the NIC; of a device that is gone, what
// was recorded.
func (m *mover) unload(u core.Uplink, nic rtnl.Link) error {
	to, err := m.take(&u, nic)
	if err != nil {
		return err
	}
	from := Inventory{Name: u.Bridge}
	bridge, err := m.c.LinkByName(u.Bridge)
	switch {
	case err == nil && bridge.Index != nic.Index:
		if from, err = m.take(&u, bridge); err != nil {
			return err
		}
	case err != nil && !errors.Is(err, core.ErrNotFound):
		return err
	}
	want, err := m.wanted(&u, to, from)
	if err != nil {
		return err
	}
	p := plan(want, from, to)
	if from.Self != 0 {
		if p.Drop, err = m.linger(from); err != nil {
			return err
		}
	}
	for _, part := range []struct {
		point string
		steps []Step
	}{{"address-back", p.Addrs}, {"way-back", p.Ways}, {"drop-back", p.Drop}} {
		if err := m.carry(part.point, part.steps); err != nil {
			return err
		}
	}
	m.announce(nic.Name, nic.MAC, want)
	return nil
}

// gone waits until the bridge's device is no more: its name may be the NIC's.
func (m *mover) gone(ctx context.Context, u core.Uplink) error {
	fail.Here("uplink.detached")
	if u.Port == u.NIC {
		return nil
	}
	for end := time.Now().Add(settles); ; time.Sleep(look) {
		l, err := m.c.LinkByName(u.Bridge)
		if errors.Is(err, core.ErrNotFound) || err == nil && !made(l) {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("device %s of Open vSwitch is still there: %w", u.Bridge, core.ErrUnavailable)
		}
	}
}
