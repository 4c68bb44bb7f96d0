package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
)

// Addr is an address of a link.
type Addr struct {
	Prefix netip.Prefix // the address itself, with its subnet's length
	Scope  int          // RT_SCOPE_*
	Flags  int          // IFA_F_*
}

// Addrs gives the addresses of a link, both families.
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
	a := Addr{Scope: int(h.Scope), Flags: int(h.Flags)}
	var local, peer netip.Addr
	err := attrs(b[unix.SizeofIfAddrmsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(v)
		case unix.IFA_ADDRESS: // the far side of a point-to-point address
			peer, _ = netip.AddrFromSlice(v)
		case unix.IFA_FLAGS: // all 32 bits; the header has room for 8
			a.Flags = int(u32(v))
		}
	})
	if !local.IsValid() {
		local = peer
	}
	a.Prefix = netip.PrefixFrom(local, int(h.Prefixlen))
	return a, err
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
