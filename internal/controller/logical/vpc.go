package logical

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/match"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Vpc is a router with its routes and its links to other routers.
type Vpc struct {
	Name     string
	Routes   []Route
	Policies []Policy
	Peers    []Peer
	// Refused says which entries are left out since they contradict one before them; nil
	// for none.
	Refused error
}

// Route is a static route of a Vpc.
type Route struct {
	Prefix    netip.Prefix
	Nexthop   netip.Addr
	Source    bool   // Prefix is compared with the sender
	Table     string // "" is the main one
	Symmetric bool   // replies go back by the way that a connection came
}

// Policy is a policy route of a Vpc, in OVN's match language.
type Policy struct {
	Priority int
	Match    string
	Action   string   // allow, drop, reroute
	Nexthops []string // addresses, for reroute
}

// Peer is this side of a link to another Vpc's router, which has one too.
type Peer struct {
	Vpc       string
	Addresses []string // with prefix lengths
}

// sameRow tells that two routes differ in nothing but how their row is.
func (r Route) sameRow(o Route) bool {
	r.Symmetric = o.Symmetric
	return r == o
}

// Leave adds the default routes by the nodes' Subnet to the main table and these, but for
// those that the Vpc says itself.
func (v *Vpc) Leave(join core.Subnet, tables []string) {
	for _, r := range DefaultRoutes(join, tables...) {
		if !slices.ContainsFunc(v.Routes, r.sameRow) {
			v.Routes = append(v.Routes, r)
		}
	}
}

// DefaultRoutes lead what no Subnet has to the nodes: by the gateways of the
// join Subnet, which policies then direct to one node.
func DefaultRoutes(join core.Subnet, tables ...string) (out []Route) {
	for _, g := range join.Gateways {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if g.Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		for _, table := range append([]string{""}, tables...) {
			out = append(out, Route{Prefix: all, Nexthop: g, Table: table})
		}
	}
	return out
}

// Router is a Vpc's rows: its router, routes and links; the default one's also
// the group of all Services' load balancers.
func Router(v Vpc) *ovn.Set {
	s := &ovn.Set{Owner: "vpc/" + v.Name}
	s.Put(&ovn.LogicalRouter{Name: v.Name, Options: map[string]string{
		// Neighbours are learnt when they are asked for, and forgotten after 300 s. A pod that
		// announces its address of IPv4 to all has nobody write down what is known: ovn-northd and
		// each ovn-controller would look at that.
		"dynamic_neigh_routers": "true", "mac_binding_age_threshold": "300", "always_learn_from_arp_request": "false",
	}})
	if v.Name == v1.DefaultVpc {
		s.Put(&ovn.LoadBalancerGroup{Name: v.Name})
	}
	for _, r := range v.Routes {
		row := &ovn.StaticRoute{IPPrefix: r.Prefix.String(), Nexthop: r.Nexthop.String(), RouteTable: r.Table}
		if r.Source {
			row.Policy = new("src-ip")
		}
		if r.Symmetric {
			row.Options = map[string]string{"ecmp_symmetric_reply": "true"}
		}
		s.PutKeyed(fmt.Sprintf("%s/%s/%s/%t/%s", v.Name, r.Prefix, r.Nexthop, r.Source, r.Table), row, ovn.RouteOf(v.Name))
	}
	for _, p := range v.Policies {
		s.PutKeyed(fmt.Sprintf("%s/%d/%s", v.Name, p.Priority, p.Match),
			&ovn.Policy{Priority: p.Priority, Match: p.Match, Action: p.Action, Nexthops: p.Nexthops}, ovn.PolicyOf(v.Name))
	}
	for _, p := range v.Peers {
		s.Put(&ovn.LogicalRouterPort{
			Name: v.Name + "/peer/" + p.Vpc, Peer: new(p.Vpc + "/peer/" + v.Name), // a Subnet may have the peer's name
			MAC: peerMAC(v.Name, p.Vpc).String(), Networks: p.Addresses,
		}, ovn.InRouter(v.Name))
	}
	return s
}

// peerMAC is the MAC of a router's port to another Vpc.
func peerMAC(vpc, peer string) core.MAC {
	sum := sha256.Sum256([]byte(vpc + "\x00peer\x00" + peer))
	mac := core.MAC(sum[:6])
	mac[0] = mac[0]&^1 | 2 // of one station, given locally
	return mac
}

// ReadVpc reads what a user wrote. The error joins everything that is wrong,
// with the field's path; the Vpc is not to be used then. Of entries that contradict each
// other the first counts. undone are the paths of fields that are set and that nobody
// carries out.
func ReadVpc(name string, spec v1.VpcSpec) (v Vpc, undone []string, err error) {
	r := vpcReader{out: Vpc{Name: name}}
	for i, s := range spec.StaticRoutes {
		r.route(fmt.Sprintf("spec.staticRoutes[%d]", i), s)
	}
	for i, p := range spec.PolicyRoutes {
		r.policy(fmt.Sprintf("spec.policyRoutes[%d]", i), p)
	}
	for i, p := range spec.VpcPeerings {
		r.peer(fmt.Sprintf("spec.vpcPeerings[%d]", i), p)
	}
	r.leave("spec.enableExternal", spec.EnableExternal)
	r.leave("spec.extraExternalSubnets", len(spec.ExtraExternalSubnets) > 0)
	r.leave("spec.enableBfd", spec.EnableBfd)
	r.leave("spec.bfdPort", spec.BFDPort != nil && spec.BFDPort.Enabled)
	r.leave("spec.dynamicRouting", len(spec.DynamicRouting) > 0)
	r.out.Refused = errors.Join(r.against...)
	return r.out, r.undone, errors.Join(r.faults...)
}

