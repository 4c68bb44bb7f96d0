package uplink

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/gateway/manager"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Inventory is all that a link has of what a transfer moves.
type Inventory struct {
	Self       int // the link's index, by which its routes name it
	Name       string
	Addrs      []rtnl.Addr      `json:",omitempty"`
	Routes     []rtnl.Route     `json:",omitempty"`
	Rules      []rtnl.Rule      `json:",omitempty"`
	Neighbours []rtnl.Neighbour `json:",omitempty"`
	// Kept is what systemd-networkd has to do with the NIC.
	Kept manager.Kept `json:",omitzero"`
	// Filter is the rp_filter of the bridge's device before a move that is under way; "" where
	// that leaves it.
	Filter string `json:",omitempty"`
}

// take reads a link's.
func take(c *rtnl.Conn, l rtnl.Link) (Inventory, error) {
	inv := Inventory{Self: l.Index, Name: l.Name}
	var errs [4]error
	inv.Addrs, errs[0] = c.Addrs(l.Index)
	inv.Routes, errs[1] = c.AllRoutes(l.Index)
	inv.Neighbours, errs[2] = c.Neighbours(l.Index)
	inv.Rules, errs[3] = rulesOf(c, l.Name)
	inv.Routes = slices.DeleteFunc(inv.Routes, inv.derived)
	return inv, errors.Join(errs[:]...)
}

// rulesOf are the policy rules that name a link, whether or not there is one.
func rulesOf(c *rtnl.Conn, link string) (out []rtnl.Rule, err error) {
	rules, err := c.Rules()
	for _, r := range rules {
		if r.IIF == link || r.OIF == link {
			out = append(out, r)
		}
	}
	return out, err
}

// derived tells a route that the kernel makes of the link's addresses by itself, on
// whichever link they are.
func (inv Inventory) derived(r rtnl.Route) bool {
	if r.Protocol != unix.RTPROT_KERNEL {
		return false
	}
	if r.Table == unix.RT_TABLE_LOCAL || r.Type == unix.RTN_MULTICAST || r.Dst.Addr().IsMulticast() {
		return true
	}
	return slices.ContainsFunc(inv.Addrs, func(a rtnl.Addr) bool {
		on := a.Prefix
		if a.Peer.IsValid() {
			on = netip.PrefixFrom(a.Peer, a.Prefix.Bits())
		}
		return on.Masked() == r.Dst && a.Flags&unix.IFA_F_NOPREFIXROUTE == 0
	})
}

// global tells that there is an address by which others reach the node.
func (inv Inventory) global() bool {
	return slices.ContainsFunc(inv.Addrs, func(a rtnl.Addr) bool { return !a.Prefix.Addr().IsLinkLocalUnicast() })
}

// gateways are the addresses that the node's ways lead through: those of default routes,
// without one those of any route.
func (inv Inventory) gateways() (out []netip.Addr) {
	add := func(wanted func(rtnl.Route) bool) {
		for _, r := range inv.Routes {
			if !wanted(r) {
				continue
			}
			for _, gw := range inv.hops(r) {
				if gw.IsValid() && !slices.Contains(out, gw) {
					out = append(out, gw)
				}
			}
		}
	}
	add(func(r rtnl.Route) bool { return r.Dst.Bits() == 0 })
	if len(out) == 0 {
		add(func(rtnl.Route) bool { return true })
	}
	return out
}

// hops are the gateways of a route's hops on the link.
func (inv Inventory) hops(r rtnl.Route) []netip.Addr {
	if len(r.Multipath) == 0 {
		return []netip.Addr{r.GW}
	}
	var out []netip.Addr
	for _, h := range r.Multipath {
		if h.Index == inv.Self {
			out = append(out, h.GW)
		}
	}
	return out
}

