package logical

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Services whose clients reach other endpoints on one node than on another. One
// logical switch spans all nodes, and its load balancers with it; where a packet goes
// must follow from the node that it is on. So such a load balancer has names in the
// place of addresses, and each chassis is told what they stand for there.

// LocalOwner owns what the names stand for.
const LocalOwner = "local"

// nowhere are backends that routers drop: Kubernetes has a client wait, not refused,
// where no endpoint is on its node.
var nowhere = map[bool]string{true: "127.0.0.1:9", false: "[::1]:9"}

// Place is where a client is.
type Place struct{ Node, Zone string }

// PerNode tells that it matters on which node a client is, with these endpoints.
func (s Service) PerNode(from []Endpoints) bool {
	return !s.Even && (s.Local || s.Affinity == 0 && hinted(from))
}

// hinted tells that in a family all who are ready say for whom they are: for a part of
// them the hints do not count, as for kube-proxy.
func hinted(from []Endpoints) bool {
	for _, four := range []bool{true, false} {
		if part := ofFamily(from, four); eachReady(part, forNodes) || eachReady(part, forZones) {
			return true
		}
	}
	return false
}

// ofFamily are the endpoints with addresses of a family: each has hints of its own.
func ofFamily(from []Endpoints, four bool) []Endpoints {
	return only(from, func(e Endpoint) bool {
		return slices.ContainsFunc(e.IPs, func(ip netip.Addr) bool { return ip.Is4() == four })
	})
}

func forNodes(e Endpoint) []string { return e.ForNodes }
func forZones(e Endpoint) []string { return e.ForZones }

// eachReady tells that there are endpoints that are ready, and all have hints.
func eachReady(from []Endpoints, hints func(Endpoint) []string) bool {
	some := false
	for _, slice := range from {
		for _, e := range slice.All {
			if e.Ready && len(hints(e)) == 0 {
				return false
			}
			some = some || e.Ready
		}
	}
	return some
}

// near are those endpoints of a family that a client at a place reaches: those of its
// node; or those that are for its node, else for its zone, else all.
func (s Service) near(from []Endpoints, at Place) []Endpoints {
	if s.Local {
		return only(from, func(e Endpoint) bool { return e.Node == at.Node })
	}
	for _, by := range []struct {
		where string
		hints func(Endpoint) []string
	}{{at.Node, forNodes}, {at.Zone, forZones}} {
		some := only(from, func(e Endpoint) bool { return e.Ready && slices.Contains(by.hints(e), by.where) })
		if by.where != "" && len(some) > 0 && eachReady(from, by.hints) {
			return some
		}
	}
	return from
}

// only are the endpoints that are so, in the slices that have any.
func only(from []Endpoints, so func(Endpoint) bool) (out []Endpoints) {
	for _, slice := range from {
		slice.All = slices.DeleteFunc(slices.Clone(slice.All), func(e Endpoint) bool { return !so(e) })
		if len(slice.All) > 0 {
			out = append(out, slice)
		}
	}
	return out
}

// Locals is what the names in load balancers stand for on each chassis. Of a chassis
// there are the nodes that say that it is theirs: one, none where the node was deleted,
// or two where a machine got another name. Of these Services only those PerNode count;
// of one, from gives the endpoints. Each chassis has a row, also with nothing in it:
// ovn-controller 23.03 ends by an assertion when its own row goes with something in
// it, and comes again.
func Locals(services []Service, from func(namespace, name string) []Endpoints, chassis map[string][]Place) *ovn.Set {
	set, vars := &ovn.Set{Owner: LocalOwner}, variables(services, from, chassis)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		set.PutKeyed(name, &ovn.TemplateVars{Chassis: name, Variables: vars[name]})
	}
	return set
}

// variables are the names and what they stand for, by chassis.
func variables(services []Service, from func(namespace, name string) []Endpoints, chassis map[string][]Place) map[string]map[string]string {
	vars := map[string]map[string]string{}
	for name := range chassis {
		vars[name] = map[string]string{}
	}
	for _, s := range services {
		all := from(s.Namespace, s.Name)
		if !s.PerNode(all) {
			continue
		}
		of := map[bool][]Endpoints{true: ofFamily(all, true), false: ofFamily(all, false)}
		for name, places := range chassis {
			if len(places) == 0 {
				continue
			}
			here := map[bool][]Endpoints{}
			for _, at := range places {
				for four, part := range of {
					here[four] = append(here[four], s.near(part, at)...)
				}
			}
			s.local(func(ip netip.Addr, p ServicePort, addr, to string) {
				vars[name][addr], vars[name][to] = ip.String(), cmp.Or(backends(p, ip.Is4(), here[ip.Is4()]), nowhere[ip.Is4()])
			})
		}
	}
	return vars
}

// local gives each address and port of a Service, with the names that stand for the
// address and its endpoints.
func (s Service) local(do func(ip netip.Addr, p ServicePort, addr, to string)) {
	prefix := fmt.Sprintf("fl_%x", sha256.Sum256([]byte(s.Namespace+"/"+s.Name)))[:19]
	for _, p := range s.Ports {
		for i, ip := range s.IPs {
			do(ip, p, fmt.Sprintf("%s_%d", prefix, i), fmt.Sprintf("%s_%d_%s_%d", prefix, i, strings.ToLower(p.Protocol), p.Port))
		}
	}
}

// localBalancers are its load balancers: OVN wants one for each family too.
func localBalancers(s Service) (out []*ovn.LoadBalancer) {
	for _, protocol := range protocols {
		for _, family := range []string{v1.FamilyIPv4, v1.FamilyIPv6} {
			vips := map[string]string{}
			s.local(func(ip netip.Addr, p ServicePort, addr, to string) {
				if p.Protocol == protocol && ip.Is4() == (family == v1.FamilyIPv4) {
					vips[fmt.Sprintf("^%s:%d", addr, p.Port)] = "^" + to
				}
			})
			if len(vips) == 0 {
				continue
			}
			row := balancer(s, protocol)
			row.Name += "/" + family
			row.Vips, row.Options["template"], row.Options["address-family"] = vips, "true", family
			out = append(out, row)
		}
	}
	return out
}
