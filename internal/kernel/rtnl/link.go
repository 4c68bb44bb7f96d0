package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// skipStats (RTEXT_FILTER_SKIP_STATS) keeps counters out of replies.
const skipStats = 1 << 3

// Link is a network interface as the kernel shows it.
type Link struct {
	Index       int
	PeerIndex   int // veth: index of the far end in its own namespace
	MTU         int // bytes
	TxQLen      int // packets
	Name        string
	Kind        string // veth, tun, openvswitch, ...; "" for hardware and lo
	Alias       string
	MAC         core.MAC
	Up          bool // administratively
	Running     bool // has carrier: the far end is up too
	Group       uint32
	MasterIndex int
	// Lower is the index of the device below, of a VLAN link for example; 0 for none.
	Lower int
	VLAN  int // the id of a VLAN link
	// BondMode is BOND_MODE_* of a bond (linux/if_bonding.h).
	BondMode int
	// VLANProtocol is the EtherType of its tag: 802.1Q's (0x8100), or 802.1ad's (0x88a8).
	VLANProtocol uint16
	// Permanent is the hardware address that the device has from its maker, nil where the
	// kernel knows none; Bus is where the device sits (0000:00:1f.6), "" for a virtual one.
	Permanent core.MAC
	Bus       string
	// PeerNetnsID is this namespace's number for the one where the far end is;
	// -1 when both ends are in one namespace.
	PeerNetnsID int
}

// NameLimit is how long a link's name may be, in bytes.
const NameLimit = unix.IFNAMSIZ - 1

// LinkByName gives the link called name; core.ErrNotFound if there is none, as of a name
// that no link can have.
func (c *Conn) LinkByName(name string) (Link, error) {
	if len(name) > NameLimit { // the kernel would refuse the question (ERANGE)
		return Link{}, fmt.Errorf("get link %s: %w: a name has at most %d bytes", name, core.ErrNotFound, NameLimit)
	}
	l, err := c.getLink(c.message(unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC)).
		name(name))
	if err != nil {
		return Link{}, fmt.Errorf("get link %s: %w", name, err)
	}
	return l, nil
}

// LinkByIndex gives the link with that index; core.ErrNotFound if there is none.
func (c *Conn) LinkByIndex(index int) (Link, error) {
	l, err := c.getLink(c.message(unix.RTM_GETLINK, 0, linkHeader(index)))
	if err != nil {
		return Link{}, fmt.Errorf("get link %d: %w", index, err)
	}
	return l, nil
}

// getLink asks for one link; a dump to find one would cost as many replies as
// the node has pods.
func (c *Conn) getLink(m message) (Link, error) {
	b, err := m.u32(unix.IFLA_EXT_MASK, skipStats).one(unix.RTM_NEWLINK)
	if err != nil {
		return Link{}, err
	}
	return parseLink(b)
}

// Links gives all links of the namespace.
func (c *Conn) Links() ([]Link, error) {
	m := c.message(unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC)).u32(unix.IFLA_EXT_MASK, skipStats)
	links, err := dumped(m, unix.RTM_NEWLINK, parseLink)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return links, nil
}

// parseLink reads an RTM_NEWLINK. Attributes that this package does not know
// are passed over, so that a newer kernel is no error.
func parseLink(b []byte) (Link, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return Link{}, errors.New("short link message")
	}
	h := nl.DeserializeIfInfomsg(b)
	l := Link{
		Index:       int(h.Index),
		Up:          h.Flags&unix.IFF_UP != 0,
		Running:     h.Flags&unix.IFF_LOWER_UP != 0,
		PeerNetnsID: here,
	}
	err := nlsock.Attrs(b[unix.SizeofIfInfomsg:], l.set)
	if l.Kind != "veth" { // IFLA_LINK is the device below then
		l.PeerIndex, l.Lower = 0, l.PeerIndex
	}
	return l, err
}

