package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// Addr is an address of a link.
type Addr struct {
	Prefix    netip.Prefix // the address itself, with its subnet's length
	Index     int          // of its link
	Scope     int          // RT_SCOPE_*
	Flags     int          // IFA_F_*
	Peer      netip.Addr   // the far side of a point-to-point address, else invalid
	Broadcast netip.Addr   // IPv4; invalid for none
	Label     string       // IPv4: the link's name, or that with ":" and more
	Metric    int          // of the route that follows from it, 0 for the kernel's choice
	Proto     int          // IFAPROT_*, who made it (Linux >= 5.18)
	// Valid and Preferred are how long it goes on to be so, in seconds, from when it was
	// read. They count where Flags lack IFA_F_PERMANENT.
	Valid, Preferred uint32
}

// Numbers of linux/if_addr.h that package unix lacks.
const (
	ifaMetric = 9  // IFA_RT_PRIORITY
	ifaProto  = 11 // IFA_PROTO
	forever   = math.MaxUint32
)

// Addrs gives the addresses of a link, both families; with index 0 those of all links.
func (c *Conn) Addrs(index int) ([]Addr, error) {
	h := nl.NewIfAddrmsg(unix.AF_UNSPEC)
	h.Index = uint32(index)
	list, err := dumped(c.message(unix.RTM_GETADDR, 0, h), unix.RTM_NEWADDR, parseAddr)
	if err != nil {
		return nil, fmt.Errorf("list addresses of link %d: %w", index, err)
	}
	return list, nil
}

// parseAddr reads an RTM_NEWADDR. IPv4 and point-to-point addresses come in
// IFA_LOCAL with the far side in IFA_ADDRESS; plain IPv6 ones in IFA_ADDRESS.
func parseAddr(b []byte) (Addr, error) {
	if len(b) < unix.SizeofIfAddrmsg {
		return Addr{}, errors.New("short address message")
	}
	h := nl.DeserializeIfAddrmsg(b)
	a := Addr{Index: int(h.Index), Scope: int(h.Scope), Flags: int(h.Flags)}
	var local, peer netip.Addr
	err := nlsock.Attrs(b[unix.SizeofIfAddrmsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(v)
		case unix.IFA_ADDRESS: // the far side of a point-to-point address
			peer, _ = netip.AddrFromSlice(v)
		default:
			a.set(kind, v)
		}
	})
	switch {
	case !local.IsValid():
		local = peer
	case peer != local:
		a.Peer = peer
	}
	a.Prefix = netip.PrefixFrom(local, int(h.Prefixlen))
	return a, err
}

// set takes over one attribute that is no address of the pair.
func (a *Addr) set(kind uint16, v []byte) {
	switch kind {
	case unix.IFA_FLAGS: // all 32 bits; the header has room for 8
		a.Flags = int(u32(v))
	case unix.IFA_BROADCAST:
		a.Broadcast, _ = netip.AddrFromSlice(v)
	case unix.IFA_LABEL:
		a.Label = unix.ByteSliceToString(v)
	case ifaMetric:
		a.Metric = int(u32(v))
	case ifaProto:
		if len(v) > 0 {
			a.Proto = int(v[0])
		}
	case unix.IFA_CACHEINFO: // struct ifa_cacheinfo: preferred, valid, two times
		if len(v) >= 8 {
			a.Preferred, a.Valid = u32(v), u32(v[4:])
		}
	}
}

// HasAddr tells that p is among a link's addresses, with its length.
func HasAddr(list []Addr, p netip.Prefix) bool {
	return slices.ContainsFunc(list, func(a Addr) bool { return a.Prefix == p })
}

// AddAddr puts p on the link. With nodad an IPv6 address is usable at once,
// without duplicate address detection (RFC 4862, 5.4): for addresses whose
// uniqueness is known otherwise. The same address there already is success;
// the same address with another length is core.ErrExists.
func (c *Conn) AddAddr(index int, p netip.Prefix, nodad bool) error {
	m := c.addrMessage(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, p)
	if nodad && p.Addr().Is6() {
		m.u32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
	}
	if b, ok := broadcast(p); ok {
		m.addr(unix.IFA_BROADCAST, b)
	}
	err := m.exec()
	if errors.Is(err, core.ErrExists) {
		has, lerr := c.Addrs(index)
		if HasAddr(has, p) {
			return nil
		}
		err = errors.Join(err, lerr)
	}
	if err != nil {
		return fmt.Errorf("add %s to link %d: %w", p, index, err)
	}
	return nil
}

