package logical

import (
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/offer"
	"github.com/fairlead/fairlead/internal/controller/underlay"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// JoinSubnet is the Subnet of the nodes (sdn.md, 11).
const JoinSubnet = "join"

// External ids of rows, as the reference writes them.
const (
	keySwitch = "ls"
	keyPod    = "pod"
	keyNode   = "node"
	keyVpc    = "vpc"
)

// KeyUID is the external id of a pod's ports with the pod's UID: a later pod of
// the same name is told apart by it.
const KeyUID = "fairlead-pod-uid"

// KeyKeeper is the external id of a pod's ports with what keeps their addresses
// while there is no pod: kind/name/UID.
const KeyKeeper = "fairlead-keeper"

// Subnet is a switch with a port to its Vpc's router.
type Subnet struct {
	core.Subnet
	Access  declare.Access
	Offers  declare.Offers
	Gateway declare.Gateway
	// Interconnection are the router's addresses in an underlay Subnet that is
	// interconnected, one for each network, and Asked those that the Subnet asks for.
	Interconnection, Asked []netip.Addr
	// NoServices leaves its pods' packets to Services as they are.
	NoServices bool
	// Nodes are the networks of nodes, which a private Subnet lets in.
	Nodes []netip.Prefix
}

// Node is a port of the join Subnet, by which a node and pods reach each other,
// and by which the node's pods reach what no Subnet has.
type Node struct {
	Name string
	MAC  core.MAC
	IPs  []netip.Addr // in the join Subnet, one for each family
	Own  []netip.Addr // the node's own addresses, outside of OVN
}

// Pod is the ports of a pod.
type Pod struct {
	core.Pod
	Keeper string // "" for none
	Ports  []Port
	// Nodes are those on which a virtual machine is while it moves from the first to the
	// second.
	Nodes []string
}

// Port is a NIC of a pod.
type Port struct {
	Name   string // iface-id: pod.namespace[.provider[.interface]]
	Subnet string
	MAC    core.MAC
	IPs    []netip.Addr // one for each family at most
	// Open switches port security off: the pod may send from any address.
	Open bool
	// Probes: the pod may ask by ARP who has its address as one that has none (RFC 5227),
	// which port security takes for a sender 0.0.0.0.
	Probes bool
	Offers declare.Offers // of its Subnet
	VIPs   []netip.Addr   // that the pod may send from besides
	Groups []string       // names of port groups
}

// Switch is a Subnet's rows: its switch, both ends of the link to its Vpc's router,
// where the gateways are, and of an underlay Subnet the port to its VLAN instead of
// that link or beside it. The router's Set must be there before, if there is a link.
func Switch(n Subnet) *ovn.Set {
	s := &ovn.Set{Owner: "subnet/" + n.Name}
	var balanced []ovn.Link
	if n.Vpc == v1.DefaultVpc && n.Name != JoinSubnet && !n.NoServices {
		balanced = append(balanced, ovn.Balancers(n.Vpc))
	}
	s.Put(&ovn.LogicalSwitch{Name: n.Name, OtherConfig: offer.Snoop(n.Offers), ExternalIDs: map[string]string{keyVpc: n.Vpc}}, balanced...)
	if n.ByNodes() || len(n.Interconnection) > 0 {
		toRouter(s, n)
	}
	underlay.Join(s, n.Subnet)
	offer.DHCP(s, n.Subnet, n.GatewayMAC(), n.Routers(), n.Offers)
	access(s, n)
	return s
}

// toRouter puts both ends of a Subnet's link to its Vpc's router.
func toRouter(s *ovn.Set, n Subnet) {
	here, there := link(n.Name, n.Vpc)
	row := &ovn.LogicalRouterPort{Name: there, MAC: n.GatewayMAC().String(), Networks: gateways(n.Subnet, n.Routers())}
	if n.ByNodes() {
		offer.Advertise(row, n.Subnet, n.Offers)
	}
	s.Put(row, ovn.InRouter(n.Vpc))
	s.Put(&ovn.LogicalSwitchPort{
		Name: here, Type: "router", Addresses: []string{"router"},
		Options:     map[string]string{"router-port": there},
		ExternalIDs: map[string]string{keySwitch: n.Name},
	}, ovn.InSwitch(n.Name))
	if n.ByNodes() {
		within(s, n)
	} else {
		underlay.Interconnect(s, n.Subnet)
	}
}

// Routers are the addresses by which its pods leave: the gateways, or those of OVN's router
// beside a physical gateway.
func (n Subnet) Routers() []netip.Addr {
	if len(n.Interconnection) > 0 {
		return n.Interconnection
	}
	return n.Gateways
}

// link names the ports that join a Subnet's switch and its Vpc's router: SUBNET-VPC and
// VPC-SUBNET, as the reference does, unless another Subnet's, a node's or a pod's could
// have the name as well; then with what the name of no object has in it.
func link(subnet, vpc string) (atSwitch, atRouter string) {
	sep := "-"
	if strings.Contains(subnet+vpc, ".") || subnet == "node" || strings.HasPrefix(subnet, "node-") ||
		vpc != v1.DefaultVpc && strings.Contains(subnet+vpc, "-") {
		sep = "/"
	}
	return subnet + sep + vpc, vpc + sep + subnet
}

// VpcOf is the Vpc to whose router a Subnet's port leads that has this name in its switch.
func VpcOf(subnet, port string) string { return port[min(len(subnet)+1, len(port)):] }

// gateways are addresses of a Subnet's router port, one of each network, with prefix
// lengths.
func gateways(n core.Subnet, of []netip.Addr) (out []string) {
	for i, g := range of {
		out = append(out, netip.PrefixFrom(g, n.CIDRs[i].Bits()).String())
	}
	return out
}

// Host is a node's rows. The join Subnet's Set must be there before.
func Host(n Node) *ovn.Set {
	s := &ovn.Set{Owner: "node/" + n.Name}
	s.Put(&ovn.LogicalSwitchPort{
		Name: core.NodePort(n.Name), Addresses: []string{address(n.MAC, n.IPs)},
		ExternalIDs: map[string]string{keySwitch: JoinSubnet, keyNode: n.Name},
	}, ovn.InSwitch(JoinSubnet))
	wayOut(s, n)
	return s
}

// Ports is a pod's rows. The Sets of its Subnets must be there before. While a virtual
// machine moves its ports are at both nodes, and at the second nothing passes before the
// machine there has said by RARP that it runs (ovn-nb(5), requested-chassis).
func Ports(p Pod) *ovn.Set {
	s := &ovn.Set{Owner: "pod/" + p.Pod.String()}
	for _, port := range p.Ports {
		row := &ovn.LogicalSwitchPort{
			Name: port.Name, Addresses: []string{address(port.MAC, port.IPs)},
			ExternalIDs: map[string]string{keyPod: p.Pod.String(), keySwitch: port.Subnet},
		}
		if p.UID != "" {
			row.ExternalIDs[KeyUID] = p.UID
		}
		if p.Keeper != "" {
			row.ExternalIDs[KeyKeeper] = p.Keeper
		}
		if len(p.Nodes) > 1 {
			row.Options = map[string]string{"requested-chassis": strings.Join(p.Nodes, ","), "activation-strategy": "rarp"}
		}
		if !port.Open {
			may := slices.Concat(port.IPs, port.VIPs)
			if port.Probes {
				may = append(may, netip.IPv4Unspecified())
			}
			row.PortSecurity = []string{address(port.MAC, may)}
		}
		links := append([]ovn.Link{ovn.InSwitch(port.Subnet)}, offer.Refs(port.Subnet, port.IPs, port.Offers)...)
		for _, g := range port.Groups {
			links = append(links, ovn.InGroup(g))
		}
		s.Put(row, links...)
	}
	return s
}

// address is a port's address as OVN writes it (ovn-nb(5), addresses).
func address(mac core.MAC, ips []netip.Addr) string {
	words := []string{mac.String()}
	for _, ip := range ips {
		words = append(words, ip.String())
	}
	return strings.Join(words, " ")
}
