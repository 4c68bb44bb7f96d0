// Package uplink gives a node's NIC to a bridge of Open vSwitch, with all that the NIC has
// of addresses, routes, rules and neighbours, and gives it back. The node is reached at
// its addresses at every instant: they are on the bridge's own device before they leave
// the NIC, and on the NIC before they leave the bridge. What is under way stands in the
// journal, so that whoever starts after a crash or a reboot finishes it, or takes it back.
// It must not know which NIC a network is to have, or who says so.
package uplink

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/gateway/manager"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nft"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/lib/fail"
	"github.com/fairlead/fairlead/internal/ovs"
)

// Switch is what is asked of Open vSwitch; *ovs.Client is one.
type Switch interface {
	EnsureUplinkBridge(ctx context.Context, u ovs.Uplink) error
	AttachUplink(ctx context.Context, u ovs.Uplink) error
	DetachUplink(ctx context.Context, network, bridge string) error
	BridgeOf(port string) string
	Uplinks() ([]ovs.Uplink, error)
	WaitDevice(ctx context.Context, name string) error
}

// Journal keeps transfers; *journal.Journal is one.
type Journal interface {
	Take(ctx context.Context, u core.Uplink) error
	Move(ctx context.Context, u core.Uplink) error
	Return(ctx context.Context, network string) error
	Uplinks() []core.Uplink
}

// Config says where NICs are given and taken.
type Config struct {
	Switch  Switch
	Journal Journal
	Host    *netns.Handle // the node's namespace; nil = current
	Node    string        // its name
	BootID  string
	// Userspace: Open vSwitch has the NIC's frames from a packet socket, and the kernel
	// would hear them too and answer beside the bridge.
	Userspace bool
	// Run is the machine's /run, where managers of NICs are told; "" = /run.
	Run string
	// Limit is how long a transfer may take before it is taken back; 0 = 20 s.
	Limit time.Duration
	Log   *slog.Logger
}

// Want is a provider network's NIC on this node.
type Want struct {
	Network   string
	NIC       string
	Trunks    []int // VLANs of the network, 0 for untagged frames
	Exchanged bool  // bridge and NIC change names
	Make      bool  // a VLAN link that the NIC's name tells (eth1.100) is made where it is not there
	// Above are VLAN links that must be there above the NIC. All that are there stay.
	Above []string
}

// BridgeOf is the name of a network's bridge, or of its NIC where both change names.
func BridgeOf(network string) string { return "br-" + network }

const (
	limit   = 20 * time.Second
	settles = 10 * time.Second // for a device of Open vSwitch to come or go
	answers = 3 * time.Second  // for a gateway: the kernel asks three times
	look    = 10 * time.Millisecond
)

// Transfers are a node's. Its methods may be called at the same time; they wait for each
// other.
type Transfers struct {
	cfg  Config
	mu   sync.Mutex
	deaf map[string]hearing // what Deafen was called for, by NIC
	// machine is who else gives NICs their addresses.
	machine *manager.Machine
}

// New makes Transfers; nothing is touched.
func New(c Config) *Transfers {
	if c.Limit == 0 {
		c.Limit = limit
	}
	if c.Run == "" {
		c.Run = "/run"
	}
	return &Transfers{cfg: c, deaf: map[string]hearing{}, machine: manager.New(c.Run)}
}

// All are the transfers that were begun and not given back, by network.
func (t *Transfers) All() []core.Uplink { return t.cfg.Journal.Uplinks() }

func (t *Transfers) find(network string) (core.Uplink, bool) {
	for _, u := range t.All() {
		if u.Network == network {
			return u, true
		}
	}
	return core.Uplink{}, false
}

// Status is what a node has of a network.
type Status struct {
	NIC    string // its name now
	Bridge string
	MTU    int      // bytes
	Above  []string // VLAN links above the NIC, which stay as they are
}

// Take gives a network its NIC, or makes sure that it has all of it; that costs no write
// where it is so. A transfer that fails, or whose gateway does not answer by the bridge,
// is taken back: the error says why. One that was finished before is repaired.
func (t *Transfers) Take(ctx context.Context, w Want) (Status, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st, err := t.give(ctx, w)
	if err != nil {
		return st, fmt.Errorf("give %s to provider network %s: %w", w.NIC, w.Network, err)
	}
	return st, nil
}

