// Package encap finds the interface that a node's tunnels leave by, as flags and annotations
// name it, and says what they take of its MTU. It must not know who asks.
package encap

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
)

// Kinds of tunnels.
const (
	Geneve = "geneve"
	VXLAN  = "vxlan"
)

// NIC is an interface that tunnels leave by.
type NIC struct {
	Name  string
	Index int        // 0: the machine has no way out, and Ethernet is assumed
	MTU   int        // bytes
	Addr  netip.Addr // its first one that serves, of IPv4 if it has one; the zero value for none
}

// Ethernet is the MTU that is assumed of a machine without a way out.
const Ethernet = 1500

// Room is what tunnels of a kind take of each packet, in bytes; "" is geneve.
func (n NIC) Room(kind string) int {
	room := map[string]int{Geneve: 100, VXLAN: 50}[cmp.Or(kind, Geneve)]
	if n.Addr.Is6() {
		room += 20 // its header is that much longer
	}
	return room
}

// Given is a NIC that was given to a bridge, whose device has its addresses.
type Given struct {
	Names  []string // that the NIC had, and that its port is to have
	Now    string   // its name, whatever it was renamed to; "" while the node has no such NIC
	Bridge string
}

// Find is the interface of which choice speaks: its name, an address of it, or a
// regular expression that its name matches; of several with commas between, the
// first that there is. "" is the interface of the default route. Of a NIC that was
// given away it is the bridge. core.ErrNotFound: there is none.
func Find(c *rtnl.Conn, choice string, given ...Given) (NIC, error) {
	s := search{c, given}
	if choice == "" {
		return s.outward()
	}
	links, err := c.Links()
	if err != nil {
		return NIC{}, err
	}
	for _, one := range strings.Split(choice, ",") {
		nic, err := s.pick(links, strings.TrimSpace(one))
		if !errors.Is(err, core.ErrNotFound) {
			return nic, err
		}
	}
	return NIC{}, fmt.Errorf("no interface of this node has the name or the address %q, or matches it: %w", choice, core.ErrNotFound)
}

// search is where an interface is looked for.
type search struct {
	c     *rtnl.Conn
	given []Given
}

// outward is the interface of the default route.
func (s search) outward() (NIC, error) {
	routes, err := s.c.Routes(0)
	if err != nil {
		return NIC{}, fmt.Errorf("underlay interface: %w", err)
	}
	for _, r := range routes {
		if r.Dst.Bits() > 0 || r.Index == 0 {
			continue
		}
		if l, err := s.c.LinkByIndex(r.Index); err == nil {
			return s.at(l)
		}
	}
	return NIC{MTU: Ethernet}, nil
}

// pick is the first of the links that fits one choice: the name first, so that a
// name with a dot in it is no expression.
func (s search) pick(links []rtnl.Link, choice string) (NIC, error) {
	nic, err := s.named(links, choice)
	if !errors.Is(err, core.ErrNotFound) {
		return nic, err
	}
	if addr, err := netip.ParseAddr(choice); err == nil {
		return holder(s.c, links, addr)
	}
	like, err := regexp.Compile(choice)
	if err != nil {
		return NIC{}, fmt.Errorf("%q is no regular expression: %w", choice, err)
	}
	return s.like(links, like)
}

// named is the interface of a name, and the bridge of a NIC that had it.
func (s search) named(links []rtnl.Link, name string) (nic NIC, err error) {
	err = core.ErrNotFound
	if i := slices.IndexFunc(links, func(l rtnl.Link) bool { return l.Name == name }); i >= 0 {
		nic, err = s.at(links[i])
	}
	for _, g := range s.given {
		if nic.Addr.IsValid() || !slices.Contains(g.Names, name) {
			continue
		}
		if on, err := s.of(g); !errors.Is(err, core.ErrNotFound) {
			return on, err
		}
	}
	return nic, err
}

// like is the first interface with an address whose name matches, or did before it was
// given away. Of NICs that are gone their bridges come last: nothing gets out by them.
func (s search) like(links []rtnl.Link, like *regexp.Regexp) (NIC, error) {
	for _, l := range links {
		if !slices.ContainsFunc(s.names(l), like.MatchString) {
			continue
		}
		// Ports of the switch match easily; what tunnels leave by has an address.
		nic, err := s.at(l)
		if err != nil || nic.Addr.IsValid() {
			return nic, err
		}
	}
	for _, g := range s.given {
		if g.Now != "" || !slices.ContainsFunc(g.Names, like.MatchString) {
			continue
		}
		nic, err := s.of(g)
		if nic.Addr.IsValid() || err != nil && !errors.Is(err, core.ErrNotFound) {
			return nic, err
		}
	}
	return NIC{}, core.ErrNotFound
}

// names are a link's, with those that it had before it was given away.
func (s search) names(l rtnl.Link) []string {
	names := []string{l.Name}
	for _, g := range s.given {
		if g.Now == l.Name {
			names = append(names, g.Names...)
		}
	}
	return names
}

// at is a link with the address that tunnels have: of a NIC that was given away and has none
// any more, the bridge.
func (s search) at(l rtnl.Link) (NIC, error) {
	nic, err := addressed(s.c, l)
	if err != nil || nic.Addr.IsValid() {
		return nic, err
	}
	for _, g := range s.given {
		if g.Now == l.Name || g.Now == "" && slices.Contains(g.Names, l.Name) {
			return s.of(g)
		}
	}
	return nic, nil
}

// of is where a given NIC's addresses are: on the NIC until they are on the bridge, as after
// a boot.
func (s search) of(g Given) (nic NIC, err error) {
	err = core.ErrNotFound
	for _, name := range []string{g.Now, g.Bridge} {
		if nic.Addr.IsValid() || name == "" {
			continue
		}
		l, lerr := s.c.LinkByName(name)
		if errors.Is(lerr, core.ErrNotFound) {
			continue
		}
		if lerr != nil {
			return NIC{}, lerr
		}
		if nic, err = addressed(s.c, l); err != nil {
			return NIC{}, err
		}
	}
	return nic, err
}

// holder is the link that has an address.
func holder(c *rtnl.Conn, links []rtnl.Link, addr netip.Addr) (NIC, error) {
	for _, l := range links {
		has, err := c.Addrs(l.Index)
		if err != nil && !errors.Is(err, core.ErrNotFound) {
			return NIC{}, err
		}
		if slices.ContainsFunc(has, func(a rtnl.Addr) bool { return a.Prefix.Addr() == addr }) {
			return NIC{Name: l.Name, Index: l.Index, MTU: l.MTU, Addr: addr}, nil
		}
	}
	return NIC{}, core.ErrNotFound
}

// addressed is a link with the address that tunnels have.
func addressed(c *rtnl.Conn, l rtnl.Link) (NIC, error) {
	nic := NIC{Name: l.Name, Index: l.Index, MTU: l.MTU}
	has, err := c.Addrs(l.Index)
	if errors.Is(err, core.ErrNotFound) {
		return nic, nil
	}
	for _, a := range has {
		if addr := a.Prefix.Addr(); Serves(a) && (!nic.Addr.IsValid() || nic.Addr.Is6() && addr.Is4()) {
			nic.Addr = addr
		}
	}
	return nic, err
}

// Serves tells that other nodes may reach an address: not those of the link alone,
// nor what the kernel has not proved unique, or is about to drop.
func Serves(a rtnl.Addr) bool {
	const unsure = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED | unix.IFA_F_DEPRECATED
	return a.Scope == unix.RT_SCOPE_UNIVERSE && a.Flags&unsure == 0
}
