package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Owner owns the rows by which pods of centralized Subnets leave the cluster.
const Owner = string(object.KindExits)

// priority of their policy routes (sdn.md, 11): above that of the way out by the node.
const priority = 29000

// leave is how the pods of a centralized Subnet leave the cluster: by the ports of its
// gateway nodes in the nodes' Subnet. Without any nothing leaves, also not by another node.
type leave struct {
	core.Subnet
	via   []Node
	homes []Node // with ECMP those that have a part of the connections each, also bad ones
}

// part is what leaves by some gateways, which share its connections if they are several.
type part struct {
	key, match string
	to         []Node
}

// rows are the policy routes of all centralized Subnets. The default Vpc's Set must be
// there before. A route's external ids have its gateways with their addresses, as the
// reference's.
func rows(all []leave) *ovn.Set {
	s := &ovn.Set{Owner: Owner}
	for _, l := range all {
		for _, c := range l.CIDRs {
			for _, p := range l.parts(c) {
				row := &ovn.Policy{Priority: priority, Match: p.match, Action: v1.RouteDrop, ExternalIDs: map[string]string{}}
				for _, n := range p.to {
					ip := n.at(c.Addr().Is4()).String()
					row.Action, row.Nexthops = v1.RouteReroute, append(row.Nexthops, ip)
					row.ExternalIDs[n.Name] = ip
				}
				s.PutKeyed(fmt.Sprintf("subnet/%s/%d/%s", l.Name, priority, p.key), row, ovn.PolicyOf(v1.DefaultVpc)) // as subnetOf reads it
			}
		}
	}
	return s
}

// parts are those of a network. With ECMP each gateway has one that stays its own: what
// leaves by others does not move when it dies and when it is back. A group of next hops
// would not do: Open vSwitch gives its members all connections anew when one comes or goes.
func (l leave) parts(c netip.Prefix) (out []part) {
	fam, is4 := "ip6", c.Addr().Is4()
	if is4 {
		fam = "ip4"
	}
	all := fmt.Sprintf("%s.src == %s", fam, c)
	via, homes := reachable(l.via, is4), reachable(l.homes, is4)
	if len(via) == 0 || len(homes) < 2 || len(homes) > ends*ends {
		return []part{{all, all, via}}
	}
	for i, h := range homes {
		p := part{all + " by " + h.Name, fmt.Sprintf("%s && (%s)", all, share(fam, i, len(homes))), via}
		if slices.ContainsFunc(via, func(n Node) bool { return n.Name == h.Name }) {
			p.to = []Node{h}
		}
		out = append(out, p)
	}
	return out
}

// reachable are the nodes with an address of a family, by name.
func reachable(nodes []Node, is4 bool) (out []Node) {
	for _, n := range nodes {
		if n.at(is4).IsValid() {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// at is a node's address of a family.
func (n Node) at(is4 bool) (ip netip.Addr) {
	if i := slices.IndexFunc(n.IPs, func(ip netip.Addr) bool { return ip.Is4() == is4 }); i >= 0 {
		ip = n.IPs[i]
	}
	return ip
}

// ends is how many ends of addresses shares tell apart: those of their last three bits.
const ends = 8

// share matches the i-th of n equal shares of all packets, by the ends of both addresses:
// one pod's connections to several machines, and several pods' to one, come to all shares.
func share(fam string, i, n int) string {
	var terms []string
	for src := range ends {
		var dsts []string
		for dst := range ends {
			if ((src+dst)%ends*ends+src)*n/(ends*ends) == i {
				dsts = append(dsts, strconv.Itoa(dst))
			}
		}
		if len(dsts) > 0 {
			terms = append(terms, fmt.Sprintf("%s.src[0..2] == %d && %s.dst[0..2] == {%s}", fam, src, fam, strings.Join(dsts, ", ")))
		}
	}
	return "(" + strings.Join(terms, ") || (") + ")"
}