// Refuse is why a NIC cannot be given away with nothing lost, nil when it can.
func (inv Inventory) Refuse() error {
	for _, a := range inv.Addrs {
		if !a.Permanent() && !a.Prefix.Addr().IsLinkLocalUnicast() && !inv.renewed(a) {
			return fmt.Errorf("address %s of %s ends unless it is renewed, by DHCP or router advertisements: systemd-networkd does not, and nobody else would on the bridge", a.Prefix, inv.Name)
		}
	}
	for _, r := range inv.Routes {
		switch {
		case (r.Protocol == unix.RTPROT_RA || r.Expires > 0) && !inv.advertised():
			return fmt.Errorf("route %s of %s is of a router advertisement, or ends: systemd-networkd does not renew it, and nobody else would on the bridge", r.Dst, inv.Name)
		case len(r.Lacks) > 0:
			return fmt.Errorf("route %s of %s cannot be written again as it is: it has %s", r.Dst, inv.Name, attributes(r.Lacks))
		}
	}
	return nil
}

// renewed tells an address that systemd-networkd renews, or that the kernel makes of one
// from time to time (RFC 8981).
func (inv Inventory) renewed(a rtnl.Addr) bool {
	return slices.Contains(inv.Kept.Addrs, a.Prefix.Addr()) || a.Prefix.Addr().Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0 && inv.advertised()
}

// advertised tells that systemd-networkd listens to the routers of the NIC's network.
func (inv Inventory) advertised() bool { return slices.ContainsFunc(inv.Kept.Addrs, netip.Addr.Is6) }

// lasting is the inventory without what ends by itself, or is renewed by whoever gave it.
func (inv Inventory) lasting() Inventory {
	inv.Neighbours = slices.DeleteFunc(slices.Clone(inv.Neighbours), func(n rtnl.Neighbour) bool {
		return n.State&unix.NUD_PERMANENT == 0 && n.Flags&unix.NTF_PROXY == 0
	})
	inv.Addrs = slices.DeleteFunc(slices.Clone(inv.Addrs), func(a rtnl.Addr) bool {
		return !a.Permanent() || slices.Contains(inv.Kept.Addrs, a.Prefix.Addr())
	})
	inv.Routes = slices.DeleteFunc(slices.Clone(inv.Routes), func(r rtnl.Route) bool {
		return r.Expires > 0 || len(inv.Kept.Addrs) > 0 && (r.Protocol == unix.RTPROT_DHCP || r.Protocol == unix.RTPROT_RA)
	})
	return inv
}

// rtaNexthop is RTA_NH_ID of linux/rtnetlink.h.
const rtaNexthop = 30

// attributes names what a Route has no place for.
func attributes(kinds []int) string {
	names := map[int]string{
		rtaNexthop: "a nexthop object", unix.RTA_ENCAP: "an encapsulation",
		unix.RTA_FLOW: "a realm", unix.RTA_IIF: "a link that packets come by", unix.RTA_SRC: "a source",
	}
	var out []string
	for _, k := range kinds {
		out = append(out, cmp.Or(names[k], fmt.Sprintf("attribute %d", k)))
	}
	return strings.Join(out, ", ")
}

// Step is one change of the kernel; the zero value is none.
type Step struct {
	Verb string // put or drop
	Addr *rtnl.Addr
	Rule *rtnl.Rule
	// Route is of one destination; Neighbour of one address.
	Route     *rtnl.Route
	Neighbour *rtnl.Neighbour
}

// String is the step as iproute2 would be told.
func (s Step) String() string {
	switch {
	case s.Addr != nil:
		return fmt.Sprintf("%s address %s link %d", s.Verb, s.Addr.Prefix, s.Addr.Index)
	case s.Rule != nil:
		return fmt.Sprintf("%s rule %d iif %q oif %q table %d", s.Verb, s.Rule.Priority, s.Rule.IIF, s.Rule.OIF, s.Rule.Table)
	case s.Route != nil:
		via := ""
		if s.Route.GW.IsValid() {
			via = " via " + s.Route.GW.String()
		}
		for _, h := range s.Route.Multipath {
			via += fmt.Sprintf(" via %s link %d", h.GW, h.Index)
		}
		return fmt.Sprintf("%s route %s%s link %d table %d metric %d", s.Verb, s.Route.Dst, via, s.Route.Index, s.Route.Table, s.Route.Priority)
	case s.Neighbour != nil:
		return fmt.Sprintf("%s neighbour %s link %d", s.Verb, s.Neighbour.Addr, s.Neighbour.Index)
	}
	return "nothing"
}

// Plan is a transfer as two lists: what the link To gets first, and what From loses when
// it has all of that.
type Plan struct{ Addrs, Ways, Drop []Step }

