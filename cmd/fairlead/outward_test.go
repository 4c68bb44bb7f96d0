package main

import (
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/api/agent"
)

// outward is a node with each kind of what may stand there.
func outward() agent.Outward {
	return agent.Outward{
		Node: "node1", As: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}, Filter: "iptables (nft)",
		Subnets: []agent.OutwardSubnet{
			{Name: "vlan1000", CIDRs: []netip.Prefix{prefix("100.100.0.0/16"), prefix("fd00:100::/64")}, Device: "ovn0", GatewayType: agent.Distributed, NATOutgoing: true, Rules: 2},
			{Name: "data", CIDRs: []netip.Prefix{prefix("10.17.0.0/16")}, Device: "ovn0", GatewayType: agent.Distributed, Egress: []netip.Addr{addr("192.0.2.254")}, Table: 1000, Priority: 900},
		},
		Networks: []agent.OutwardNetwork{
			{Name: "net1", Bridge: "br-net1", NIC: "eth1", Phase: "taken", Moved: []string{"address 192.0.2.1/24", "2 routes"}},
			{Name: "net2", Bridge: "br-net2", NIC: "eth2", Phase: "taken", Gone: true},
			{Name: "net3", Reason: "give bond0 to provider network net3: eth3 is a member of it"},
		},
		Ways: []agent.OutwardWay{
			{Subnet: "data", From: prefix("10.17.0.0/16"), Priority: 900, Table: 1000, Via: addr("192.0.2.254"), Device: "br-net1", Writer: agent.WriterOurs},
			{Subnet: "data", From: prefix("10.17.0.9/32"), Priority: 800, Table: 1000, Writer: agent.WriterKubeOVN},
			{Subnet: "data", From: prefix("10.17.0.0/24"), Priority: 7, Table: 5, Writer: agent.WriterOthers},
		},
		Sets: []agent.OutwardSet{
			{Name: "ovn40subnets-nat", Does: "networks with natOutgoing", Writer: agent.WriterOurs, Members: []netip.Prefix{prefix("100.100.0.0/16")}, Subnets: []string{"vlan1000"}},
			{Name: "ovn60services", Does: "networks of Services", Writer: agent.WriterOurs, Missing: true},
			{Name: "ovn40local-pod-ip-nat", Writer: agent.WriterKubeOVN},
		},
		Chains: []agent.OutwardChain{
			{Family: "IPv4", Table: "nat", Name: "OVN-POSTROUTING", Parent: "POSTROUTING", Writer: agent.WriterOurs, Rules: []agent.OutwardRule{
				{Text: "-m set --match-set ovn40subnets-nat src -m set ! --match-set ovn40subnets dst -j OVN-MASQUERADE", Does: "natOutgoing: what leaves for no pod gets the node's address"},
			}},
			{Family: "IPv6", Table: "filter", Name: "OVN-INPUT", Parent: "INPUT", Writer: agent.WriterOthers, Missing: true, Rules: []agent.OutwardRule{}},
		},
		Faults: []agent.OutwardFault{
			{Part: agent.PartRules, What: `IPv4 nat POSTROUTING: "-j SNAT" of another program decides before OVN-POSTROUTING does`, Next: "iptables -D it"},
			{Part: agent.PartNetworks, What: "NIC eth2 of provider network net2 is gone", Next: "put it back", Fatal: true},
		},
		Repairs: []agent.Repair{{What: "rules of the packet filter", Found: "set ovn60services is missing, or of another form", Times: 3, When: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)}},
		Unread:  []string{"sysctls: permission denied"},
	}
}
