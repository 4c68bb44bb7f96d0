// Package offer says which rows and columns of OVN's northbound database answer pods of
// a Subnet that configure themselves: by DHCP (ovn-nb(5), DHCP_Options) and by router
// advertisements (Logical_Router_Port, ipv6_ra_configs); and how a Subnet's switch and
// router forward beyond that. It is pure, as package logical, whose Sets it adds to.
package offer

import (
	"maps"
	"net/netip"
	"strconv"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// What is offered unless the Subnet says otherwise, as the reference has it.
const (
	leaseTime = "3600" // s
	serverID  = "169.254.0.254"
)

// Columns of a switch's port that refer to its family's DHCP_Options.
var columns = map[bool]string{true: "dhcpv4_options", false: "dhcpv6_options"}

// key names a Subnet's DHCP_Options of a family.
func key(subnet string, four bool) string {
	if four {
		return subnet + "/IPv4"
	}
	return subnet + "/IPv6"
}

// DHCP puts the answers to pods' DHCP into a Subnet's Set, one row for each network; mac
// is that of who answers, and routers are those of pods, one for each network.
func DHCP(s *ovn.Set, n core.Subnet, mac core.MAC, routers []netip.Addr, o declare.Offers) {
	if !o.DHCP {
		return
	}
	for i, c := range n.CIDRs {
		row := &ovn.DHCPOptions{CIDR: c.String(), ExternalIDs: map[string]string{"ls": n.Name}}
		if c.Addr().Is4() {
			row.Options = map[string]string{"lease_time": leaseTime, "router": routers[i].String(), "server_id": serverID, "server_mac": mac.String()}
			if n.MTU != 0 {
				row.Options["mtu"] = strconv.Itoa(n.MTU)
			}
			maps.Copy(row.Options, o.DHCPv4)
		} else {
			row.Options = map[string]string{"server_id": mac.String()}
			maps.Copy(row.Options, o.DHCPv6)
		}
		s.PutKeyed(key(n.Name, c.Addr().Is4()), row)
	}
}

// Refs have the port of a pod with these addresses answered so.
func Refs(subnet string, ips []netip.Addr, o declare.Offers) (out []ovn.Link) {
	if !o.DHCP {
		return nil
	}
	for _, ip := range ips {
		out = append(out, ovn.Ref{Column: columns[ip.Is4()], Table: ovn.TableDHCPOptions, Key: key(subnet, ip.Is4())})
	}
	return out
}

// Advertise has a Subnet's router port advertise itself, and look up routes in the
// Subnet's table.
func Advertise(p *ovn.LogicalRouterPort, n core.Subnet, o declare.Offers) {
	if o.Table != "" {
		p.Options = map[string]string{"route_table": o.Table}
	}
	for _, c := range n.CIDRs {
		if o.RA && c.Addr().Is6() {
			p.IPv6RAConfigs = map[string]string{"address_mode": "dhcpv6_stateful", "max_interval": "30", "min_interval": "5", "send_periodic": "true"}
			maps.Copy(p.IPv6RAConfigs, o.RAs)
		}
	}
}

// Snoop are the settings of a Subnet's switch; nil for none. Somebody else asks who wants
// what (a querier).
func Snoop(o declare.Offers) map[string]string {
	if !o.Snoop {
		return nil
	}
	return map[string]string{"mcast_snoop": "true", "mcast_querier": "false"}
}
