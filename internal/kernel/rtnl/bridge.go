package rtnl

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// KindBridge is the Kind of a Linux bridge.
const KindBridge = "bridge"

// OperUp is the operational state of a link that carries traffic (RFC 2863;
// IF_OPER_UP of linux/if.h). A port that has just got its carrier reaches it a
// little later.
const OperUp = 6

// Port is a link with what it is as a port of a bridge.
type Port struct {
	Link
	State    int  // operational, see OperUp
	Promisc  bool // asked for by an administrator, not by a packet socket
	Hairpin  bool // frames may leave by the port they came in by
	Isolated bool // no frames between isolated ports
	NoRA     bool // it takes no IPv6 routes from neighbours (accept_ra is 0)
}

// NewBridge makes a Linux bridge with the kernel's default settings, up; mtu is
// in bytes, 0 = the kernel's default. core.ErrExists if the name is taken, by
// whatever link.
func (c *Conn) NewBridge(name string, mtu int) (Link, error) {
	h := linkHeader(0)
	h.Flags, h.Change = unix.IFF_UP, unix.IFF_UP
	m := c.message(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, h).name(name)
	if mtu != 0 {
		m.u32(unix.IFLA_MTU, uint32(mtu))
	}
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated(KindBridge))
	m.AddData(info)
	b, err := m.echo(unix.RTM_NEWLINK)
	if err != nil {
		return Link{}, fmt.Errorf("create bridge %s: %w", name, err)
	}
	if b == nil { // before Linux 6.2
		return c.LinkByName(name)
	}
	return parseLink(b)
}

// SetPromisc has the link receive every frame, as `ip link set promisc on`.
func (c *Conn) SetPromisc(index int) error {
	h := linkHeader(index)
	h.Flags, h.Change = unix.IFF_PROMISC, unix.IFF_PROMISC
	return wrapLink("set promiscuous", index, c.message(unix.RTM_SETLINK, 0, h).exec())
}

// SetPort sets both flags of a bridge's port. core.ErrNotFound if it is gone.
func (c *Conn) SetPort(index int, hairpin, isolated bool) error {
	h := linkHeader(index)
	h.Family = unix.AF_BRIDGE
	info := nl.NewRtAttr(unix.IFLA_PROTINFO|unix.NLA_F_NESTED, nil)
	info.AddRtAttr(unix.IFLA_BRPORT_MODE, truth(hairpin))
	info.AddRtAttr(unix.IFLA_BRPORT_ISOLATED, truth(isolated))
	m := c.message(unix.RTM_SETLINK, 0, h)
	m.AddData(info)
	return wrapLink("set bridge port", index, m.exec())
}

func truth(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// PortByName is LinkByName with more to it; core.ErrNotFound if there is none.
// A link that is no bridge's port has neither of the flags.
func (c *Conn) PortByName(name string) (Port, error) {
	p, err := c.getPort(c.message(unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC)).name(name))
	if err != nil {
		return Port{}, fmt.Errorf("get link %s: %w", name, err)
	}
	return p, nil
}

// PortByIndex is LinkByIndex with more to it; core.ErrNotFound if there is none.
func (c *Conn) PortByIndex(index int) (Port, error) {
	p, err := c.getPort(c.message(unix.RTM_GETLINK, 0, linkHeader(index)))
	return p, wrapLink("get", index, err)
}

func (c *Conn) getPort(m message) (p Port, err error) {
	b, err := m.u32(unix.IFLA_EXT_MASK, skipStats).one(unix.RTM_NEWLINK)
	if err != nil {
		return Port{}, err
	}
	if p.Link, err = parseLink(b); err != nil {
		return Port{}, err
	}
	p.Promisc = nl.DeserializeIfInfomsg(b).Flags&unix.IFF_PROMISC != 0
	return p, nlsock.Attrs(b[unix.SizeofIfInfomsg:], p.set)
}

// set takes over one attribute that Link does not have.
func (p *Port) set(kind uint16, v []byte) {
	switch {
	case kind == unix.IFLA_OPERSTATE && len(v) > 0:
		p.State = int(v[0])
	case kind == unix.IFLA_AF_SPEC:
		p.NoRA = noRA(v)
	case kind == unix.IFLA_LINKINFO:
		// What cannot be parsed has no flags; the caller checks the outer message.
		_ = nlsock.Attrs(v, func(kind uint16, v []byte) {
			if kind == unix.IFLA_INFO_SLAVE_DATA {
				_ = nlsock.Attrs(v, p.setFlag)
			}
		})
	}
}

func (p *Port) setFlag(kind uint16, v []byte) {
	on := len(v) > 0 && v[0] != 0
	switch kind {
	case unix.IFLA_BRPORT_MODE:
		p.Hairpin = on
	case unix.IFLA_BRPORT_ISOLATED:
		p.Isolated = on
	}
}

// Partner gives the near end, in this namespace, of the veth whose far end is
// far in ns. core.ErrNotFound if far is no veth, or if its other end is gone or
// in a third namespace.
func (c *Conn) Partner(ns *netns.Handle, far Link) (Link, error) {
	if far.Kind != "veth" {
		return Link{}, fmt.Errorf("partner of %s, of kind %q: %w", far.Name, far.Kind, core.ErrNotFound)
	}
	near, err := c.LinkByIndex(far.PeerIndex)
	if err != nil {
		return Link{}, fmt.Errorf("partner of %s: %w", far.Name, err)
	}
	id, err := c.netnsID(ns)
	if err != nil {
		return Link{}, fmt.Errorf("partner of %s: %w", far.Name, err)
	}
	// Indexes alone prove nothing: every namespace counts from 1.
	if near.Kind != "veth" || near.PeerIndex != far.Index || near.PeerNetnsID != id {
		return Link{}, fmt.Errorf("partner of %s is not here: %w", far.Name, core.ErrNotFound)
	}
	return near, nil
}
