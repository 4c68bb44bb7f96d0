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

// Services with internalTrafficPolicy: Local. One logical switch spans all nodes, and
// its load balancers with it; where a packet goes must follow from the node that it is
// on. So such a load balancer has names in the place of addresses, and each chassis is
// told what they stand for there.

// LocalOwner owns what the names stand for.
const LocalOwner = "local"

// nowhere are backends that routers drop: Kubernetes has a client wait, not refused,
// where no endpoint is on its node.
var nowhere = map[bool]string{true: "127.0.0.1:9", false: "[::1]:9"}

// Locals is what the names in load balancers stand for on each chassis. Of a chassis
// there are the nodes that say that it is theirs: one, none where the node was deleted,
// or two where a machine got another name. Of these Services those with another policy
// do not count; of one, from gives the endpoints. Each chassis has a row, also with nothing in it: ovn-controller 23.03 ends by an
// assertion when its own row goes with something in it, and comes again.
func Locals(services []Service, from func(namespace, name string) []Endpoints, chassis map[string][]string) *ovn.Set {
	vars := map[string]map[string]string{}
	for name := range chassis {
		vars[name] = map[string]string{}
	}
	for _, s := range services {
		if !s.Local {
			continue
		}
		by := byNode(from(s.Namespace, s.Name))
		for name, nodes := range chassis {
			if len(nodes) == 0 {
				continue
			}
			var here []Endpoints
			for _, node := range slices.Sorted(slices.Values(nodes)) {
				here = append(here, by[node]...)
			}
			s.local(func(ip netip.Addr, p ServicePort, addr, to string) {
				vars[name][addr], vars[name][to] = ip.String(), cmp.Or(backends(p, ip.Is4(), here), nowhere[ip.Is4()])
			})
		}
	}
	set := &ovn.Set{Owner: LocalOwner}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		set.PutKeyed(name, &ovn.TemplateVars{Chassis: name, Variables: vars[name]})
	}
	return set
}

// byNode splits endpoints by the nodes that they are on.
func byNode(all []Endpoints) map[string][]Endpoints {
	out := map[string][]Endpoints{}
	for _, slice := range all {
		parts := map[string][]Endpoint{}
		for _, e := range slice.All {
			parts[e.Node] = append(parts[e.Node], e)
		}
		for node, part := range parts {
			slice.All = part
			out[node] = append(out[node], slice)
		}
	}
	return out
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
