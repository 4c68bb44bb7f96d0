package standalone

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/rtnl"
	"github.com/fairlead/fairlead/internal/ovs"
)

// JoinPort is the device by which a node and the pods of OVN reach each other
// (sdn.md, 6). Its mark among gateways is its own name, which no Subnet has: a
// Subnet's port has a hyphen in it.
const JoinPort = "ovn0"

// Join is that device: its addresses, and the Subnets behind it.
type Join struct {
	core.Join
	Subnets []core.Subnet // with their networks but the nodes' own; never empty ones
	Left    []string      // why networks are not among them that hold an address of a node
	Aliases []Alias       // as whom pods of some of them are to be seen that leave by this node
}

// Alias is an address as which pods of a Subnet are to be seen, one for each family at most.
type Alias struct {
	Subnet string
	Addr   netip.Addr
	Held   bool // the node has it; otherwise the pods are seen as the node
}

// Own are the addresses of the node, those of ports aside that lead to pods.
func (g *Gateway) Own() (own []netip.Addr, err error) {
	all, err := g.held()
	for _, a := range all {
		own = append(own, a.Prefix.Addr())
	}
	return own, err
}

// held are the same, each with its device.
func (g *Gateway) held() ([]rtnl.Addr, error) {
	c, err := rtnl.Open(g.cfg.Host)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	ours := map[int]bool{}
	for _, p := range g.cfg.Ports.PortsWith(ovs.KeyGateway, "") {
		l, err := c.LinkByName(p.Name)
		if err != nil && !errors.Is(err, core.ErrNotFound) {
			return nil, err
		}
		ours[l.Index] = true
	}
	all, err := c.Addrs(0)
	return slices.DeleteFunc(all, func(a rtnl.Addr) bool { return ours[a.Index] }), err
}

// Behind are the Subnets to which a node's join port leads, and whose pods on this
// node leave the cluster by it: those that OVN carries and routes in the default Vpc. A network
// that holds an address of the node, which are own, or of another one is left out: its
// route would take the place of the kernel's, and with that the way to other nodes
// (sdn.md, 6). Of nodes that came into a network of pods the controller tells no others.
func Behind(node string, j core.Join, subnets []core.Subnet, own []netip.Addr) *Join {
	if len(j.Addrs) == 0 {
		return nil
	}
	out, taken := &Join{Join: j}, slices.Concat(own, j.Nodes)
	for _, s := range subnets {
		if s.Vpc != v1.DefaultVpc || !v1.Routed(s.Provider) || s.Implied || !s.ByNodes() {
			continue
		}
		s.CIDRs = slices.DeleteFunc(slices.Clone(s.CIDRs), func(c netip.Prefix) bool {
			return slices.ContainsFunc(j.Addrs, c.Overlaps) || out.holds(s.Name, c, taken)
		})
		if s.Centralized && s.Egress != nil && !leads(*s.Egress, node, j.Labels) {
			s.Egress = nil
		}
		if len(s.CIDRs) > 0 {
			out.Subnets = append(out.Subnets, s)
			out.Aliases = append(out.Aliases, aliases(node, s, own)...)
		}
	}
	return out
}

// leads tells that a node is one of those that lead a centralized Subnet's pods to their
// gateway outside.
func leads(e core.Egress, node string, has map[string]string) bool {
	return slices.Contains(e.By, node) || slices.ContainsFunc(e.Where, func(text string) bool {
		s, err := labels.Parse(text)
		return err == nil && s.Matches(labels.Set(has))
	})
}

// aliases are the addresses as which a Subnet's pods leave by the node, which has own.
func aliases(node string, s core.Subnet, own []netip.Addr) (out []Alias) {
	for _, e := range s.Exits {
		for _, ip := range e.IPs {
			if e.Node == node {
				out = append(out, Alias{Subnet: s.Name, Addr: ip, Held: slices.Contains(own, ip)})
			}
		}
	}
	return out
}

