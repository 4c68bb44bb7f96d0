package nft

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// deafTable is the table, of family netdev, that keeps a link's frames from the IP stack.
func deafTable(link string) *nftables.Table {
	return &nftables.Table{Name: "fairlead-uplink-" + link, Family: nftables.TableFamilyNetdev}
}

// Tag is what a VLAN's frames have: an id, and the EtherType before it, 802.1Q's (0x8100) or
// 802.1ad's (0x88a8).
type Tag struct {
	Protocol uint16
	ID       int
}

// Deafen has the IP stack of ns (nil: the current namespace) hear nothing of what a link
// receives but frames with these tags. Packet sockets go on hearing it, which come before, and so does a switch in
// user space. It goes over netlink and starts no process. To repeat it is harmless; it
// leaves no moment without.
func Deafen(ns *netns.Handle, link string, but []Tag) error {
	err := once(ns, func(c *nftables.Conn) error {
		table, drop := deafTable(link), nftables.ChainPolicyDrop
		c.AddTable(table) // so that there is one to delete
		c.DelTable(table)
		c.AddTable(table)
		chain := c.AddChain(&nftables.Chain{
			Name: "deaf", Table: table, Type: nftables.ChainTypeFilter, Policy: &drop,
			Hooknum: nftables.ChainHookIngress, Priority: nftables.ChainPriorityFilter, Device: link,
		})
		for _, tag := range but {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: tag.accept()})
		}
		return c.Flush()
	})
	if err != nil {
		return fmt.Errorf("keep frames of %s from the IP stack: %w", link, err)
	}
	return nil
}

// accept is a rule for the frames of a VLAN: the EtherType is the tag's, and the id stands in
// the last 12 bits of what follows.
func (t Tag) accept() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 12, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(t.Protocol)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseLLHeader, Offset: 14, Len: 2},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0x0f, 0xff}, Xor: []byte{0, 0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(t.ID))}, //nolint:gosec // 12 bits
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// Hear undoes Deafen. A link that is not deaf is success.
func Hear(ns *netns.Handle, link string) error {
	err := once(ns, func(c *nftables.Conn) error {
		c.DelTable(deafTable(link))
		return c.Flush()
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("let frames of %s to the IP stack: %w", link, err)
	}
	return nil
}

// Deaf are the links that Deafen was called for.
func Deaf(ns *netns.Handle) (links []string, err error) {
	err = once(ns, func(c *nftables.Conn) error {
		tables, err := c.ListTablesOfFamily(nftables.TableFamilyNetdev)
		for _, t := range tables {
			if link, ours := strings.CutPrefix(t.Name, "fairlead-uplink-"); ours {
				links = append(links, link)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list links that are kept from the IP stack: %w", err)
	}
	return links, nil
}

// once runs fn with a socket of its own: links are given and taken rarely.
func once(ns *netns.Handle, fn func(*nftables.Conn) error) error {
	opts := []nftables.ConnOption{nftables.AsLasting()}
	if ns != nil {
		opts = append(opts, nftables.WithNetNSFd(ns.Fd()))
	}
	c, err := nftables.New(opts...)
	if err != nil {
		return fmt.Errorf("open nfnetlink: %w", err)
	}
	return errors.Join(fn(c), c.CloseLasting())
}
