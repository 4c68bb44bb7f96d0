package rtnl_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/kernel/netns"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// pair is a namespace with two links that are up, of which the second is to have what
// the first has.
func pair(t *testing.T) (ns *netns.Handle, c *rtnl.Conn, from, to rtnl.Link) {
	t.Helper()
	b := newBed(t)
	for _, name := range []string{"one", "two"} {
		ip(t, b.hostNS, "link", "add", name, "type", "veth", "peer", "name", name+"-far")
		ip(t, b.hostNS, "link", "set", name, "up")
		ip(t, b.hostNS, "link", "set", name+"-far", "up")
	}
	link := func(name string) rtnl.Link {
		l, err := b.host.LinkByName(name)
		require.NoError(t, err)
		return l
	}
	return b.hostNS, b.host, link("one"), link("two")
}

// TestAddrsAreWrittenAsTheyWereRead: lifetimes, scope, far side, flags, label, metric.
func TestAddrsAreWrittenAsTheyWereRead(t *testing.T) {
	ns, c, from, to := pair(t)
	for _, a := range []string{
		"192.0.2.1/24 brd 192.0.2.255 metric 77",
		"192.0.2.2/24",
		"198.51.100.1 peer 198.51.100.9/32",
		"203.0.113.1/24 noprefixroute scope link valid_lft 900 preferred_lft 600",
		"2001:db8::1/64 nodad valid_lft 900 preferred_lft 0",
		"2001:db8::2/64 nodad noprefixroute",
	} {
		ip(t, ns, append([]string{"addr", "add", "dev", "one"}, strings.Fields(a)...)...)
	}
	ip(t, ns, "addr", "add", "192.0.2.3/32", "dev", "one", "label", "one:x")
	have, err := c.Addrs(from.Index)
	require.NoError(t, err)
	have = slices.DeleteFunc(have, func(a rtnl.Addr) bool { return a.Prefix.Addr().IsLinkLocalUnicast() })
	require.Len(t, have, 7)
	moved := slices.Clone(have)
	for i := range moved {
		moved[i].Index = to.Index
		if moved[i].Label != "" {
			moved[i].Label = "two" + moved[i].Label[len("one"):]
		}
		require.NoError(t, c.PutAddr(moved[i]))
		require.NoError(t, c.PutAddr(moved[i]), "a second time")
	}
	got, err := c.Addrs(to.Index)
	require.NoError(t, err)
	got = slices.DeleteFunc(got, func(a rtnl.Addr) bool { return a.Prefix.Addr().IsLinkLocalUnicast() })
	require.ElementsMatch(t, timeless(moved), timeless(got))
	require.Contains(t, ip(t, ns, "addr", "show", "two"), "198.51.100.1 peer 198.51.100.9/32")

	for _, a := range got {
		require.NoError(t, c.TakeAddr(a))
		require.NoError(t, c.TakeAddr(a), "one that is gone")
	}
	require.NotContains(t, ip(t, ns, "addr", "show", "two"), "scope global")
	require.Contains(t, ip(t, ns, "addr", "show", "one"), "198.51.100.1 peer 198.51.100.9/32", "the other link's stay")
}

// timeless compares lifetimes by the minute, and not what the kernel finds out itself.
func timeless(list []rtnl.Addr) (out []rtnl.Addr) {
	for _, a := range list {
		a.Valid, a.Preferred = a.Valid/60, a.Preferred/60
		a.Flags &^= unix.IFA_F_TENTATIVE
		if !a.Permanent() {
			a.Valid++ // of 900 seconds 899 are left
			a.Valid, a.Preferred = (a.Valid+1)/5, (a.Preferred+1)/5
		}
		out = append(out, a)
	}
	return out
}

// TestRoutesAreWrittenAsTheyWereRead: of any table, by any protocol, with metric, metrics,
// type of service, hops and their weights; what cannot be written is said.
func TestRoutesAreWrittenAsTheyWereRead(t *testing.T) {
	ns, c, from, to := pair(t)
	for _, dev := range []string{"one", "two"} {
		ip(t, ns, "addr", "add", "192.0.2.1/24", "dev", dev)
		ip(t, ns, "addr", "add", "2001:db8::1/64", "dev", dev, "nodad")
	}
	for _, r := range []string{
		"10.0.0.0/8 via 192.0.2.9 dev one proto static metric 50 mtu 1400 src 192.0.2.1",
		"default via 192.0.2.9 dev one table 100 proto bird",
		"10.1.0.0/16 tos 0x10 dev one scope link",
		"10.2.0.0/16 nexthop via 192.0.2.9 dev one weight 3 nexthop via 203.0.113.9 dev one onlink weight 1",
		"2001:db8:1::/48 via 2001:db8::9 dev one proto static metric 50 pref high",
		"local 10.3.0.0/24 dev one",
		"2001:db8:2::/48 dev one expires 600",
	} {
		ip(t, ns, append([]string{"route", "add"}, strings.Fields(r)...)...)
	}
	lead := func(r rtnl.Route, index int) rtnl.Route {
		if r.Index != 0 {
			r.Index = index
		}
		r.Multipath = slices.Clone(r.Multipath)
		for i := range r.Multipath {
			r.Multipath[i].Index = index
		}
		return r
	}
	read := func(l rtnl.Link) (out []rtnl.Route) {
		all, err := c.AllRoutes(l.Index)
		require.NoError(t, err)
		for _, r := range all {
			if r.Protocol != unix.RTPROT_KERNEL {
				if r.Expires > 0 {
					require.InDelta(t, 600, r.Expires, 30)
					r.Expires = 600 // which passes
				}
				out = append(out, lead(r, 1))
			}
		}
		return out
	}
	want := read(from)
	require.Len(t, want, 7)
	for _, r := range want {
		require.Empty(t, r.Lacks)
		require.NoError(t, c.AddRoute(lead(r, to.Index)))
	}
	for _, r := range want { // of one destination and metric IPv6 has one route, which then has both hops
		require.NoError(t, c.DelRoute(lead(r, from.Index)))
	}
	require.Empty(t, read(from))
	require.ElementsMatch(t, want, read(to), "the other link's stay")

	ip(t, ns, "nexthop", "add", "id", "7", "via", "192.0.2.9", "dev", "one")
	ip(t, ns, "route", "add", "10.4.0.0/16", "nhid", "7")
	var lacks int
	for _, r := range read(from) {
		lacks += len(r.Lacks)
	}
	require.Equal(t, 1, lacks, "%+v", read(from))
}

