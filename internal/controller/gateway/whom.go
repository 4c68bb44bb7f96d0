package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/alive"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// witnesses is how many nodes are asked that are no gateways: where there are two
// gateways, of which one is this machine, the other's silence alone would prove nothing.
const witnesses = 3

// Whom are the nodes of which it matters whether they answer, the gateways of centralized
// Subnets and those who would take over, and a few witnesses: further nodes, and machines
// beside, as routers. local are this machine's own addresses: nobody asks himself, and by
// tunnels only a node can ask. Without any gateway elsewhere it is nobody.
func Whom(from object.Readers, local, beside []netip.Addr) (out []alive.Node) {
	nodes := from.Nodes.List()
	slices.SortFunc(nodes, func(a, b object.Node) int { return strings.Compare(a.Name, b.Name) })
	gateways := named(from, nodes)
	if len(gateways) == 0 {
		return nil
	}
	own := func(ip netip.Addr) bool { return slices.Contains(local, ip) }
	inside := slices.ContainsFunc(nodes, func(n object.Node) bool { return slices.ContainsFunc(joinOf(n), own) })
	others := 0
	for _, n := range nodes {
		to := alive.Node{Name: n.Name, Below: first(n.IPs), Witness: !gateways[n.Name]}
		if inside {
			to.Tunnel = first(joinOf(n))
		}
		if slices.ContainsFunc(slices.Concat(n.IPs, joinOf(n)), own) || to.Witness && (others == witnesses || n.Down != "") {
			continue
		}
		if to.Witness {
			others++
		}
		out = append(out, to)
	}
	for _, ip := range beside {
		if !own(ip) && !slices.ContainsFunc(out, func(n alive.Node) bool { return n.Below == ip }) {
			out = append(out, alive.Node{Name: ip.String(), Below: ip, Witness: true})
		}
	}
	return out
}

// Matters is what of an object decides whom to ask, "" for one that is gone and for other
// kinds.
func Matters(from object.Readers, of object.Key) string {
	if s, ok := from.Subnets.Get("", of.Name); ok && of.Kind == object.KindSubnet {
		return fmt.Sprintln(declare.ReadGateway(s.Spec))
	}
	if n, ok := from.Nodes.Get("", of.Name); ok && of.Kind == object.KindNode {
		return fmt.Sprintln(n.Annotations[v1.AnnChassis], joinOf(n), n.IPs, n.Labels, n.Down)
	}
	return ""
}

// named are the nodes that centralized Subnets name.
func named(from object.Readers, all []object.Node) map[string]bool {
	var nodes []Node
	for _, n := range all {
		nodes = append(nodes, Node{Name: n.Name, Chassis: n.Annotations[v1.AnnChassis], IPs: joinOf(n), Labels: n.Labels})
	}
	out := map[string]bool{}
	for _, s := range from.Subnets.List() {
		by := declare.ReadGateway(s.Spec)
		if !by.Centralized {
			continue
		}
		members, _ := candidates(Subnet{By: by}, nodes)
		for _, n := range members {
			out[n.Name] = true
		}
	}
	return out
}

// joinOf are a node's addresses in the nodes' Subnet, as its Node tells them.
func joinOf(n object.Node) []netip.Addr {
	return logical.Addrs(n.Annotations[v1.DefaultProvider+v1.ProviderSuffix+v1.FieldIP], ",")
}

// first is one of them, of IPv4 where there is such.
func first(ips []netip.Addr) (ip netip.Addr) {
	for _, one := range ips {
		if !ip.IsValid() || ip.Is6() && one.Is4() {
			ip = one
		}
	}
	return ip
}