// plan makes the link to have what want says, beside what it has, and takes from the link
// from all that it has. want may be From's, or what was recorded of a link that is gone.
func plan(want, from, to Inventory) Plan {
	var p Plan
	for _, a := range ordered(want.Addrs) {
		a.Index, a.Label = to.Self, relabel(a.Label, want.Name, to.Name)
		if !hasAddr(to.Addrs, a) {
			p.Addrs = append(p.Addrs, Step{Verb: "put", Addr: &a})
		}
	}
	for _, n := range want.Neighbours {
		n.Index = to.Self
		if keep(&n) && !slices.ContainsFunc(to.Neighbours, func(h rtnl.Neighbour) bool { return h.Addr == n.Addr && h.Flags == n.Flags }) {
			p.Addrs = append(p.Addrs, Step{Verb: "put", Neighbour: &n})
		}
	}
	for _, r := range want.Rules {
		r.IIF, r.OIF = rename(r.IIF, want.Name, to.Name), rename(r.OIF, want.Name, to.Name)
		if !slices.ContainsFunc(to.Rules, func(h rtnl.Rule) bool { return sameRule(h, r) }) {
			p.Ways = append(p.Ways, Step{Verb: "put", Rule: &r})
		}
	}
	for _, r := range want.routesFor(to.Self) {
		if !slices.ContainsFunc(to.routesFor(to.Self), func(h rtnl.Route) bool { return sameRoute(h, r) }) {
			p.Ways = append(p.Ways, Step{Verb: "put", Route: &r})
		}
	}
	p.Drop = from.drop()
	return p
}

// drop takes all off the link, the routes that lean on others first.
func (inv Inventory) drop() (out []Step) {
	for _, r := range slices.Backward(inv.routesFor(inv.Self)) {
		out = append(out, Step{Verb: "drop", Route: &r})
	}
	for _, r := range inv.Rules {
		out = append(out, Step{Verb: "drop", Rule: &r})
	}
	// The first of a network last: with it the kernel drops the others of the network.
	for _, a := range slices.Backward(ordered(inv.Addrs)) {
		out = append(out, Step{Verb: "drop", Addr: &a})
	}
	for _, n := range inv.Neighbours {
		if n.State&unix.NUD_PERMANENT != 0 || n.Flags&unix.NTF_PROXY != 0 {
			out = append(out, Step{Verb: "drop", Neighbour: &n})
		}
	}
	return out
}

// routesFor are the routes for another link in place of the own one, in the order in
// which they can be made: what others lean on comes first. An IPv6 route of several hops
// is several, since the kernel joins them; of those only what is of the own link moves.
func (inv Inventory) routesFor(index int) (out []rtnl.Route) {
	for _, r := range inv.Routes {
		if r.Dst.Addr().Is6() && len(r.Multipath) > 0 {
			out = append(out, inv.split(r, index)...)
			continue
		}
		if r.Index == inv.Self {
			r.Index = index
		}
		r.Multipath = slices.Clone(r.Multipath)
		for i := range r.Multipath {
			if r.Multipath[i].Index == inv.Self {
				r.Multipath[i].Index = index
			}
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b rtnl.Route) int { return cmp.Compare(leans(a), leans(b)) })
	return out
}

func (inv Inventory) split(r rtnl.Route, index int) (out []rtnl.Route) {
	for _, h := range r.Multipath {
		if h.Index != inv.Self {
			continue
		}
		one := r
		one.Multipath, one.Index, one.GW, one.OnLink = nil, index, h.GW, h.OnLink
		out = append(out, one)
	}
	return out
}

// leans is 1 for a route to whose gateway another must lead.
func leans(r rtnl.Route) int {
	if r.GW.IsValid() || len(r.Multipath) > 0 {
		return 1
	}
	return 0
}

// ordered are addresses in the order of their making: the kernel lists those of IPv6 from
// the last.
func ordered(list []rtnl.Addr) (out []rtnl.Addr) {
	var six []rtnl.Addr
	for _, a := range list {
		if a.Prefix.Addr().Is4() {
			out = append(out, a)
		} else {
			six = append(six, a)
		}
	}
	slices.Reverse(six)
	// The first of an IPv4 network comes first: the others are its secondary ones.
	slices.SortStableFunc(out, func(a, b rtnl.Addr) int {
		return cmp.Compare(a.Flags&unix.IFA_F_SECONDARY, b.Flags&unix.IFA_F_SECONDARY)
	})
	return append(out, six...)
}

