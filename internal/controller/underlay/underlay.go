// Package underlay says which rows of OVN's northbound database make a Subnet a part of a
// VLAN of a provider network (sdn.md, 11), and what its pods are told of that. It is pure,
// as package logical, whose Sets it adds to.
package underlay

import (
	"fmt"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// LocalnetPort names a Subnet's logical port to its provider network, as the reference
// does: nodes know the patch port on the network's bridge by it.
func LocalnetPort(subnet string) string { return localnet + subnet }

const localnet = "localnet."

// Reserved tells that no pod's port may have a name: a Subnet's could be called so.
func Reserved(port string) bool { return strings.HasPrefix(port, localnet) }

// Join puts into a Subnet's Set the port by which its switch is a part of a VLAN of
// a provider network, on each chassis that has pods of it and a bridge for the network
// (ovn-nb(5), localnet).
func Join(s *ovn.Set, n core.Subnet) {
	if n.Underlay == "" {
		return
	}
	row := &ovn.LogicalSwitchPort{
		Name: LocalnetPort(n.Name), Type: "localnet", Addresses: []string{"unknown"},
		Options:     map[string]string{"network_name": n.Underlay},
		ExternalIDs: map[string]string{"ls": n.Name},
	}
	if n.VLAN != 0 {
		row.Tag = new(n.VLAN)
	}
	s.Put(row, ovn.InSwitch(n.Name))
}

// Notes are the annotations that say on which VLAN of which provider network an
// interface is, none for one that is on none.
func Notes(at string, n core.Subnet) map[string]string {
	if n.Underlay == "" {
		return nil
	}
	return map[string]string{at + v1.FieldVLAN: strconv.Itoa(n.VLAN), at + v1.FieldProviderNetwork: n.Underlay, at + v1.FieldNetworkType: "vlan"}
}

// Priorities of policy routes about an interconnected Subnet: from its pods above those to
// nodes (30000), to them below these, since the VLAN is often the nodes' own (sdn.md, 11).
const (
	priorityFrom = 30500
	priorityTo   = 29400
)

// Interconnect puts into a Subnet's Set that the router sends on what is for its pods, and
// what they send beyond the other Subnets of the Vpc to the physical gateway, not to nodes.
func Interconnect(s *ovn.Set, n core.Subnet) {
	for i, c := range n.CIDRs {
		family := "ip6"
		if c.Addr().Is4() {
			family = "ip4"
		}
		for _, p := range []*ovn.Policy{
			{Priority: priorityTo, Match: fmt.Sprintf("%s.dst == %s", family, c), Action: v1.RouteAllow},
			{Priority: priorityFrom, Match: fmt.Sprintf("%s.src == %s", family, c), Action: v1.RouteReroute, Nexthops: []string{n.Gateways[i].String()}},
		} {
			s.PutKeyed(fmt.Sprintf("subnet/%s/%d/%s", n.Name, p.Priority, p.Match), p, ovn.PolicyOf(n.Vpc))
		}
	}
}