// DelAddr takes p off the link. An address or link that is gone is success.
func (c *Conn) DelAddr(index int, p netip.Prefix) error {
	if err := gone(c.addrMessage(unix.RTM_DELADDR, 0, index, p).exec()); err != nil {
		return fmt.Errorf("delete %s from link %d: %w", p, index, err)
	}
	return nil
}

// PutAddr puts an address on its link as a says it: with scope, flags, far side, label
// and lifetimes. One that is there is changed to that, its scope, label and far side
// excepted, which the kernel keeps.
func (c *Conn) PutAddr(a Addr) error {
	h := nl.NewIfAddrmsg(family(a.Prefix.Addr()))
	h.Index, h.Prefixlen, h.Scope = uint32(a.Index), uint8(a.Prefix.Bits()), uint8(a.Scope)
	m := c.pairMessage(c.message(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, h), a)
	m.u32(unix.IFA_FLAGS, uint32(a.Flags&settable))
	if a.Broadcast.IsValid() {
		m.addr(unix.IFA_BROADCAST, a.Broadcast)
	}
	if a.Label != "" {
		m.attr(unix.IFA_LABEL, nl.ZeroTerminated(a.Label))
	}
	if a.Metric != 0 {
		m.u32(ifaMetric, uint32(a.Metric))
	}
	if a.Proto != 0 {
		m.attr(ifaProto, []byte{uint8(a.Proto)})
	}
	m.attr(unix.IFA_CACHEINFO, a.lifetimes())
	if err := m.exec(); err != nil {
		return fmt.Errorf("put %s on link %d: %w", a.Prefix, a.Index, err)
	}
	return nil
}

// settable are the flags that are somebody's choice; the others are the kernel's findings.
const settable = unix.IFA_F_NODAD | unix.IFA_F_HOMEADDRESS | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_MCAUTOJOIN | unix.IFA_F_OPTIMISTIC

// Permanent tells that the address has no end.
func (a Addr) Permanent() bool { return a.Flags&unix.IFA_F_PERMANENT != 0 || a.Valid == forever }

func (a Addr) lifetimes() []byte {
	preferred, valid := a.Preferred, a.Valid
	if a.Permanent() {
		valid = forever
		if a.Flags&unix.IFA_F_DEPRECATED == 0 {
			preferred = forever
		}
	}
	b := binary.NativeEndian.AppendUint32(nil, preferred)
	b = binary.NativeEndian.AppendUint32(b, valid)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

// TakeAddr takes an address off its link, as Addrs gave it. One that is gone is success.
func (c *Conn) TakeAddr(a Addr) error {
	h := nl.NewIfAddrmsg(family(a.Prefix.Addr()))
	h.Index, h.Prefixlen = uint32(a.Index), uint8(a.Prefix.Bits())
	if err := gone(c.pairMessage(c.message(unix.RTM_DELADDR, 0, h), a).exec()); err != nil {
		return fmt.Errorf("delete %s from link %d: %w", a.Prefix, a.Index, err)
	}
	return nil
}

// pairMessage writes both sides of an address, which are one without a far side.
func (c *Conn) pairMessage(m message, a Addr) message {
	far := a.Peer
	if !far.IsValid() {
		far = a.Prefix.Addr()
	}
	return m.addr(unix.IFA_LOCAL, a.Prefix.Addr()).addr(unix.IFA_ADDRESS, far)
}

// addrMessage names one address of one link. Without IFA_ADDRESS the kernel
// would take an IPv4 address for one side of a point-to-point pair.
func (c *Conn) addrMessage(kind, flags, index int, p netip.Prefix) message {
	h := nl.NewIfAddrmsg(family(p.Addr()))
	h.Index = uint32(index)
	h.Prefixlen = uint8(p.Bits())
	return c.message(kind, flags, h).addr(unix.IFA_LOCAL, p.Addr()).addr(unix.IFA_ADDRESS, p.Addr())
}

// broadcast is the directed broadcast address of an IPv4 prefix; /31 and /32
// have none (RFC 3021).
func broadcast(p netip.Prefix) (netip.Addr, bool) {
	if !p.Addr().Is4() || p.Bits() > 30 {
		return netip.Addr{}, false
	}
	// All host bits set. iproute2 leaves it out unless told; CNI plugins write it.
	b := p.Addr().As4()
	v := binary.BigEndian.Uint32(b[:]) | ^uint32(0)>>p.Bits()
	binary.BigEndian.PutUint32(b[:], v)
	return netip.AddrFrom4(b), true
}
