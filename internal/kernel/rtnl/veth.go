package rtnl

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// netnsaFD is NETNSA_FD of linux/net_namespace.h; NETNSA_NSID is 1.
const (
	netnsaNSID = 1
	netnsaFD   = 3
)

// Veth describes a pair: the near end in the Conn's namespace, the far end
// ("peer") in another.
type Veth struct {
	Name     string
	MTU      int // bytes, 0 = the kernel's default
	TxQLen   int // packets, 0 = the kernel's default
	Group    uint32
	Master   int  // index of the bridge that gets the near end as a port, 0 = none
	Up       bool // the near end
	NoARP    bool // the kernel answers no ARP request on the near end
	Promisc  bool // the near end takes all frames
	NoQueue  bool // the near end has a queue of 0 packets, whatever TxQLen says
	Peer     *netns.Handle
	PeerName string
	PeerMAC  core.MAC // nil = the kernel's choice, as for the near end
	PeerMTU  int      // bytes, 0 = MTU
}

// EnsureVeth makes the pair and returns its near end. One RTM_NEWLINK makes
// both ends where they belong and with all they need: a device is never moved,
// which would cost a grace period of 17 ms, and never renamed. A pair that is
// there already is completed (MTU, far MAC) if it carries v.Group and its far
// end is v.PeerName in v.Peer; anything else in the way is core.ErrExists.
func (c *Conn) EnsureVeth(v Veth) (Link, error) {
	l, err := c.NewVeth(v)
	if !errors.Is(err, core.ErrExists) {
		return l, err
	}
	l, err = c.adopt(v)
	if err != nil {
		return Link{}, fmt.Errorf("create veth %s: %w", v.Name, err)
	}
	return l, nil
}

// NewVeth is EnsureVeth for a pair that must not be there yet: core.ErrExists
// if either name is taken, by whomever.
func (c *Conn) NewVeth(v Veth) (Link, error) {
	b, err := c.newVeth(v).echo(unix.RTM_NEWLINK)
	if err != nil {
		return Link{}, fmt.Errorf("create veth %s: %w", v.Name, err)
	}
	if b == nil { // before Linux 6.2
		return c.LinkByName(v.Name)
	}
	return parseLink(b)
}

// newVeth is the one request. The peer's part is a link message of its own,
// nested: names and MTU of both ends and the far MAC are right before anybody can see
// them.
func (c *Conn) newVeth(v Veth) message {
	h := linkHeader(0)
	if v.Up {
		h.Flags |= unix.IFF_UP
	}
	if v.NoARP {
		h.Flags |= unix.IFF_NOARP
	}
	if v.Promisc {
		h.Flags |= unix.IFF_PROMISC
	}
	h.Change = h.Flags
	m := c.message(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, h).
		name(v.Name).
		u32(unix.IFLA_GROUP, v.Group)
	if v.Master != 0 {
		m.u32(unix.IFLA_MASTER, uint32(v.Master))
	}
	near := end{mtu: v.MTU, txq: v.TxQLen}
	if v.NoQueue {
		near.txq = 0
		m.u32(unix.IFLA_TXQLEN, 0)
	}
	near.put(func(kind int, b []byte) { m.attr(kind, b) })

	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated("veth"))
	peer := info.AddRtAttr(unix.IFLA_INFO_DATA, nil).AddRtAttr(nl.VETH_INFO_PEER, nil)
	nl.NewIfInfomsgChild(peer, unix.AF_UNSPEC)
	peer.AddRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(v.PeerName))
	peer.AddRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(v.Peer.Fd())))
	far := end{mtu: v.peerMTU(), txq: v.TxQLen, mac: v.PeerMAC}
	far.put(func(kind int, b []byte) { peer.AddRtAttr(kind, b) })
	m.AddData(info)
	return m
}

// peerMTU makes both ends agree unless told otherwise: a frame that is longer
// than the far end's MTU is dropped without a word.
func (v Veth) peerMTU() int {
	if v.PeerMTU != 0 {
		return v.PeerMTU
	}
	return v.MTU
}

// end is what can be asked of an end of a pair; zero values are left to the
// kernel.
type end struct {
	mtu, txq int
	mac      core.MAC
}