// set takes over one attribute.
func (l *Link) set(kind uint16, v []byte) {
	switch kind {
	case unix.IFLA_IFNAME:
		l.Name = unix.ByteSliceToString(v)
	case unix.IFLA_ADDRESS:
		l.MAC = core.MAC(v)
	case unix.IFLA_MTU:
		l.MTU = int(u32(v))
	case unix.IFLA_TXQLEN:
		l.TxQLen = int(u32(v))
	case unix.IFLA_IFALIAS:
		l.Alias = unix.ByteSliceToString(v)
	case unix.IFLA_GROUP:
		l.Group = u32(v)
	case unix.IFLA_MASTER:
		l.MasterIndex = int(u32(v))
	case unix.IFLA_LINK:
		l.PeerIndex = int(u32(v))
	case unix.IFLA_LINK_NETNSID:
		l.PeerNetnsID = int(int32(u32(v)))
	case unix.IFLA_LINKINFO:
		l.setInfo(v)
	default:
		l.setHardware(kind, v)
	}
}

// setHardware takes over what a device has from its maker.
func (l *Link) setHardware(kind uint16, v []byte) {
	switch kind {
	case unix.IFLA_PERM_ADDRESS:
		l.Permanent = core.MAC(v)
	case unix.IFLA_PARENT_DEV_NAME:
		l.Bus = unix.ByteSliceToString(v)
	}
}

// setInfo takes over IFLA_LINKINFO, which hardware does not have. What cannot be parsed has
// no kind; the caller checks the outer message.
func (l *Link) setInfo(info []byte) {
	var data []byte
	_ = nlsock.Attrs(info, func(k uint16, v []byte) {
		switch k {
		case unix.IFLA_INFO_KIND:
			l.Kind = unix.ByteSliceToString(v)
		case unix.IFLA_INFO_DATA:
			data = v
		}
	})
	_ = nlsock.Attrs(data, func(k uint16, v []byte) {
		switch {
		case l.Kind == KindVLAN && k == nl.IFLA_VLAN_ID && len(v) >= 2:
			l.VLAN = int(binary.NativeEndian.Uint16(v))
		case l.Kind == KindBond && k == nl.IFLA_BOND_MODE && len(v) >= 1:
			l.BondMode = int(v[0])
		case l.Kind == KindVLAN && k == nl.IFLA_VLAN_PROTOCOL && len(v) >= 2:
			l.VLANProtocol = binary.BigEndian.Uint16(v)
		}
	})
}

// linkHeader names a link by its index: a name could be another link's by now.
func linkHeader(index int) *nl.IfInfomsg {
	h := nl.NewIfInfomsg(unix.AF_UNSPEC)
	h.Index = int32(index)
	return h
}

// setLink begins a change; RTM_SETLINK, unlike RTM_NEWLINK, never creates.
func (c *Conn) setLink(index int) message {
	return c.message(unix.RTM_SETLINK, 0, linkHeader(index))
}

// SetUp brings the link up. core.ErrNotFound if it is gone.
func (c *Conn) SetUp(index int) error {
	return wrapLink("set up", index, c.setFlags(index, unix.IFF_UP).exec())
}

// SetDown takes the link down. core.ErrNotFound if it is gone.
func (c *Conn) SetDown(index int) error {
	return wrapLink("set down", index, c.setFlags(index, 0).exec())
}

// setFlags changes IFF_UP only.
func (c *Conn) setFlags(index int, flags uint32) message {
	h := linkHeader(index)
	h.Flags, h.Change = flags, unix.IFF_UP
	return c.message(unix.RTM_SETLINK, 0, h)
}

// SetMTU sets the MTU in bytes.
func (c *Conn) SetMTU(index, mtu int) error {
	return wrapLink("set mtu", index, c.setLink(index).u32(unix.IFLA_MTU, uint32(mtu)).exec())
}

// SetMAC sets the hardware address.
func (c *Conn) SetMAC(index int, mac core.MAC) error {
	return wrapLink("set mac", index, c.setLink(index).attr(unix.IFLA_ADDRESS, mac).exec())
}

// SetName renames the link; core.ErrExists if the name is taken. Before Linux
// 6.2 a link that is up cannot be renamed.
func (c *Conn) SetName(index int, name string) error {
	return wrapLink("set name", index, c.setLink(index).name(name).exec())
}

