package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/nlsock"
)

// Route is a route of one routing table. Zero values mean: Table main,
// Protocol boot (as of a command line), Type unicast, and for an IPv4 route
// without gateway the scope "link".
type Route struct {
	Dst       netip.Prefix // 0.0.0.0/0 and ::/0 are the default routes
	GW        netip.Addr   // invalid = on-link; may be IPv6 for an IPv4 Dst (RFC 5549)
	Src       netip.Addr   // preferred source address
	Index     int          // link
	Protocol  int          // RTPROT_*
	Scope     int          // RT_SCOPE_*, IPv4 only
	Table     int          // RT_TABLE_*
	Priority  int          // metric; 0 becomes 1024 for IPv6
	Type      int          // RTN_*
	OnLink    bool         // the gateway is reachable though no address covers it
	TOS       int          // IPv4: packets of that type of service only
	Metrics   []byte       // RTA_METRICS as the kernel has them: MTU, window and the like
	Pref      int          // IPv6: RFC 4191's preference, as the kernel's two bits
	Expires   int          // IPv6: seconds until it ends, 0 for never
	Multipath []Hop
	// Lacks are the kinds of attributes (RTA_*) of a route that was read which Route has
	// no place for: one with any cannot be written again as it was.
	Lacks []int
}

// Leads tells that the route, or one of its hops, goes through gw (invalid =
// on-link) on the link of that index.
func (r Route) Leads(index int, gw netip.Addr) bool {
	return r.Index == index && r.GW == gw ||
		slices.ContainsFunc(r.Multipath, func(h Hop) bool { return h.Index == index && h.GW == gw })
}

// Hop is one of several next hops.
type Hop struct {
	GW     netip.Addr
	Index  int
	Weight int // 1..256
	OnLink bool
}

// Routes gives the routes of table main, both families: those of one link, or
// with index 0 all. core.ErrNotFound if the link is gone.
func (c *Conn) Routes(index int) ([]Route, error) { return c.routes(index, unix.RT_TABLE_MAIN) }

// Routers are the next hops of the default routes of table main, each once.
func (c *Conn) Routers() (out []netip.Addr, err error) {
	all, err := c.Routes(0)
	for _, r := range all {
		if r.Dst.Bits() > 0 {
			continue
		}
		for _, h := range append(r.Multipath, Hop{GW: r.GW}) {
			if h.GW.IsValid() && !slices.Contains(out, h.GW) {
				out = append(out, h.GW)
			}
		}
	}
	return out, err
}

// TableRoutes gives the routes of one table, of all links.
func (c *Conn) TableRoutes(table int) ([]Route, error) { return c.routes(0, uint32(table)) } //nolint:gosec // a table's number is unsigned

// AllRoutes is Routes for all tables, those of table local among them.
func (c *Conn) AllRoutes(index int) ([]Route, error) { return c.routes(index, unix.RT_TABLE_UNSPEC) }

// PolicyRoutes is Routes for all tables that rules may lead to: main and those
// of source-based routing, without the kernel's own table local.
func (c *Conn) PolicyRoutes(index int) ([]Route, error) {
	list, err := c.routes(index, unix.RT_TABLE_UNSPEC)
	return slices.DeleteFunc(list, func(r Route) bool { return r.Table == unix.RT_TABLE_LOCAL }), err
}

// routes dumps one table, or with RT_TABLE_UNSPEC all.
func (c *Conn) routes(index int, table uint32) ([]Route, error) {
	var list []Route
	for _, fam := range []int{unix.AF_INET, unix.AF_INET6} {
		// In a strict dump every field of the header is a filter.
		m := c.message(unix.RTM_GETROUTE, 0, &nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(fam)}})
		if table != unix.RT_TABLE_UNSPEC {
			m.u32(unix.RTA_TABLE, table)
		}
		if index != 0 {
			m.u32(unix.RTA_OIF, uint32(index))
		}
		found, err := dumped(m, unix.RTM_NEWROUTE, parseRoute)
		// ENOENT is not sentinel's: for other requests it means other things.
		if errors.Is(err, unix.ENOENT) { // the table was never used
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list routes of link %d: %w", index, err)
		}
		list = append(list, found...)
	}
	return list, nil
}

