// Package interconnect joins the default Vpc to those of other clusters by OVN's
// interconnection (Kube-OVN's ConfigMap ovn-ic-config): a port of its router on the transit
// switch, which gateway nodes have, and what ovn-ic is told in the northbound database. What is
// not as it should be it tells the ConfigMap by an event. It must not know who runs ovn-ic.
package interconnect

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
	"github.com/fairlead/fairlead/internal/ovn/ic"
)

// Owner owns the rows.
const Owner = "interconnection"

// Priorities of policy routes (sdn.md, 11). What goes to other clusters takes no gateway of this
// one: above those of gateways, below those of nodes and Subnets; longer prefixes count more. What
// comes from others does not get to networks that they are not to reach, whatever they were told.
const (
	priority = 29500
	shut     = 31500
)

// first is the priority of the first gateway node, of which there are fewer.
const first = 1000

// optKey is an option of switches and ports that ovn-ic writes, too: the number in tunnels.
const optKey = "requested-tnl-key"

// portOf and switchPortOf are a zone's ends of the link between its router and the transit
// switch, by the reference's names.
func portOf(zone string) string       { return zone + "-" + ic.Switch }
func switchPortOf(zone string) string { return ic.Switch + "-" + zone }

// ways are a zone's: networks of others, and own ones that others do not reach.
type ways struct {
	learned []ic.Route
	closed  []netip.Prefix
}

// rows are those of a zone whose gateways are nodes; without the router's port unless it leads
// there. The default Vpc's Set must be there before.
func rows(zone string, nodes []object.Node, now ic.State, w ways, leads bool) (*ovn.Set, error) {
	s := &ovn.Set{Owner: Owner}
	transit := &ovn.LogicalSwitch{Name: ic.Switch, OtherConfig: map[string]string{"interconn-ts": ic.Switch}}
	if now.Key != 0 {
		transit.OtherConfig[optKey] = strconv.Itoa(now.Key)
	}
	s.Put(transit)
	end := &ovn.LogicalSwitchPort{Name: switchPortOf(zone), Type: "router", Addresses: []string{"router"}, Options: map[string]string{"router-port": portOf(zone)}}
	if key, chosen := tunnelKey(zone, now); chosen {
		end.Options[optKey] = strconv.Itoa(key)
	}
	s.Put(end, ovn.InSwitch(ic.Switch))
	if !leads {
		return s, nil
	}
	port := &ovn.LogicalRouterPort{Name: portOf(zone), MAC: core.Subnet{Name: "(zone " + zone + ")"}.GatewayMAC().String()}
	for _, n := range now.Networks {
		a, err := address(zone, n, now.Ports)
		if err != nil {
			return nil, err
		}
		port.Networks = append(port.Networks, a.String())
	}
	s.Put(port, ovn.InRouter(v1.DefaultVpc))
	for i, n := range nodes {
		chassis := n.Annotations[v1.AnnChassis]
		s.Put(&ovn.GatewayChassis{Name: port.Name + "-" + chassis, ChassisName: chassis, Priority: max(first-i, 0)},
			ovn.Place{Table: ovn.TableRouterPort, Key: port.Name, Column: "gateway_chassis"})
	}
	w.put(s, port.Name)
	return s, nil
}

// tunnelKey is the number in tunnels that ovn-ic has chosen for a zone's port.
func tunnelKey(zone string, now ic.State) (key int, chosen bool) {
	i := slices.IndexFunc(now.Ports, func(p ic.Port) bool { return p.Name == switchPortOf(zone) && p.Zone == zone })
	if i < 0 || now.Ports[i].Key == 0 {
		return 0, false
	}
	return now.Ports[i].Key, true
}

// put puts the policy routes. Networks of others are no routes: ovn-ic would tell them on.
func (w ways) put(s *ovn.Set, port string) {
	add := func(p ovn.Policy) {
		s.PutKeyed(fmt.Sprintf("%s/%d/%s", Owner, p.Priority, p.Match), &p, ovn.PolicyOf(v1.DefaultVpc))
	}
	add(ovn.Policy{Priority: priority, Match: fmt.Sprintf("outport == %q", port), Action: v1.RouteAllow}) // by routes of the operator's own
	hops := map[netip.Prefix][]string{}
	for _, r := range w.learned {
		hops[r.Prefix] = append(hops[r.Prefix], r.Nexthop.String())
	}
	for p, to := range hops {
		slices.Sort(to) // a network that several clusters have is shared among them
		add(ovn.Policy{Priority: priority + p.Bits(), Match: family(p) + ".dst == " + p.String(), Action: v1.RouteReroute, Nexthops: slices.Compact(to)})
	}
	closed := slices.Clone(w.closed)
	slices.SortFunc(closed, netip.Prefix.Compare)
	for _, p := range slices.Compact(closed) {
		add(ovn.Policy{Priority: shut, Match: fmt.Sprintf("inport == %q && %s.dst == %s", port, family(p), p), Action: v1.RouteDrop})
	}
}

func family(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "ip6"
	}
	return "ip4"
}

// address is a zone's own in a network of the transit switch: that which it has, else one that
// follows from its name and is nobody's. Of two zones that took one at the same moment that one
// keeps it whose name is the lower.
func address(zone string, network netip.Prefix, ports []ic.Port) (netip.Prefix, error) {
	taken := map[netip.Addr]bool{}
	own := netip.Addr{}
	for _, p := range ports {
		for _, n := range p.Networks {
			switch {
			case !network.Contains(n.Addr()):
			case p.Zone == zone:
				own = n.Addr()
			case p.Zone < zone || !hasOwn(zone, n.Addr(), ports):
				taken[n.Addr()] = true
			}
		}
	}
	if own.IsValid() && !taken[own] {
		return netip.PrefixFrom(own, network.Bits()), nil
	}
	hosts := 1<<min(network.Addr().BitLen()-network.Bits(), 16) - 2 // neither the first nor the last address
	h := fnv.New32a()
	_, _ = h.Write([]byte(zone)) // it never fails
	for i := range max(hosts, 0) {
		a := nth(network.Masked().Addr(), (int(h.Sum32()>>1)+i)%hosts+1)
		if !taken[a] {
			return netip.PrefixFrom(a, network.Bits()), nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("no address of the transit switch's network %s is free: %w", network, core.ErrExhausted)
}

// hasOwn tells that a zone's port has an address.
func hasOwn(zone string, a netip.Addr, ports []ic.Port) bool {
	return slices.ContainsFunc(ports, func(p ic.Port) bool {
		return p.Zone == zone && slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Addr() == a })
	})
}

// nth is the address n after the first of a network that has more than n, and n is below 65536.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.AsSlice()
	end := b[len(b)-2:]
	binary.BigEndian.PutUint16(end, binary.BigEndian.Uint16(end)+uint16(n)) //nolint:gosec // said above
	out, _ := netip.AddrFromSlice(b)
	return out
}
