package logical

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/ovn"
)

// Service is what OVN needs of a Service.
type Service struct {
	Namespace, Name, UID string
	IPs                  []netip.Addr // cluster IPs; none for headless and external names
	Ports                []ServicePort
	// Affinity is for how many seconds a client keeps its endpoint; 0 is none.
	Affinity int
	// Local has a client reach the endpoints of its own node alone.
	Local bool
	// Even has every client reach all endpoints, whatever else is asked for.
	Even bool
}

// ServicePort is a port of a Service.
type ServicePort struct {
	Name     string
	Protocol string // TCP, UDP, SCTP
	Port     uint16
}

// Endpoints are the endpoints of one EndpointSlice.
type Endpoints struct {
	Namespace, Service string
	Ports              []ServicePort // those of the pods
	All                []Endpoint
}

// Endpoint is where a pod is reached.
type Endpoint struct {
	IPs   []netip.Addr
	Node  string // "" where nobody says it
	Ready bool
	// Last is one that still serves while it is being ended: it counts where no
	// other is ready.
	Last bool
	// ForNodes and ForZones are hints: the clients for whom it is (trafficDistribution).
	ForNodes, ForZones []string
}

// mostAffinity is how many seconds of affinity OVN knows (ovn-nb(5),
// affinity_timeout).
const mostAffinity = 65535

// Hairpins are the senders that a pod sees when it reaches itself by a Service:
// addresses that nobody else has, so that rules can let them in.
func Hairpins() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{169, 254, 96, 1}), netip.MustParseAddr("fd00:a9fe:96::1")}
}

// keyService is the external id of a load balancer with its Service.
const keyService = "service"

// ServiceOwner owns a Service's rows.
func ServiceOwner(namespace, name string) string { return "service/" + namespace + "/" + name }

// Balance is a Service's rows: a load balancer for each protocol. The Set of
// the default Vpc must be there before.
func Balance(s Service, from []Endpoints) *ovn.Set {
	set := &ovn.Set{Owner: ServiceOwner(s.Namespace, s.Name)}
	for _, row := range balancers(s, from) {
		set.Put(row, ovn.InBalancers(v1.DefaultVpc))
	}
	return set
}

// balancers are a Service's load balancers, in the order of their protocols.
func balancers(s Service, from []Endpoints) (out []*ovn.LoadBalancer) {
	if s.PerNode(from) {
		return localBalancers(s)
	}
	vips := map[string]map[string]string{}
	for _, p := range s.Ports {
		for _, ip := range s.IPs {
			if vips[p.Protocol] == nil {
				vips[p.Protocol] = map[string]string{}
			}
			vips[p.Protocol][netip.AddrPortFrom(ip, p.Port).String()] = backends(p, ip.Is4(), from)
		}
	}
	for _, protocol := range protocols {
		if vips[protocol] == nil {
			continue
		}
		row := balancer(s, protocol)
		row.Vips = vips[protocol]
		// Who asks an address without endpoints is refused, and does not wait.
		row.Options["reject"] = "true"
		if s.Affinity > 0 {
			// No selection_fields: by ip_src all clients of IPv6 would have one endpoint.
			row.Options["affinity_timeout"] = strconv.Itoa(min(s.Affinity, mostAffinity))
		}
		out = append(out, row)
	}
	return out
}

// protocols are those of Services.
var protocols = []string{"TCP", "UDP", "SCTP"}

// balancer is a Service's load balancer of one protocol, without addresses.
func balancer(s Service, protocol string) *ovn.LoadBalancer {
	name := strings.ToLower(protocol)
	row := &ovn.LoadBalancer{
		Name: s.Namespace + "/" + s.Name + "/" + name, Protocol: new(name),
		Options:     map[string]string{"hairpin_snat_ip": Hairpins()[0].String() + " " + Hairpins()[1].String()},
		ExternalIDs: map[string]string{keyService: s.Namespace + "/" + s.Name},
	}
	if protocol == "UDP" {
		// Nobody closes a connection of UDP: a client would send to an endpoint that
		// is gone for as long as it sends.
		row.Options["ct_flush"] = "true"
	}
	return row
}

// backends are the endpoints of a port in one family, as OVN writes them:
// those that are ready, else those that serve for the last time.
func backends(p ServicePort, four bool, from []Endpoints) string {
	var ready, last []netip.AddrPort
	for _, slice := range from {
		for _, to := range slice.Ports {
			if to.Name != p.Name || to.Protocol != p.Protocol {
				continue
			}
			for _, e := range slice.All {
				for _, ip := range e.IPs {
					at := netip.AddrPortFrom(ip, to.Port)
					switch {
					case ip.Is4() != four:
					case e.Ready:
						ready = append(ready, at)
					case e.Last:
						last = append(last, at)
					}
				}
			}
		}
	}
	if len(ready) == 0 {
		ready = last
	}
	slices.SortFunc(ready, func(a, b netip.AddrPort) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Port(), b.Port()))
	})
	var out []string
	for _, at := range slices.Compact(ready) {
		out = append(out, at.String())
	}
	return strings.Join(out, ",")
}

// Undone are the fields of a Service that are set and that nobody carries out,
// with what happens instead. old is why names in load balancers are not known to OVN;
// nil where they are.
func (s Service) Undone(from []Endpoints, old *ovn.UnsupportedError) (out []string) {
	if len(s.IPs) == 0 {
		return nil
	}
	const local, hints = "spec.internalTrafficPolicy: Local", "hints of EndpointSlices, as spec.trafficDistribution makes them"
	perNode := map[bool]string{true: local, false: hints}[s.Local]
	switch {
	case !s.Local && !hinted(from):
	case old != nil:
		out = append(out, perNode+" ("+old.Error()+")")
	case s.Affinity == 0:
	case s.Local:
		out = append(out, "spec.sessionAffinity: ClientIP (OVN has none with "+local+")")
	default:
		out = append(out, hints+" (OVN has no spec.sessionAffinity with them)")
	}
	if (!s.Local || old != nil) && s.Affinity > mostAffinity {
		out = append(out, fmt.Sprintf("spec.sessionAffinityConfig.clientIP.timeoutSeconds: %d (OVN has at most %d)", s.Affinity, mostAffinity))
	}
	return out
}
