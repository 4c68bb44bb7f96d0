package hostport

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/internal/core"
)

// TableName is the nft table, family inet, that holds the agent's host ports. There is
// none while no pod has any.
const TableName = "fairlead-hostports"

// half is the part of the table for one address family.
type half struct {
	suffix string // of sets, and how nft calls the protocol
	kind   string // nft's type of address
}

var halves = []half{{"ip", "ipv4_addr"}, {"ip6", "ipv6_addr"}}

func halfOf(a netip.Addr) half {
	if a.Is4() {
		return halves[0]
	}
	return halves[1]
}

// Names of maps and sets, of one family each. A port on all of the node's
// addresses stands in the one map, a port on one address in the other. To find
// out, behind the translation, which connections it was that we translated, the
// pods' ports stand in a set of their own; and the networks of the pods in
// another, where a pod's neighbour would get the answer past the node and so
// from an address that it never asked.
func (h half) anywhere() string { return "any-" + h.suffix }
func (h half) bound() string    { return "bound-" + h.suffix }
func (h half) targets() string  { return "target-" + h.suffix }
func (h half) networks() string { return "network-" + h.suffix }

// element is one element of a map or, without a value, of a set; key and value
// are as nft writes them.
type element struct {
	set, key, value string
}

func (e element) String() string {
	if e.value == "" {
		return fmt.Sprintf("%s in %s", e.key, e.set)
	}
	return fmt.Sprintf("%s to %s in %s", e.key, e.value, e.set)
}

// elements are what a pod's ports are in the table.
func elements(ports []core.PortMapping, addrs []netip.Prefix) []element {
	var out []element
	for _, p := range ports {
		for _, a := range addrs {
			if !serves(p, a.Addr()) {
				continue
			}
			h, pod := halfOf(a.Addr()), a.Addr().String()
			e := element{set: h.anywhere(), key: fmt.Sprintf("%s . %d", p.Protocol, p.HostPort)}
			if isBound(p) {
				e = element{set: h.bound(), key: fmt.Sprintf("%s . %s . %d", p.Protocol, p.HostIP, p.HostPort)}
			}
			e.value = fmt.Sprintf("%s . %d", pod, p.ContainerPort)
			network := text(a.Masked())
			out = append(out, e,
				element{set: h.targets(), key: fmt.Sprintf("%s . %s . %d", p.Protocol, pod, p.ContainerPort)},
				element{set: h.networks(), key: network + " . " + network})
		}
	}
	return out
}

// text is a prefix as nft shows it.
func text(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// isBound tells a port on one address of the node from one on all.
func isBound(p core.PortMapping) bool { return p.HostIP.IsValid() && !p.HostIP.IsUnspecified() }

// serves tells whether a port leads to the pod's address a: "0.0.0.0" and "::"
// mean all addresses of their family.
func serves(p core.PortMapping, a netip.Addr) bool {
	return !p.HostIP.IsValid() || p.HostIP.Is4() == a.Is4()
}