// put writes what is given.
func (e end) put(attr func(kind int, b []byte)) {
	if e.mtu != 0 {
		attr(unix.IFLA_MTU, nl.Uint32Attr(uint32(e.mtu)))
	}
	if e.txq != 0 {
		attr(unix.IFLA_TXQLEN, nl.Uint32Attr(uint32(e.txq)))
	}
	if len(e.mac) != 0 {
		attr(unix.IFLA_ADDRESS, e.mac)
	}
}

// complete makes an end that exists equal to e.
func (e end) complete(c *Conn, l Link) error {
	if e.mtu != 0 && e.mtu != l.MTU {
		if err := c.SetMTU(l.Index, e.mtu); err != nil {
			return err
		}
	}
	if len(e.mac) != 0 && e.mac.String() != l.MAC.String() {
		return c.SetMAC(l.Index, e.mac)
	}
	return nil
}

// adopt takes over the pair that stands where v should be, if it is v.
func (c *Conn) adopt(v Veth) (Link, error) {
	near, err := c.LinkByName(v.Name)
	if errors.Is(err, core.ErrNotFound) {
		return Link{}, fmt.Errorf("%q in the peer's namespace: %w", v.PeerName, core.ErrExists)
	}
	if err != nil {
		return Link{}, err
	}
	if near.Kind != "veth" || near.Group != v.Group {
		return Link{}, fmt.Errorf("link of kind %q, group %#x: %w", near.Kind, near.Group, core.ErrExists)
	}
	if err := c.completeFar(v, near); err != nil {
		return Link{}, err
	}
	if err := (end{mtu: v.MTU}).complete(c, near); err != nil {
		return Link{}, err
	}
	return c.LinkByIndex(near.Index)
}

// completeFar proves that near's partner is the one v asks for, and completes
// it.
func (c *Conn) completeFar(v Veth, near Link) error {
	id, err := c.netnsID(v.Peer)
	if err != nil {
		return err
	}
	pod, err := Open(v.Peer)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	far, err := pod.LinkByIndex(near.PeerIndex)
	if gone(err) != nil {
		return err
	}
	// The index alone proves nothing: every namespace counts from 1. Together
	// with the namespace's number it names one device.
	if err != nil || id != near.PeerNetnsID || far.Name != v.PeerName {
		return fmt.Errorf("its far end is not %q in namespace %s: %w", v.PeerName, v.Peer, core.ErrExists)
	}
	return end{mtu: v.peerMTU(), mac: v.PeerMAC}.complete(pod, far)
}

const (
	here    = -1 // as in Link.PeerNetnsID
	unknown = -2
)

// netnsID is the Conn's namespace's number for ns.
func (c *Conn) netnsID(ns *netns.Handle) (int, error) {
	b, err := c.message(unix.RTM_GETNSID, 0, rtgenmsg(unix.AF_UNSPEC)).
		u32(netnsaFD, uint32(ns.Fd())).one(unix.RTM_NEWNSID)
	if err != nil {
		return 0, fmt.Errorf("number of netns %s: %w", ns, err)
	}
	id := unknown
	if len(b) < sizeofRtgenmsg {
		return 0, errors.New("short namespace message")
	}
	err = nlsock.Attrs(b[sizeofRtgenmsg:], func(kind uint16, v []byte) {
		if kind == netnsaNSID {
			id = int(int32(u32(v)))
		}
	})
	if err != nil || id >= 0 {
		return id, err
	}
	// Negative is the kernel's answer for a stranger and for itself alike.
	own := c.ns
	if own == nil {
		if own, err = netns.Current(); err != nil {
			return 0, err
		}
		defer func() { _ = own.Close() }()
	}
	if own.Same(ns) {
		return here, nil
	}
	return unknown, nil
}

// sizeofRtgenmsg includes the padding that attributes need.
const sizeofRtgenmsg = 4

// rtgenmsg is struct rtgenmsg of linux/rtnetlink.h, which names a family;
// struct netconfmsg has the same form.
type rtgenmsg uint8

// Len is the message's length in bytes.
func (rtgenmsg) Len() int { return sizeofRtgenmsg }

// Serialize gives the family and the padding.
func (r rtgenmsg) Serialize() []byte { return []byte{byte(r), 0, 0, 0} }