// Change is several settings of one link; what is zero stays as it is.
type Change struct {
	To    *netns.Handle // moves it, and takes it down; ErrExists: perhaps it has moved, and not got its name
	Name  string
	Alias string // at most 255 bytes
	Group uint32
	Up    bool
	Down  bool
	// NoLinkLocal: the kernel gives the link no IPv6 link-local address when it
	// comes up, as befits a port of a switch.
	NoLinkLocal bool
}

// Apply makes all of a Change in one request, so that whoever watches links
// (ovs-vswitchd looks at all its ports each time) is woken once. Before Linux
// 6.2 a link that is up cannot be renamed: where that is refused the link is
// taken down first, if the Change says Down. core.ErrNotFound if it is gone.
func (c *Conn) Apply(index int, ch Change) error {
	err := c.change(index, ch).exec()
	if errors.Is(err, unix.EAFNOSUPPORT) { // no IPv6, so no such address either
		ch.NoLinkLocal = false
		err = c.change(index, ch).exec()
	}
	if errors.Is(err, unix.EBUSY) && ch.Down && ch.Name != "" {
		if err = c.SetDown(index); err == nil {
			err = c.change(index, ch).exec()
		}
	}
	return wrapLink("change", index, err)
}

func (c *Conn) change(index int, ch Change) message {
	h := linkHeader(index)
	switch {
	case ch.Up:
		h.Flags, h.Change = unix.IFF_UP, unix.IFF_UP
	case ch.Down:
		h.Change = unix.IFF_UP
	}
	m := c.message(unix.RTM_SETLINK, 0, h)
	if ch.To != nil {
		m.u32(unix.IFLA_NET_NS_FD, uint32(ch.To.Fd())) //nolint:gosec // a descriptor
	}
	if ch.Name != "" {
		m.name(ch.Name)
	}
	if ch.Alias != "" {
		m.attr(unix.IFLA_IFALIAS, []byte(ch.Alias))
	}
	if ch.Group != 0 {
		m.u32(unix.IFLA_GROUP, ch.Group)
	}
	if ch.NoLinkLocal {
		spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
		inet6 := spec.AddRtAttr(unix.AF_INET6, nil)
		inet6.AddRtAttr(ifla6AddrGenMode, []byte{addrGenNone})
		m.AddData(spec)
	}
	return m
}

// IFLA_INET6_ADDR_GEN_MODE and its value "none" (linux/if_link.h).
const (
	ifla6AddrGenMode = 8
	addrGenNone      = 1
)

// SetGroup puts the link into a group (`ip link set group`).
func (c *Conn) SetGroup(index int, group uint32) error {
	return wrapLink("set group", index, c.setLink(index).u32(unix.IFLA_GROUP, group).exec())
}

// SetAlias gives the link an alias of at most 255 bytes, "" for none.
func (c *Conn) SetAlias(index int, alias string) error {
	return wrapLink("set alias", index, c.setLink(index).attr(unix.IFLA_IFALIAS, []byte(alias)).exec())
}

// DelLink deletes the link, both ends of a veth. It returns after an RCU grace
// period (10-20 ms). A link that is gone is success.
func (c *Conn) DelLink(index int) error {
	return gone(wrapLink("delete", index, c.message(unix.RTM_DELLINK, 0, linkHeader(index)).exec()))
}

// DelGroup deletes every link of a group other than 0, in one request that
// waits for one grace period however many there are. An empty group is success.
func (c *Conn) DelGroup(group uint32) error {
	err := c.message(unix.RTM_DELLINK, 0, linkHeader(0)).u32(unix.IFLA_GROUP, group).exec()
	if gone(err) != nil {
		return fmt.Errorf("delete link group %#x: %w", group, err)
	}
	return nil
}

// wrapLink adds verb and key to an error, if there is one.
func wrapLink(verb string, index int, err error) error {
	if err != nil {
		return fmt.Errorf("%s link %d: %w", verb, index, err)
	}
	return nil
}