func (t *Transfers) give(ctx context.Context, w Want) (Status, error) {
	c, err := rtnl.Open(t.cfg.Host)
	if err != nil {
		return Status{}, err
	}
	defer func() { _ = c.Close() }()
	u, known := t.find(w.Network)
	if known && (u.Phase == core.Returning || !fits(u, w)) {
		if err := t.leave(ctx, c, u, w); err != nil {
			return Status{}, err
		}
		known = false
	}
	if !known {
		if u, err = t.begin(ctx, c, w); err != nil {
			return Status{}, err
		}
	}
	st, err := (&mover{Transfers: t, c: c, trunks: w.Trunks, above: w.Above, makes: w.Make}).forth(ctx, &u)
	if err != nil && u.Phase == core.Taking {
		t.cfg.Log.Warn("transfer of a NIC is taken back", "network", u.Network, "nic", u.NIC, "err", err)
		err = errors.Join(err, t.back(context.WithoutCancel(ctx), c, u))
	}
	return st, err
}

// fits tells that a transfer is the one that is wanted.
func fits(u core.Uplink, w Want) bool { return u.NIC == w.NIC && (u.Port != u.NIC) == w.Exchanged }

// named is the link that a network names; absent: there is none, and it may be made.
func named(c *rtnl.Conn, w Want) (nic rtnl.Link, absent bool, err error) {
	nic, err = c.LinkByName(w.NIC)
	switch {
	case errors.Is(err, core.ErrNotFound) && w.Make:
		return nic, true, nil
	case errors.Is(err, core.ErrNotFound):
		return nic, false, missing(w.NIC, err)
	case err == nil && made(nic) && !w.Exchanged: // where names are exchanged, and the journal was lost, it is the bridge
		return nic, false, fmt.Errorf("%s is a device of Open vSwitch, or a tap: %w", w.NIC, core.ErrExists)
	}
	return nic, false, err
}

// begin records a transfer that nothing speaks against.
func (t *Transfers) begin(ctx context.Context, c *rtnl.Conn, w Want) (core.Uplink, error) {
	if name := BridgeOf(w.Network); len(name) > rtnl.NameLimit {
		return core.Uplink{}, fmt.Errorf("the network's name is too long for its bridge: no link can be called %s, which has more than %d bytes", name, rtnl.NameLimit)
	}
	nic, absent, err := named(c, w)
	if err != nil {
		return core.Uplink{}, err
	}
	u := core.Uplink{MAC: nic.MAC, Permanent: nic.Permanent, Bus: nic.Bus}
	if absent {
		if u, err = foresee(c, w); err != nil {
			return u, err
		}
	}
	u.Network, u.Bridge, u.NIC, u.Port, u.Phase, u.BootID = w.Network, BridgeOf(w.Network), w.NIC, w.NIC, core.Taking, t.cfg.BootID
	if w.Exchanged {
		u.Bridge, u.Port = u.Port, u.Bridge
	}
	if err := t.free(u); err != nil {
		return u, err
	}
	inv := Inventory{Name: u.NIC} // of what is made next
	if !absent {
		if inv, err = t.consider(ctx, c, &u, nic, w.Make); err != nil {
			return u, err
		}
	}
	if u.Had, err = json.Marshal(inv); err != nil {
		return u, fmt.Errorf("record of %s: %w", w.NIC, err)
	}
	return u, t.cfg.Journal.Take(ctx, u)
}

// consider is all that a NIC has, where nothing speaks against its transfer.
func (t *Transfers) consider(ctx context.Context, c *rtnl.Conn, u *core.Uplink, nic rtnl.Link, makes bool) (Inventory, error) {
	links, err := c.Links()
	if err != nil {
		return Inventory{}, err
	}
	port := nic
	if i := slices.IndexFunc(links, func(l rtnl.Link) bool { return l.Name == u.Port }); i >= 0 && made(nic) {
		port = links[i] // names are exchanged already
	}
	if err := errors.Join(alone(nic, links), steady(nic, links), vlan(u, port, links, makes)); err != nil {
		return Inventory{}, err
	}
	inv, err := take(c, nic)
	if err == nil {
		inv.Kept, err = t.machine.Keeps(ctx, nic.Index)
	}
	if err == nil {
		err = inv.Refuse()
	}
	if err == nil {
		err = t.reaches(ctx, c, nic, inv.gateways())
	}
	return inv, err
}