// TestRules: those of a link go on for another one, with all that they ask.
func TestRules(t *testing.T) {
	ns, c, _, _ := pair(t)
	ip(t, ns, "rule", "add", "iif", "one", "from", "10.0.0.0/8", "fwmark", "0x10/0xf0", "ipproto", "tcp", "dport", "80", "lookup", "100", "priority", "77", "protocol", "static")
	ip(t, ns, "-6", "rule", "add", "oif", "one", "to", "2001:db8::/32", "lookup", "1000", "suppress_prefixlength", "0", "priority", "78")
	all, err := c.Rules()
	require.NoError(t, err)
	var ours []rtnl.Rule
	for _, r := range all {
		if r.IIF == "one" || r.OIF == "one" {
			ours = append(ours, r)
		}
	}
	require.Len(t, ours, 2)
	before := ip(t, ns, "rule") + ip(t, ns, "-6", "rule")
	for _, r := range ours {
		now := r
		if now.IIF != "" {
			now.IIF = "two"
		}
		if now.OIF != "" {
			now.OIF = "two"
		}
		require.NoError(t, c.AddRule(now))
		require.NoError(t, c.AddRule(now), "the very same")
		require.NoError(t, c.DelRule(r))
		require.NoError(t, c.DelRule(r), "one that is gone")
	}
	require.Equal(t, strings.ReplaceAll(before, " one ", " two "), ip(t, ns, "rule")+ip(t, ns, "-6", "rule"))
}

// TestNeighbours: a link's are read and written, proxies among them, and one that is asked
// for tells whether it is there.
func TestNeighbours(t *testing.T) {
	ns, c, from, to := pair(t)
	ip(t, ns, "neigh", "add", "192.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", "one", "nud", "permanent")
	ip(t, ns, "neigh", "add", "2001:db8::9", "lladdr", "02:00:00:00:00:09", "dev", "one", "nud", "stale")
	ip(t, ns, "neigh", "add", "proxy", "192.0.2.10", "dev", "one")
	list, err := c.Neighbours(from.Index)
	require.NoError(t, err)
	require.Len(t, list, 3)
	for _, n := range list {
		now := n
		now.Index = to.Index
		require.NoError(t, c.PutNeighbour(now))
		require.NoError(t, c.PutNeighbour(now))
		require.NoError(t, c.DelNeighbour(n))
		require.NoError(t, c.DelNeighbour(n), "one that is gone")
	}
	got, err := c.Neighbours(to.Index)
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Contains(t, ip(t, ns, "neigh", "show", "proxy"), "192.0.2.10 dev two")

	// The far end of the second link is a neighbour of another namespace.
	far := newBed(t)
	ip(t, far.hostNS, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", far.podNS.ProcPath())
	ip(t, far.hostNS, "addr", "add", "192.0.2.1/24", "dev", "near")
	ip(t, far.hostNS, "addr", "add", "2001:db8::1/64", "dev", "near", "nodad")
	ip(t, far.hostNS, "link", "set", "near", "up")
	ip(t, far.podNS, "addr", "add", "192.0.2.2/24", "dev", "far")
	ip(t, far.podNS, "addr", "add", "2001:db8::2/64", "dev", "far", "nodad")
	ip(t, far.podNS, "link", "set", "far", "up")
	near, err := far.host.LinkByName("near")
	require.NoError(t, err)
	for _, a := range []string{"192.0.2.2", "2001:db8::2"} {
		for range 2 { // unknown, then known
			require.NoError(t, far.host.Solicit(near.Index, netip.MustParseAddr(a)))
			require.Eventually(t, func() bool {
				ok, err := far.host.Answers(near.Index, netip.MustParseAddr(a))
				require.NoError(t, err)
				return ok
			}, 20*time.Second, 10*time.Millisecond)
		}
	}
	require.NoError(t, far.host.Solicit(near.Index, netip.MustParseAddr("192.0.2.3")))
	ok, err := far.host.Answers(near.Index, netip.MustParseAddr("192.0.2.3"))
	require.NoError(t, err)
	require.False(t, ok)
}

// TestLinksTellWhatLiesBelow: a VLAN link's device; a veth has none.
func TestLinksTellWhatLiesBelow(t *testing.T) {
	ns, c, from, _ := pair(t)
	ip(t, ns, "link", "add", "upper", "link", "one", "type", "macvlan")
	upper, err := c.LinkByName("upper")
	require.NoError(t, err)
	require.Equal(t, from.Index, upper.Lower)
	require.Zero(t, from.Lower)
	require.NotZero(t, from.PeerIndex)
}
