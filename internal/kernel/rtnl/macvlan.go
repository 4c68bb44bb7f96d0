package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// The kinds of links that share the device below them.
const (
	KindMacvlan = "macvlan"
	KindIpvlan  = "ipvlan"
)

// Modes of a macvlan and of an ipvlan (linux/if_link.h).
const (
	MacvlanPrivate  uint32 = 1
	MacvlanVEPA     uint32 = 2
	MacvlanBridge   uint32 = 4
	MacvlanPassthru uint32 = 8

	IpvlanL2  uint32 = 0
	IpvlanL3  uint32 = 1
	IpvlanL3S uint32 = 2
)

// Upper is a macvlan, ipvlan or VLAN link to be made.
type Upper struct {
	Kind       string
	Name       string
	Lower      int // index of the device below, in the Conn's namespace
	Mode       uint32
	MTU        int      // bytes, 0 = that of the device below
	MAC        core.MAC // nil = the kernel's choice; an ipvlan has that of the device below
	VLAN       int      // of a VLAN link: the id, 0 to 4094
	BCQueueLen uint32   // macvlan: broadcasts waiting to be copied, 0 = the kernel's default
	Netns      *netns.Handle
}

// NewUpper makes the link where it belongs, in u.Netns: it is never moved nor,
// as a rule, renamed. core.ErrExists if the name is taken there.
//
// Before Linux 6.15 the kernel looks for the name in the namespace of the
// request (rtnl_newlink). Where that has such a link the new one is called
// Draft first.
func (c *Conn) NewUpper(u Upper) error {
	err := c.create(u)
	if errors.Is(err, core.ErrExists) {
		if _, here := c.LinkByName(u.Name); here == nil {
			err = c.newUpperByDraft(u)
		}
	}
	if err != nil {
		return fmt.Errorf("create %s %s: %w", u.Kind, u.Name, err)
	}
	return nil
}

func (c *Conn) create(u Upper) error {
	return u.message(c).u32(unix.IFLA_NET_NS_FD, uint32(u.Netns.Fd())).exec()
}

// Drafts is what the names of links begin with that have not got their own yet.
const Drafts = "fldraft"

// Draft is the name of a link that is to be called name in a moment: always the
// same, so that what a crash left is found.
func Draft(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return fmt.Sprintf(Drafts+"%08x", h.Sum32())
}

// delLeft deletes the link of that name, if there is one.
func (c *Conn) delLeft(name string) error {
	l, err := c.LinkByName(name)
	if err == nil {
		err = c.DelLink(l.Index)
	}
	return gone(err)
}

// newUpperByDraft makes the link under another name and renames it.
func (c *Conn) newUpperByDraft(u Upper) error {
	pod, err := Open(u.Netns)
	if err != nil {
		return err
	}
	defer func() { _ = pod.Close() }()
	if _, err := pod.LinkByName(u.Name); err == nil {
		return core.ErrExists
	}
	draft := u
	draft.Name = Draft(u.Name)
	if err := pod.delLeft(draft.Name); err != nil {
		return err
	}
	if err := c.create(draft); err != nil {
		return err
	}
	l, err := pod.LinkByName(draft.Name)
	if err != nil {
		return err
	}
	if err := pod.SetName(l.Index, u.Name); err != nil {
		return errors.Join(err, pod.DelLink(l.Index))
	}
	return nil
}

// message is the request without the namespace.
func (u Upper) message(c *Conn) message {
	m := c.message(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, linkHeader(0)).
		name(u.Name).
		u32(unix.IFLA_LINK, uint32(u.Lower))
	end{mtu: u.MTU, mac: u.MAC}.put(func(kind int, b []byte) { m.attr(kind, b) })
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(unix.IFLA_INFO_KIND, nl.NonZeroTerminated(u.Kind))
	data := info.AddRtAttr(unix.IFLA_INFO_DATA, nil)
	switch u.Kind {
	case KindVLAN:
		data.AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(uint16(u.VLAN))) //nolint:gosec // 12 bits
	case KindIpvlan:
		data.AddRtAttr(nl.IFLA_IPVLAN_MODE, nl.Uint16Attr(uint16(u.Mode)))
		data.AddRtAttr(nl.IFLA_IPVLAN_FLAG, nl.Uint16Attr(0)) // bridge: packets between them are let through
	default:
		data.AddRtAttr(nl.IFLA_MACVLAN_MODE, nl.Uint32Attr(u.Mode))
		if u.BCQueueLen != 0 {
			data.AddRtAttr(nl.IFLA_MACVLAN_BC_QUEUE_LEN, nl.Uint32Attr(u.BCQueueLen))
		}
	}
	m.AddData(info)
	return m
}

// UpperByName gives the link called name and, of a macvlan or ipvlan, its mode;
// core.ErrNotFound if there is none.
func (c *Conn) UpperByName(name string) (l Link, mode uint32, err error) {
	b, err := c.message(unix.RTM_GETLINK, 0, nl.NewIfInfomsg(unix.AF_UNSPEC)).
		name(name).u32(unix.IFLA_EXT_MASK, skipStats).one(unix.RTM_NEWLINK)
	if err == nil {
		l, err = parseLink(b)
	}
	if err == nil {
		err = nlsock.Attrs(b[unix.SizeofIfInfomsg:], func(kind uint16, v []byte) {
			if kind == unix.IFLA_LINKINFO {
				mode = upperMode(l.Kind, v)
			}
		})
	}
	if err != nil {
		return Link{}, 0, fmt.Errorf("get link %s: %w", name, err)
	}
	return l, mode, nil
}

// upperMode finds the mode inside IFLA_LINKINFO. The attribute has the same
// number for both kinds, and another size.
func upperMode(kind string, info []byte) (mode uint32) {
	_ = nlsock.Attrs(info, func(k uint16, data []byte) {
		if k != unix.IFLA_INFO_DATA {
			return
		}
		_ = nlsock.Attrs(data, func(k uint16, v []byte) {
			switch {
			case kind == KindMacvlan && k == nl.IFLA_MACVLAN_MODE:
				mode = u32(v)
			case kind == KindIpvlan && k == nl.IFLA_IPVLAN_MODE && len(v) >= 2:
				mode = uint32(binary.NativeEndian.Uint16(v))
			}
		})
	})
	return mode
}