// free is why a NIC is another network's, or another bridge's, nil when it is neither.
func (t *Transfers) free(u core.Uplink) error {
	for _, o := range t.All() {
		if o.Network != u.Network && (o.NIC == u.NIC || o.Port == u.NIC) {
			return fmt.Errorf("%s is provider network %s's: %w", u.NIC, o.Network, core.ErrExists)
		}
	}
	if on := t.cfg.Switch.BridgeOf(u.NIC); on != "" && on != u.Bridge {
		return fmt.Errorf("%s is a port of bridge %s: %w", u.NIC, on, core.ErrExists)
	}
	return nil
}

// alone is nil where a NIC is part of no other link, and no other link of it but VLANs.
func alone(nic rtnl.Link, links []rtnl.Link) error {
	for _, l := range links {
		switch {
		// The kernel's datapath is a master too: what Open vSwitch knows of it was asked before.
		case l.Index == nic.MasterIndex && l.Kind != kindDatapath:
			return fmt.Errorf("%s is a member of %s (%s): give that: %w", nic.Name, l.Name, l.Kind, core.ErrExists)
		case l.Lower == nic.Index && l.Index != nic.Index && l.VLAN == 0:
			return fmt.Errorf("%s (%s) lies above %s: of such links VLANs alone go on to work: %w", l.Name, l.Kind, nic.Name, core.ErrExists)
		}
	}
	return nil
}

// steady is nil where all neighbours know a NIC by its own MAC. A bond in mode balance-alb
// tells some of them another member's, and takes what they send to that for the bond's own
// only on a bridge of the kernel's (bond_handle_frame).
func steady(nic rtnl.Link, links []rtnl.Link) error {
	for _, l := range links {
		if (l.Index == nic.Index || l.Index == nic.Lower) && l.Kind == rtnl.KindBond && l.BondMode == rtnl.BondALB {
			return fmt.Errorf("bond %s has mode balance-alb, which tells some neighbours other members' MACs: what they send would not reach the bridge", l.Name)
		}
	}
	return nil
}

// Kinds of the devices that Open vSwitch makes, by datapath: its internal ports and, of the
// kernel's, what all ports have as their master; in user space internal ports are taps.
const (
	kindDatapath = "openvswitch"
	kindTap      = "tun"
)

// made tells that a link is a device of Open vSwitch.
func made(l rtnl.Link) bool { return l.Kind == kindTap || l.Kind == kindDatapath }

