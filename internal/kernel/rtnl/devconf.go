package rtnl

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// The settings of an interface that /proc/sys has too. There the kernel looks
// through the names of every namespace of the node to find one: among the
// first things that become slow when a node has many pods.

// Numbers of linux/ip.h, linux/ipv6.h, linux/if_link.h and linux/netconf.h.
const (
	ipv4ARPNotify  = 22 // IPV4_DEVCONF_ARP_NOTIFY
	inetConf       = 1  // IFLA_INET_CONF
	inet6Conf      = 2  // IFLA_INET6_CONF
	ipv6AcceptRA   = 3  // DEVCONF_ACCEPT_RA
	netconfIfindex = 1
	netconfForward = 2
	netconfAll     = math.MaxUint32 // NETCONFA_IFINDEX_ALL, -1
)

// AnnounceIPv4 has the link announce its IPv4 addresses whenever it comes up
// (sysctl net.ipv4.conf.NAME.arp_notify = 1). core.ErrNotFound if it is gone.
func (c *Conn) AnnounceIPv4(index int) error {
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(inetConf, nil)
	conf.AddRtAttr(ipv4ARPNotify, nl.Uint32Attr(1))
	m := c.setLink(index)
	m.AddData(spec)
	return wrapLink("set arp_notify of", index, m.exec())
}

// Forwards tells whether the namespace forwards packets of a family, AF_INET or
// AF_INET6, for all of its links: sysctl net.ipv4.ip_forward or
// net.ipv6.conf.all.forwarding is 1.
func (c *Conn) Forwards(family int) (bool, error) {
	b, err := c.message(unix.RTM_GETNETCONF, 0, rtgenmsg(family)).
		u32(netconfIfindex, netconfAll).one(unix.RTM_NEWNETCONF)
	if err == nil && len(b) < sizeofRtgenmsg {
		err = errors.New("short netconf message")
	}
	on := false
	if err == nil {
		err = nlsock.Attrs(b[sizeofRtgenmsg:], func(kind uint16, v []byte) {
			if kind == netconfForward {
				on = u32(v) == 1 // the kernel takes any number
			}
		})
	}
	if err != nil {
		return false, fmt.Errorf("get forwarding of family %d: %w", family, err)
	}
	return on, nil
}

// noRA tells that accept_ra is 0, inside IFLA_AF_SPEC; a link without IPv6 has
// no such setting.
func noRA(spec []byte) (none bool) {
	// What cannot be parsed has none; the caller checks the outer message.
	_ = nlsock.Attrs(spec, func(family uint16, v []byte) {
		if family != unix.AF_INET6 {
			return
		}
		_ = nlsock.Attrs(v, func(kind uint16, v []byte) {
			if at := 4 * ipv6AcceptRA; kind == inet6Conf && len(v) >= at+4 {
				none = u32(v[at:]) == 0
			}
		})
	})
	return none
}