// parseRoute reads an RTM_NEWROUTE. A default route has no RTA_DST: the family
// and a length of 0 say it.
func parseRoute(b []byte) (Route, error) {
	if len(b) < unix.SizeofRtMsg {
		return Route{}, errors.New("short route message")
	}
	h := nl.DeserializeRtMsg(b)
	r := Route{
		Protocol: int(h.Protocol), Scope: int(h.Scope), Table: int(h.Table), Type: int(h.Type), TOS: int(h.Tos),
		OnLink: h.Flags&unix.RTNH_F_ONLINK != 0,
	}
	dst := netip.IPv4Unspecified()
	if h.Family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	err := nlsock.Attrs(b[unix.SizeofRtMsg:], func(kind uint16, v []byte) {
		if kind == unix.RTA_DST {
			dst, _ = netip.AddrFromSlice(v)
			return
		}
		if !r.lead(kind, v) && !r.set(kind, v) {
			r.Lacks = append(r.Lacks, int(kind))
		}
	})
	r.Dst = netip.PrefixFrom(dst, int(h.Dst_len))
	return r, err
}

// lead takes over an attribute that says where the route leads; false for another.
func (r *Route) lead(kind uint16, v []byte) bool {
	switch kind {
	case unix.RTA_GATEWAY, unix.RTA_VIA:
		r.GW = gateway(kind, v)
	case unix.RTA_OIF:
		r.Index = int(u32(v))
	case unix.RTA_MULTIPATH:
		r.Multipath = parseHops(v)
	default:
		return false
	}
	return true
}

// set takes over one of the other attributes; false for one that Route has no place for.
func (r *Route) set(kind uint16, v []byte) bool {
	switch kind {
	case unix.RTA_PREFSRC:
		r.Src, _ = netip.AddrFromSlice(v)
	case unix.RTA_PRIORITY:
		r.Priority = int(u32(v))
	case unix.RTA_TABLE: // all 32 bits; the header has room for 8
		r.Table = int(u32(v))
	case unix.RTA_METRICS:
		r.Metrics = bytes.Clone(v)
	case unix.RTA_PREF:
		if len(v) > 0 {
			r.Pref = int(v[0])
		}
	case unix.RTA_CACHEINFO: // how long it was not used, and when it ends
		if len(v) >= 12 && u32(v[8:]) != 0 {
			r.Expires = max((int(int32(u32(v[8:])))+clock-1)/clock, 1) //nolint:gosec // rta_expires is signed
		}
	default:
		return false
	}
	return true
}

// clock is the kernel's USER_HZ: in such parts of a second it tells times.
const clock = 100

// gateway reads RTA_GATEWAY, an address, or RTA_VIA, a family and an address.
func gateway(kind uint16, v []byte) netip.Addr {
	if kind == unix.RTA_VIA && len(v) > 2 {
		v = v[2:]
	}
	a, _ := netip.AddrFromSlice(v)
	return a
}

// parseHops reads a row of struct rtnexthop, each followed by attributes.
func parseHops(b []byte) (hops []Hop) {
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			return hops
		}
		hop := Hop{Weight: int(b[3]) + 1, Index: int(u32(b[4:])), OnLink: b[2]&unix.RTNH_F_ONLINK != 0}
		_ = nlsock.Attrs(b[unix.SizeofRtNexthop:size], func(kind uint16, v []byte) {
			if kind == unix.RTA_GATEWAY || kind == unix.RTA_VIA {
				hop.GW = gateway(kind, v)
			}
		})
		hops = append(hops, hop)
		b = b[min((size+3)&^3, len(b)):]
	}
	return hops
}

// ReplaceRoute makes the route, in place of one with the same destination and
// metric.
func (c *Conn) ReplaceRoute(r Route) error { return c.putRoute("replace", unix.NLM_F_REPLACE, r) }

// NewRoute makes the route where none has its destination and metric: core.ErrExists.
func (c *Conn) NewRoute(r Route) error { return c.putRoute("make", unix.NLM_F_EXCL, r) }

func (c *Conn) putRoute(verb string, flag int, r Route) error {
	if r.Scope == 0 && r.Dst.Addr().Is4() && !r.GW.IsValid() {
		r.Scope = unix.RT_SCOPE_LINK
	}
	r.Protocol = orDefault(r.Protocol, unix.RTPROT_BOOT)
	r.Type = orDefault(r.Type, unix.RTN_UNICAST)
	if err := c.routeMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|flag, r).exec(); err != nil {
		return fmt.Errorf("%s route %s: %w", verb, r.Dst, err)
	}
	return nil
}