// reaches is nil when one of the gateways, or none there is, answers by a link.
func (t *Transfers) reaches(ctx context.Context, c *rtnl.Conn, l rtnl.Link, gateways []netip.Addr) error {
	if len(gateways) == 0 {
		return nil
	}
	for _, gw := range gateways {
		if err := c.Solicit(l.Index, gw); err != nil {
			return err
		}
	}
	for end := time.Now().Add(answers); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(look) {
		for _, gw := range gateways {
			if ok, err := c.Answers(l.Index, gw); ok || err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("no gateway of the node (%s) answers by %s: %w", join(gateways), l.Name, core.ErrUnavailable)
}

func join(list []netip.Addr) (s string) {
	for i, a := range list {
		if i > 0 {
			s += ", "
		}
		s += a.String()
	}
	return s
}

// Strays are NICs on bridges of ours of which nothing is recorded: the journal was lost.
// None is known while the switch's database is away.
func (t *Transfers) Strays() (out []Want) {
	all, err := t.cfg.Switch.Uplinks()
	if err != nil {
		return nil
	}
	for _, u := range all {
		if _, known := t.find(u.Network); known || u.NIC == "" {
			continue
		}
		w := Want{Network: u.Network, NIC: u.NIC, Exchanged: u.Exchanged}
		if u.Exchanged {
			w.NIC = u.Bridge
		}
		out = append(out, w)
	}
	return out
}

// Return gives a network's NIC back, with all that the bridge's device has by now. A
// network without one is success.
func (t *Transfers) Return(ctx context.Context, network string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	u, known := t.find(network)
	if !known {
		return nil
	}
	c, err := rtnl.Open(t.cfg.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := t.back(ctx, c, u); err != nil {
		return fmt.Errorf("give %s of provider network %s back: %w", u.NIC, network, err)
	}
	return nil
}

// Resume finishes what a former process, or a former boot, left: a transfer that was
// begun or done is carried on, a return too. It asks nobody whether they are still
// wanted: the way to whoever would say it may lead over such a NIC.
func (t *Transfers) Resume(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, err := rtnl.Open(t.cfg.Host)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var errs []error
	for _, u := range t.All() {
		if u.Phase == core.Returning {
			errs = append(errs, t.back(ctx, c, u))
			continue
		}
		_, err := (&mover{Transfers: t, c: c, makes: true}).forth(ctx, &u)
		if err != nil && u.Phase == core.Taking {
			err = errors.Join(err, t.back(context.WithoutCancel(ctx), c, u))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("provider network %s: %w", u.Network, err))
		}
	}
	return errors.Join(errs...)
}

// chassisMAC is the one by which OVN's routers speak on a network. It follows from names.
func chassisMAC(node, network string) core.MAC {
	sum := sha256.Sum256([]byte("provider network " + network + " of node " + node))
	return core.MAC{0x0a, sum[0], sum[1], sum[2], sum[3], sum[4]}
}

// find is a transfer's NIC: by its name now, or by what the hardware says where it has
// another one.
func find(c *rtnl.Conn, u core.Uplink) (rtnl.Link, error) {
	links, err := c.Links()
	if err != nil {
		return rtnl.Link{}, err
	}
	return pick(u, links)
}

// pick finds it among the node's links.
func pick(u core.Uplink, links []rtnl.Link) (rtnl.Link, error) {
	for _, fits := range []func(rtnl.Link) bool{
		func(l rtnl.Link) bool { return exactly(u, l) },
		func(l rtnl.Link) bool { return l.Name == u.Port && is(u, l) },
		func(l rtnl.Link) bool { return l.Name == u.NIC && is(u, l) },
		func(l rtnl.Link) bool { return l.Lower == 0 && !member(l, links) && is(u, l) && only(u, l, links) },
		func(l rtnl.Link) bool { return l.Name == u.Port && virtual(u) },
		func(l rtnl.Link) bool { return l.Name == u.NIC && virtual(u) },
	} {
		if i := slices.IndexFunc(links, func(l rtnl.Link) bool { return !made(l) && fits(l) }); i >= 0 {
			return links[i], nil
		}
	}
	return rtnl.Link{}, fmt.Errorf("no link has the name %s or its hardware address %s: %w", u.NIC, hardware(u), core.ErrNotFound)
}

// virtual tells a NIC that has nothing but its name: a veth that was made anew has another MAC.
func virtual(u core.Uplink) bool { return u.Bus == "" && len(u.Permanent) == 0 && u.VLAN == 0 }

// member tells that a link is a part of another one, which has its MAC too.
func member(l rtnl.Link, links []rtnl.Link) bool {
	return slices.ContainsFunc(links, func(m rtnl.Link) bool { return m.Index == l.MasterIndex && m.Kind != kindDatapath })
}

// is tells that a link has the hardware of a transfer's NIC.
func is(u core.Uplink, l rtnl.Link) bool {
	switch {
	case u.VLAN != 0:
		return l.VLAN == u.VLAN && (u.Below == "" || l.Alias == mark(u.Network))
	case u.Bus != "" && l.Bus != "":
		return l.Bus == u.Bus
	case len(u.Permanent) > 0:
		return slices.Equal(l.Permanent, u.Permanent)
	}
	return slices.Equal(l.MAC, u.MAC)
}

// exactly tells that a link is a transfer's NIC, whatever it is called: ports of one device may
// share its place on the bus (two of one PCI function, representors), and have each an address
// of its own.
func exactly(u core.Uplink, l rtnl.Link) bool {
	return u.Bus != "" && l.Bus == u.Bus && len(u.Permanent) > 0 && slices.Equal(l.Permanent, u.Permanent)
}

// only tells that no other link has a link's place on the bus, or it has none, so that it
// is a transfer's NIC though that has another name; where addresses from the maker are known
// they would have told it.
func only(u core.Uplink, l rtnl.Link, links []rtnl.Link) bool {
	if u.Bus == "" || l.Bus == "" {
		return true
	}
	known := len(u.Permanent) > 0 && len(l.Permanent) > 0
	return !known && !slices.ContainsFunc(links, func(o rtnl.Link) bool { return o.Index != l.Index && o.Bus == l.Bus })
}

// hardware is the address by which a NIC is found.
func hardware(u core.Uplink) core.MAC {
	if len(u.Permanent) > 0 {
		return u.Permanent
	}
	return u.MAC
}

// hear undoes deafen.
func (t *Transfers) hear(link string) error {
	if !t.cfg.Userspace {
		return nil
	}
	if err := nft.Hear(t.cfg.Host, link); err != nil {
		return err
	}
	delete(t.deaf, link)
	fail.Here("uplink.heard")
	return nil
}