// aliased tells that an address came to the node, or went, as which pods leave.
func (g *Gateway) aliased(j *Join) error {
	if j == nil || len(j.Aliases) == 0 {
		return nil
	}
	own, err := g.Own()
	if err != nil {
		return err
	}
	var f findings
	for _, a := range j.Aliases {
		differ(&f, "node has "+a.Addr.String()+", as which pods of Subnet "+a.Subnet+" leave", slices.Contains(own, a.Addr), a.Held)
	}
	return f.err()
}

// aliasLinks are the devices of which news may be about an address as which pods leave:
// those with addresses of the node.
func (g *Gateway) aliasLinks(j *Join) (out []int, err error) {
	if j == nil || len(j.Aliases) == 0 {
		return nil, nil
	}
	all, err := g.held()
	for _, a := range all {
		if !slices.Contains(out, a.Index) {
			out = append(out, a.Index)
		}
	}
	return out, err
}

// holds tells, and notes, that a network of a Subnet holds one of some addresses.
func (j *Join) holds(subnet string, c netip.Prefix, own []netip.Addr) bool {
	i := slices.IndexFunc(own, c.Contains)
	if i >= 0 {
		j.Left = append(j.Left, fmt.Sprintf("Subnet %s: %s holds %s, an address of a node", subnet, c, own[i]))
	}
	return i >= 0
}

// nodes are the networks of the nodes' own ports.
func (j *Join) nodes() (out []netip.Prefix) {
	for _, a := range j.Addrs {
		out = append(out, a.Masked())
	}
	return out
}

// join is the join port as it should be.
func (g *Gateway) join(j *Join) gate {
	w := gate{
		subnet: JoinPort, addrs: j.Addrs, routes: []rtnl.Route{},
		port: ovs.Port{
			Name: JoinPort, Type: "internal", MAC: j.MAC, MTU: int(g.mtu.Load()),
			ExternalIDs: map[string]string{
				ovs.KeyGateway: JoinPort, ovs.KeyVendor: ovs.Vendor, ovs.KeyIfaceID: core.NodePort(g.cfg.Node), keyNode: g.cfg.Node,
			},
		},
	}
	// The device is the kernel's end of the port: what leaves by it comes to the pods, and
	// what they send out of the cluster comes in by it and is policed there.
	w.port.PolicingRate, w.port.PolicingBurst = ovs.Policing(j.QoS)
	if w.port.QoS = ovs.HTB(j.QoS); w.port.QoS != nil {
		w.port.QoS.ExternalIDs = map[string]string{ovs.KeyIfaceID: core.NodePort(g.cfg.Node)}
	}
	for _, s := range j.Subnets {
		for _, c := range s.CIDRs {
			i := slices.IndexFunc(j.Gateways, func(a netip.Addr) bool { return a.Is4() == c.Addr().Is4() })
			if i >= 0 {
				w.routes = append(w.routes, rtnl.Route{Dst: c, GW: j.Gateways[i], Protocol: unix.RTPROT_STATIC})
			}
		}
	}
	return w
}

// setRoutes makes the routes over w's device exactly w's, the kernel's own aside.
func setRoutes(c *rtnl.Conn, index int, w gate) error {
	if w.routes == nil {
		return nil
	}
	has, err := c.Routes(index)
	if err != nil {
		return err
	}
	missing, extra := routeDifference(w.routes, has)
	var errs []error
	for _, r := range missing {
		r.Index = index
		errs = append(errs, c.ReplaceRoute(r))
	}
	for _, r := range extra {
		errs = append(errs, c.DelRoute(r))
	}
	return errors.Join(errs...)
}

// routeDifference compares routes of a device; those of the kernel are its own.
func routeDifference(want, has []rtnl.Route) (missing, extra []rtnl.Route) {
	same := func(r rtnl.Route) func(rtnl.Route) bool {
		return func(o rtnl.Route) bool { return o.Dst == r.Dst && o.GW == r.GW }
	}
	for _, r := range want {
		if !slices.ContainsFunc(has, same(r)) {
			missing = append(missing, r)
		}
	}
	for _, r := range has {
		if r.Protocol != unix.RTPROT_KERNEL && !slices.ContainsFunc(want, same(r)) {
			extra = append(extra, r)
		}
	}
	return missing, extra
}
