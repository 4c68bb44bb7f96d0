package logical

import (
	"fmt"
	"net/netip"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Priorities of the default Vpc's policy routes (sdn.md, 11): the highest counts,
// and a Vpc's own may stand between them.
const (
	priorityInside = 31000 // to a Subnet: as the router's table says
	priorityToNode = 30000 // to a node's own address: to that node
	priorityWayOut = 28900 // to anything else: to the node that the packet is on; below gateways (gateway.priority)
)

// within puts into a Subnet's Set that what goes to it stays in the router.
func within(s *ovn.Set, n Subnet) {
	if n.Vpc != v1.DefaultVpc {
		return
	}
	for _, c := range n.CIDRs {
		turn(s, "subnet/"+n.Name, &ovn.Policy{Priority: priorityInside, Match: fmt.Sprintf("%s.dst == %s", family(c), c), Action: v1.RouteAllow})
	}
}

// wayOut puts into a node's Set that what goes to its addresses goes to its join
// port, whatever node it comes from, and that what its own pods send to anything
// that no Subnet has goes there too. The router of a pod's packets is that of the
// pod's chassis, which is where the node's port resides: so this takes two rows a
// node, and none a pod or Subnet.
func wayOut(s *ovn.Set, n Node) {
	for _, ip := range n.IPs {
		hop := []string{ip.String()}
		fam := family(netip.PrefixFrom(ip, 0))
		for _, own := range n.Own {
			if own.Is4() == ip.Is4() {
				turn(s, "node/"+n.Name, &ovn.Policy{Priority: priorityToNode, Match: fmt.Sprintf("%s.dst == %s", fam, own), Action: v1.RouteReroute, Nexthops: hop})
			}
		}
		turn(s, "node/"+n.Name, &ovn.Policy{
			Priority: priorityWayOut, Match: fmt.Sprintf("%s && is_chassis_resident(%q)", fam, core.NodePort(n.Name)),
			Action: v1.RouteReroute, Nexthops: hop,
		})
	}
}

// turn puts a policy route of the default Vpc.
func turn(s *ovn.Set, whose string, p *ovn.Policy) {
	s.PutKeyed(fmt.Sprintf("%s/%d/%s", whose, p.Priority, p.Match), p, ovn.PolicyOf(v1.DefaultVpc))
}
