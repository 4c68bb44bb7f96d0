package chassis

import (
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

// NIC is an interface that tunnels leave by.
type NIC struct {
	Name  string
	Index int        // 0: the machine has no way out, and Ethernet is assumed
	MTU   int        // bytes
	Addr  netip.Addr // its first one that serves, of IPv4 if it has one; the zero value for none
}

// ethernet is the MTU that is assumed of a machine without a way out.
const ethernet = 1500

// Choice says by which interface the node's tunnels leave, and what for is from the node
// itself.
type Choice struct {
	// Iface chooses it (Find); Tunnel does so on the Node (annotation AnnTunnel), and comes
	// first unless it gives "".
	Iface  string
	Tunnel func() string
	// Instead is the bridge that has the addresses of an interface, "" for none.
	Instead func(name string) string
}

// asked is what chooses, and who says it.
func (c Choice) asked() (choice, by string) {
	if on := c.Tunnel(); on != "" {
		return on, "annotation " + AnnTunnel
	}
	return c.Iface, "--iface"
}

// Find is the interface that is chosen now: of one that was given away, the bridge that
// has its addresses. An error says who chose it, and is core.ErrNotFound for none.
func (c Choice) Find(conn *rtnl.Conn) (NIC, error) {
	choice, by := c.asked()
	nic, err := Find(conn, choice)
	if bridge := c.Instead(nic.Name); err == nil && !nic.Addr.IsValid() && bridge != "" {
		nic, err = Find(conn, bridge)
	}
	if err != nil {
		return NIC{}, fmt.Errorf("%s: %w", by, err)
	}
	return nic, nil
}

// Find is the interface of which choice speaks: its name, an address of it, or a
// regular expression that its name matches; of several with commas between, the
// first that there is. "" is the interface of the default route. core.ErrNotFound:
// there is none.
func Find(c *rtnl.Conn, choice string) (NIC, error) {
	if choice == "" {
		return outward(c)
	}
	links, err := c.Links()
	if err != nil {
		return NIC{}, err
	}
	for _, one := range strings.Split(choice, ",") {
		nic, err := pick(c, links, strings.TrimSpace(one))
		if !errors.Is(err, core.ErrNotFound) {
			return nic, err
		}
	}
	return NIC{}, fmt.Errorf("no interface of this node has the name or the address %q, or matches it: %w", choice, core.ErrNotFound)
}

// outward is the interface of the default route.
func outward(c *rtnl.Conn) (NIC, error) {
	routes, err := c.Routes(0)
	if err != nil {
		return NIC{}, fmt.Errorf("underlay interface: %w", err)
	}
	for _, r := range routes {
		if r.Dst.Bits() > 0 || r.Index == 0 {
			continue
		}
		if l, err := c.LinkByIndex(r.Index); err == nil {
			return addressed(c, l)
		}
	}
	return NIC{MTU: ethernet}, nil
}

// pick is the first of the links that fits one choice: the name first, so that a
// name with a dot in it is no expression.
func pick(c *rtnl.Conn, links []rtnl.Link, choice string) (NIC, error) {
	if i := slices.IndexFunc(links, func(l rtnl.Link) bool { return l.Name == choice }); i >= 0 {
		return addressed(c, links[i])
	}
	if addr, err := netip.ParseAddr(choice); err == nil {
		return holder(c, links, addr)
	}
	like, err := regexp.Compile(choice)
	if err != nil {
		return NIC{}, fmt.Errorf("%q is no regular expression: %w", choice, err)
	}
	for _, l := range links {
		if !like.MatchString(l.Name) {
			continue
		}
		// Ports of the switch match easily; what tunnels leave by has an address.
		nic, err := addressed(c, l)
		if err != nil || nic.Addr.IsValid() {
			return nic, err
		}
	}
	return NIC{}, core.ErrNotFound
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
