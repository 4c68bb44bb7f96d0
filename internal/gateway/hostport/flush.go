package hostport

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/conntrack"
)

var numbers = map[string]uint8{"tcp": conntrack.TCP, "udp": conntrack.UDP, "sctp": conntrack.SCTP}

// Forget has the kernel forget every connection of some addresses: the next pod
// that gets one must not be sent the answers to the last one's questions. It
// reads the kernel's table once for each family.
func (t *Table) Forget(addrs []netip.Addr) error {
	var errs []error
	for _, v4 := range []bool{true, false} {
		of := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return a.Is4() != v4 })
		if len(of) == 0 {
			continue
		}
		among := make(map[netip.Addr]bool, len(of))
		for _, a := range of {
			among[a] = true
		}
		_, err := t.tracked.Flush(v4, func(f conntrack.Flow) bool {
			return among[f.Src] || among[f.Dst] || among[f.ReplySrc] || among[f.ReplyDst]
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// flushStale forgets the connections that ports of s do not serve though they
// should.
func (t *Table) flushStale(s core.Spec) error {
	var errs []error
	for _, v4 := range []bool{true, false} {
		if !slices.ContainsFunc(s.Addrs, func(a netip.Prefix) bool { return a.Addr().Is4() == v4 }) {
			continue
		}
		own, err := t.ownAddresses(v4)
		if err == nil {
			_, err = t.tracked.Flush(v4, func(f conntrack.Flow) bool { return stale(f, s, own) })
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ownAddresses are the node's.
func (t *Table) ownAddresses(v4 bool) (own map[netip.Addr]bool, err error) {
	family := unix.AF_INET6
	if v4 {
		family = unix.AF_INET
	}
	own = map[netip.Addr]bool{}
	err = t.inHost(func() error {
		list, err := netlink.AddrList(nil, family)
		for _, a := range list {
			ip, _ := netip.AddrFromSlice(a.IP)
			own[ip.Unmap()] = true
		}
		return err
	})
	return own, err
}

// stale tells a connection to a port of s on the node that goes elsewhere: to an
// earlier pod, or to the node itself, where nobody listened. TCP to the node
// itself is left alone: such a connection is somebody's, and a new one begins
// with a handshake, which is translated.
func stale(f conntrack.Flow, s core.Spec, own map[netip.Addr]bool) bool {
	if slices.ContainsFunc(s.Addrs, func(a netip.Prefix) bool { return a.Addr() == f.ReplySrc }) {
		return false
	}
	if f.Protocol == conntrack.TCP && !f.Translated() {
		return false
	}
	return slices.ContainsFunc(s.Ports, func(p core.PortMapping) bool {
		here := own[f.Dst] || f.Dst.IsLoopback()
		if isBound(p) {
			here = f.Dst == p.HostIP
		}
		return here && numbers[p.Protocol] == f.Protocol && p.HostPort == f.DstPort
	})
}