// keep tells that what is known of a neighbour is worth taking along, and makes of what
// the kernel found out what it has to prove again.
func keep(n *rtnl.Neighbour) bool {
	if n.Flags&unix.NTF_PROXY != 0 || n.State&unix.NUD_PERMANENT != 0 {
		return true
	}
	ok := len(n.MAC) > 0 && n.State&(unix.NUD_REACHABLE|unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE) != 0
	n.State, n.Flags = unix.NUD_STALE, n.Flags&unix.NTF_ROUTER
	return ok
}

// relabel is an IPv4 address's label on another link, "" for the link's name.
func relabel(label, from, to string) string {
	rest, ok := strings.CutPrefix(label, from)
	if !ok || rest == "" || len(to+rest) > unix.IFNAMSIZ-1 {
		return ""
	}
	return to + rest
}

func rename(name, from, to string) string {
	if name == from {
		return to
	}
	return name
}

func hasAddr(list []rtnl.Addr, a rtnl.Addr) bool {
	return slices.ContainsFunc(list, func(h rtnl.Addr) bool { return h.Prefix == a.Prefix && h.Peer == a.Peer })
}

func sameRule(a, b rtnl.Rule) bool {
	return a.Family == b.Family && a.Priority == b.Priority && a.IIF == b.IIF && a.OIF == b.OIF && a.Table == b.Table &&
		slices.EqualFunc(a.Rest, b.Rest, func(x, y rtnl.RuleAttr) bool { return x.Kind == y.Kind && slices.Equal(x.Data, y.Data) })
}

// sameRoute tells that a route leads where the other does, by the same hops.
func sameRoute(a, b rtnl.Route) bool {
	return a.Dst == b.Dst && a.GW == b.GW && a.Table == b.Table && a.Priority == b.Priority && a.TOS == b.TOS && a.Type == b.Type &&
		a.Index == b.Index && slices.Equal(a.Multipath, b.Multipath)
}

// do carries the step out; to repeat it is harmless.
func (s Step) do(c *rtnl.Conn) error {
	if s.Verb == "put" {
		return s.put(c)
	}
	switch {
	case s.Addr != nil:
		return c.TakeAddr(*s.Addr)
	case s.Rule != nil:
		return c.DelRule(*s.Rule)
	case s.Route != nil:
		return c.DelRoute(*s.Route)
	}
	return c.DelNeighbour(*s.Neighbour)
}

func (s Step) put(c *rtnl.Conn) error {
	switch {
	case s.Addr != nil:
		return putAddr(c, *s.Addr)
	case s.Rule != nil:
		return c.AddRule(*s.Rule)
	case s.Route != nil:
		if err := c.AddRoute(*s.Route); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return nil
	}
	return c.PutNeighbour(*s.Neighbour)
}

// putAddr has an IPv6 address serve at once: the node has proved it unique on the NIC.
// That it was spared the proof is not written into it.
func putAddr(c *rtnl.Conn, a rtnl.Addr) error {
	if a.Prefix.Addr().Is4() {
		return c.PutAddr(a)
	}
	spared := a
	spared.Flags |= unix.IFA_F_NODAD
	if err := c.PutAddr(spared); err != nil {
		return err
	}
	if err := heard(c, a); err != nil || spared.Flags == a.Flags {
		return err
	}
	return c.PutAddr(a)
}

// heard waits until the kernel takes what is sent to an IPv6 address on a link: unlike for
// IPv4 a worker of the kernel's makes the route for it, on a busy machine some time after the
// address is there. If the worker is late the address is there all the same.
func heard(c *rtnl.Conn, a rtnl.Addr) error {
	for end := time.Now().Add(settles); time.Now().Before(end); time.Sleep(look / 10) {
		routes, err := c.AllRoutes(a.Index)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(routes, func(r rtnl.Route) bool {
			return r.Table == unix.RT_TABLE_LOCAL && r.Dst == netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Addr().BitLen())
		}) {
			return nil
		}
	}
	return nil
}
