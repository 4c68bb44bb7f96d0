package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// Neighbour is what a link knows of an address behind it.
type Neighbour struct {
	Addr  netip.Addr
	Index int      // link
	MAC   core.MAC // nil while it is not known
	State int      // NUD_*
	Flags int      // NTF_*; NTF_PROXY: the link answers for the address
}

// ndmsg is struct ndmsg.
type ndmsg struct {
	family, flags uint8
	index         int
	state         int
}

// sizeofNdmsg is that of struct ndmsg.
const sizeofNdmsg = 12

// Len implements nl.NetlinkRequestData.
func (h ndmsg) Len() int { return sizeofNdmsg }

// Serialize implements nl.NetlinkRequestData.
func (h ndmsg) Serialize() []byte {
	b := []byte{h.family, 0, 0, 0}
	b = binary.NativeEndian.AppendUint32(b, uint32(h.index))
	b = binary.NativeEndian.AppendUint16(b, uint16(h.state))
	return append(b, h.flags, 0)
}

// Neighbours gives those of a link, both families, and the addresses that it answers for.
func (c *Conn) Neighbours(index int) (list []Neighbour, err error) {
	for _, flags := range []uint8{0, unix.NTF_PROXY} {
		m := c.message(unix.RTM_GETNEIGH, 0, ndmsg{flags: flags}).u32(unix.NDA_IFINDEX, uint32(index))
		found, err := dumped(m, unix.RTM_NEWNEIGH, parseNeighbour)
		if err != nil {
			return nil, fmt.Errorf("list neighbours of link %d: %w", index, err)
		}
		for _, n := range found {
			if n.Index == index && n.Addr.IsValid() && n.State&unix.NUD_NOARP == 0 {
				list = append(list, n)
			}
		}
	}
	return list, nil
}

// parseNeighbour reads an RTM_NEWNEIGH. One of a bridge's ports has no address.
func parseNeighbour(b []byte) (Neighbour, error) {
	if len(b) < sizeofNdmsg {
		return Neighbour{}, errors.New("short neighbour message")
	}
	n := Neighbour{Index: int(u32(b[4:])), State: int(binary.NativeEndian.Uint16(b[8:])), Flags: int(b[10])}
	err := nlsock.Attrs(b[sizeofNdmsg:], func(kind uint16, v []byte) {
		switch kind {
		case unix.NDA_DST:
			n.Addr, _ = netip.AddrFromSlice(v)
		case unix.NDA_LLADDR:
			n.MAC = core.MAC(v)
		}
	})
	return n, err
}

// PutNeighbour makes a link know an address as n says it, whatever it knew.
func (c *Conn) PutNeighbour(n Neighbour) error {
	m := c.neighbourMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, n)
	if len(n.MAC) > 0 {
		m.attr(unix.NDA_LLADDR, n.MAC)
	}
	if err := m.exec(); err != nil {
		return fmt.Errorf("put neighbour %s of link %d: %w", n.Addr, n.Index, err)
	}
	return nil
}

// DelNeighbour has a link forget an address. One that is gone is success.
func (c *Conn) DelNeighbour(n Neighbour) error {
	err := c.neighbourMessage(unix.RTM_DELNEIGH, 0, n).exec()
	if err != nil && !errors.Is(err, unix.ENOENT) && gone(err) != nil {
		return fmt.Errorf("delete neighbour %s of link %d: %w", n.Addr, n.Index, err)
	}
	return nil
}

// Solicit has the link ask who has an address, at once, by ARP or neighbour discovery. What
// it knew it goes on using until then. Neighbours tells the outcome.
func (c *Conn) Solicit(index int, addr netip.Addr) error {
	list, err := c.Neighbours(index)
	if err != nil {
		return err
	}
	n := Neighbour{Addr: addr, Index: index, Flags: unix.NTF_USE}
	for _, have := range list {
		if have.Addr == addr && len(have.MAC) > 0 && have.State&(unix.NUD_PERMANENT|unix.NUD_FAILED|unix.NUD_INCOMPLETE) == 0 {
			n.MAC, n.State, n.Flags = have.MAC, unix.NUD_PROBE, have.Flags
		}
	}
	return c.PutNeighbour(n)
}

// Answers tells that a link has heard from an address that Solicit asked for.
func (c *Conn) Answers(index int, addr netip.Addr) (bool, error) {
	list, err := c.Neighbours(index)
	for _, n := range list {
		if n.Addr == addr && n.State&(unix.NUD_REACHABLE|unix.NUD_PERMANENT) != 0 {
			return true, nil
		}
	}
	return false, err
}

func (c *Conn) neighbourMessage(kind, flags int, n Neighbour) message {
	h := ndmsg{family: uint8(family(n.Addr)), index: n.Index, state: n.State, flags: uint8(n.Flags)}
	return c.message(kind, flags, h).addr(unix.NDA_DST, n.Addr)
}
