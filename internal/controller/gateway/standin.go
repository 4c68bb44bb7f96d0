package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// subnetOf is the Subnet of a row, by its key, "" for none.
func subnetOf(key string) string {
	if part := strings.SplitN(key, "/", 4); len(part) == 4 && part[0] == "subnet" {
		return part[1]
	}
	return ""
}

// via are the nodes to which a route leads, sorted.
func via(r ovn.Policy) (nodes []string) {
	for node, ip := range r.ExternalIDs {
		if _, err := netip.ParseAddr(ip); err == nil && slices.Contains(r.Nexthops, ip) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// active are, by Subnet, the gateways by which pods leave, where it is one.
func (s Seen) active() map[string]string {
	out := map[string]string{}
	if s.Routes == nil {
		return out
	}
	routes, _ := s.Routes(Owner) // while the database is away nothing is written either
	for key, r := range routes {
		for _, node := range via(r) {
			if was, other := out[subnetOf(key)]; other && was != node {
				node = ""
			}
			out[subnetOf(key)] = node
		}
	}
	return out
}

// Used are the nodes to which routes lead, sorted.
func Used(routes map[string]ovn.Policy) []string {
	out := map[string]bool{}
	for _, r := range routes {
		for _, n := range via(r) {
			out[n] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// Reroute gives those routes, by their keys and as they should be, that lead to dead nodes
// and need not: of several gateways the others stay, and for the only one there comes the
// one that a leader would take. at gives what a port has, and silent tells of a node that
// it answers no more. It makes no route and takes none away, and leaves those for which
// there is nobody who answers.
func Reroute(from object.Readers, routes map[string]ovn.Policy, dead []string, at func(port string) []netip.Addr, silent func(node string) bool) map[string]ovn.Policy {
	nodes := nodesOf(from, at, silent)
	out := map[string]ovn.Policy{}
	for key, r := range routes {
		now := via(r)
		left := slices.DeleteFunc(slices.Clone(now), func(n string) bool { return slices.Contains(dead, n) })
		to := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return !slices.Contains(left, n.Name) })
		switch {
		case len(left) == len(now):
			continue
		case len(left) == 0:
			to = instead(from, subnetOf(key), nodes)
		}
		if changed, ok := lead(r, now, to); ok {
			out[key] = changed
		}
	}
	return out
}

// instead are the gateways that a Subnet should have, of those that answer.
func instead(from object.Readers, subnet string, nodes []Node) []Node {
	o, ok := from.Subnets.Get("", subnet)
	if !ok {
		return nil
	}
	by := Subnet{By: declare.ReadGateway(o.Spec)}
	members, _ := candidates(by, nodes)
	return slices.DeleteFunc(choose(by, members, ""), func(n Node) bool { return n.Down == Silence })
}

// lead gives a route that leads to other nodes than before; false if these have no address
// of its family.
func lead(r ovn.Policy, before []string, to []Node) (ovn.Policy, bool) {
	is4 := strings.HasPrefix(r.Match, "ip4")
	r.Nexthops, r.ExternalIDs = nil, maps.Clone(r.ExternalIDs)
	for _, n := range before {
		delete(r.ExternalIDs, n)
	}
	for _, n := range to {
		if i := slices.IndexFunc(n.IPs, func(ip netip.Addr) bool { return ip.Is4() == is4 }); i >= 0 {
			r.Nexthops = append(r.Nexthops, n.IPs[i].String())
			r.ExternalIDs[n.Name] = n.IPs[i].String()
		}
	}
	return r, len(r.Nexthops) > 0
}
