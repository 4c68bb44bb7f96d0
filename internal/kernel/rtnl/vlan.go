package rtnl

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Kinds of a VLAN link (802.1Q) and of a bond, and the bond's mode balance-alb.
const (
	KindVLAN = "vlan"
	KindBond = "bond"
	BondALB  = 6
)

// VLAN is a VLAN link to be made.
type VLAN struct {
	Name  string
	Lower int // index of the device below
	ID    int // 1 to 4094
	Alias string
}

// NewVLAN makes the link, down, without an IPv6 link-local address when it comes up. It has
// its name only together with its alias: until then it is called Draft, and one that a
// crash left so is removed first. core.ErrExists if the name is taken, or the id on that
// device.
func (c *Conn) NewVLAN(v VLAN) (Link, error) {
	l, err := c.newVLAN(v)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fmt.Errorf("the kernel needs module 8021q: %w", err)
	}
	if err != nil {
		return Link{}, fmt.Errorf("create VLAN link %s: %w", v.Name, err)
	}
	return l, nil
}

func (c *Conn) newVLAN(v VLAN) (Link, error) {
	draft := Draft(v.Name)
	if err := c.delLeft(draft); err != nil {
		return Link{}, err
	}
	if err := (Upper{Kind: KindVLAN, Name: draft, Lower: v.Lower, VLAN: v.ID}).message(c).exec(); err != nil {
		return Link{}, err
	}
	l, err := c.LinkByName(draft)
	if err == nil {
		err = c.Apply(l.Index, Change{Name: v.Name, Alias: v.Alias, NoLinkLocal: true})
	}
	if err != nil {
		return Link{}, errors.Join(err, c.DelLink(l.Index))
	}
	return c.LinkByName(v.Name)
}