// AddRoute makes the route as r says it, its scope too, beside others with the
// same destination and metric: IPv6 joins them to one with several hops, IPv4
// puts the new one before them. The very same route is core.ErrExists; a
// destination with bits behind its length is refused.
func (c *Conn) AddRoute(r Route) error {
	r.Protocol = orDefault(r.Protocol, unix.RTPROT_BOOT)
	r.Type = orDefault(r.Type, unix.RTN_UNICAST)
	if r.Dst != r.Dst.Masked() {
		return fmt.Errorf("add route %s: bits are set behind the prefix: %w", r.Dst, unix.EINVAL)
	}
	if err := c.routeMessage(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, r).exec(); err != nil {
		return fmt.Errorf("add route %s: %w", r.Dst, err)
	}
	return nil
}

// DelRoute takes a route away, as Routes gave it. One that is gone is success.
func (c *Conn) DelRoute(r Route) error {
	r.Metrics = nil // of those that are alike in all else the kernel takes one anyway
	err := c.routeMessage(unix.RTM_DELROUTE, 0, r).exec()
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete route %s: %w", r.Dst, err)
	}
	return nil
}

// routeMessage writes what r gives and leaves out what it does not.
func (c *Conn) routeMessage(kind, flags int, r Route) message {
	dst := r.Dst.Masked()
	h := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(family(dst.Addr())), Dst_len: uint8(dst.Bits()),
		Protocol: uint8(r.Protocol), Scope: uint8(r.Scope), Type: uint8(r.Type), Tos: uint8(r.TOS),
	}}
	if r.OnLink {
		h.Flags |= unix.RTNH_F_ONLINK
	}
	m := c.message(kind, flags, h).
		u32(unix.RTA_TABLE, uint32(orDefault(r.Table, unix.RT_TABLE_MAIN))).
		addr(unix.RTA_DST, dst.Addr())
	if r.Index != 0 {
		m.u32(unix.RTA_OIF, uint32(r.Index))
	}
	if r.GW.IsValid() {
		putGateway(m, dst.Addr(), r.GW)
	}
	if r.Src.IsValid() {
		m.addr(unix.RTA_PREFSRC, r.Src)
	}
	if r.Priority != 0 {
		m.u32(unix.RTA_PRIORITY, uint32(r.Priority))
	}
	if len(r.Metrics) > 0 {
		m.attr(unix.RTA_METRICS, r.Metrics)
	}
	if r.Pref != 0 {
		m.attr(unix.RTA_PREF, []byte{uint8(r.Pref)})
	}
	if r.Expires > 0 && kind == unix.RTM_NEWROUTE {
		m.u32(unix.RTA_EXPIRES, uint32(r.Expires))
	}
	if len(r.Multipath) > 0 {
		m.attr(unix.RTA_MULTIPATH, hops(dst.Addr(), r.Multipath))
	}
	return m
}

// hops is a row of struct rtnexthop, each with its gateway.
func hops(dst netip.Addr, list []Hop) (out []byte) {
	for _, h := range list {
		var gw []byte
		if h.GW.IsValid() {
			kind, data := gatewayAttr(dst, h.GW)
			gw = nl.NewRtAttr(kind, data).Serialize()
		}
		flags := byte(0)
		if h.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		out = binary.NativeEndian.AppendUint16(out, uint16(unix.SizeofRtNexthop+len(gw))) //nolint:gosec // at most 28
		out = append(out, flags, byte(max(h.Weight, 1)-1))
		out = binary.NativeEndian.AppendUint32(out, uint32(h.Index))
		out = append(out, gw...)
	}
	return out
}

// putGateway writes a gateway of the route's own family as RTA_GATEWAY, any
// other as RTA_VIA: struct rtvia, a family and an address.
func putGateway(m message, dst, gw netip.Addr) { m.attr(gatewayAttr(dst, gw)) }

func gatewayAttr(dst, gw netip.Addr) (kind int, data []byte) {
	if dst.Is4() == gw.Is4() {
		return unix.RTA_GATEWAY, gw.AsSlice()
	}
	via := binary.NativeEndian.AppendUint16(nil, uint16(family(gw)))
	return unix.RTA_VIA, append(via, gw.AsSlice()...)
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}
