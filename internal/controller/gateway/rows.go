package gateway

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

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
// gateway nodes in the nodes' Subnet, by name. Several share connections; without any
// nothing leaves, also not by another node.
type leave struct {
	core.Subnet
	gateways map[string][]netip.Addr
}

// rows are the policy routes of all centralized Subnets. The default Vpc's Set must be
// there before. A route's external ids have its gateways with their addresses, as the
// reference's.
func rows(all []leave) *ovn.Set {
	s := &ovn.Set{Owner: Owner}
	for _, l := range all {
		for _, c := range l.CIDRs {
			fam := "ip4"
			if c.Addr().Is6() {
				fam = "ip6"
			}
			row := &ovn.Policy{Priority: priority, Match: fmt.Sprintf("%s.src == %s", fam, c), Action: v1.RouteDrop, ExternalIDs: map[string]string{}}
			for _, node := range slices.Sorted(maps.Keys(l.gateways)) {
				ips := l.gateways[node]
				if i := slices.IndexFunc(ips, func(ip netip.Addr) bool { return ip.Is4() == c.Addr().Is4() }); i >= 0 {
					row.Action, row.Nexthops = v1.RouteReroute, append(row.Nexthops, ips[i].String())
					row.ExternalIDs[node] = ips[i].String()
				}
			}
			s.PutKeyed(fmt.Sprintf("subnet/%s/%d/%s", l.Name, priority, row.Match), row, ovn.PolicyOf(v1.DefaultVpc)) // as subnetOf reads it
		}
	}
	return s
}