type vpcReader struct {
	out     Vpc
	undone  []string
	faults  []error
	against []error // entries that contradict others
}

// contradicts tells that an entry is left out for one before it.
func (r *vpcReader) contradicts(path, what string) {
	r.against = append(r.against, fmt.Errorf("%s: contradicts an entry before it, which has the same %s: it is left out", path, what))
}

func (r *vpcReader) refuse(path, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

func (r *vpcReader) leave(path string, set bool) {
	if set {
		r.undone = append(r.undone, path)
	}
}

func (r *vpcReader) route(path string, s v1.StaticRoute) {
	r.leave(path+".bfdId", s.BfdID != "")
	symmetric := s.ECMPMode == "ecmp_symmetric_reply"
	r.leave(path+".ecmpMode", !symmetric && s.ECMPMode != "" && s.ECMPMode != "ecmp")
	out := Route{Source: s.Policy == v1.PolicySrc, Table: s.RouteTable, Symmetric: symmetric}
	var err error
	if out.Prefix, err = network(s.CIDR); err != nil {
		r.refuse(path+".cidr", "%q is neither an address nor a network in CIDR form", s.CIDR)
		return
	}
	out.Nexthop, err = netip.ParseAddr(s.NextHopIP)
	switch {
	case err != nil || out.Nexthop.Is4() != out.Prefix.Addr().Is4():
		r.refuse(path+".nextHopIP", "%q is not an address of the family of %s", s.NextHopIP, out.Prefix)
	case s.Policy != "" && s.Policy != v1.PolicySrc && s.Policy != v1.PolicyDst:
		r.refuse(path+".policy", "%q is neither %s nor %s", s.Policy, v1.PolicySrc, v1.PolicyDst)
	case slices.Contains(r.out.Routes, out): // it says the same again
	case slices.ContainsFunc(r.out.Routes, out.sameRow):
		r.contradicts(path+".ecmpMode", "cidr, nextHopIP, policy and routeTable")
	default:
		r.out.Routes = append(r.out.Routes, out)
	}
}

// network reads "10.0.0.0/8", or one address.
func network(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}

func (r *vpcReader) policy(path string, p v1.PolicyRoute) {
	out := Policy{Priority: p.Priority, Match: p.Match, Action: p.Action}
	switch {
	case p.Priority < 0 || p.Priority > 32767:
		r.refuse(path+".priority", "%d is not from 0 to 32767", p.Priority)
		return
	case p.Action != v1.RouteAllow && p.Action != v1.RouteDrop && p.Action != v1.RouteReroute:
		r.refuse(path+".action", "%q is none of %s, %s, %s", p.Action, v1.RouteAllow, v1.RouteDrop, v1.RouteReroute)
		return
	case p.Action == v1.RouteReroute:
		var wrong string
		if out.Nexthops, wrong = addresses(p.NextHopIP); wrong != "" {
			r.refuse(path+".nextHopIP", "%s is not an address", wrong)
			return
		}
	}
	if why := match.Fault(p.Match); why != "" {
		r.undone = append(r.undone, path+".match: "+why)
	}
	r.add(path, out)
}

// add takes a policy unless one before it says the same, or otherwise, of what it matches.
func (r *vpcReader) add(path string, out Policy) {
	i := slices.IndexFunc(r.out.Policies, func(o Policy) bool { return o.Priority == out.Priority && o.Match == out.Match })
	switch {
	case i < 0:
		r.out.Policies = append(r.out.Policies, out)
	case r.out.Policies[i].Action != out.Action || !slices.Equal(r.out.Policies[i].Nexthops, out.Nexthops):
		r.contradicts(path, "priority and match")
	}
}

// addresses reads a list with commas, and quotes what is none of it.
func addresses(list string) (out []string, wrong string) {
	for text := range strings.SplitSeq(list, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			return nil, strconv.Quote(text)
		}
		if !slices.Contains(out, a.String()) {
			out = append(out, a.String())
		}
	}
	return out, ""
}

func (r *vpcReader) peer(path string, p v1.VpcPeering) {
	if p.RemoteVpc == "" || p.RemoteVpc == r.out.Name {
		r.refuse(path+".remoteVpc", "%q is not another Vpc", p.RemoteVpc)
		return
	}
	out := Peer{Vpc: p.RemoteVpc}
	for text := range strings.SplitSeq(p.LocalConnectIP, ",") {
		a, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			r.refuse(path+".localConnectIP", "%q is not an address with a prefix length", text)
			return
		}
		if !slices.Contains(out.Addresses, a.String()) {
			out.Addresses = append(out.Addresses, a.String())
		}
	}
	i := slices.IndexFunc(r.out.Peers, func(o Peer) bool { return o.Vpc == out.Vpc })
	switch {
	case i < 0:
		r.out.Peers = append(r.out.Peers, out)
	case !slices.Equal(r.out.Peers[i].Addresses, out.Addresses):
		r.contradicts(path+".localConnectIP", "remoteVpc")
	}
}
