package logical

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/underlay"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/declare"
)

// ReadSubnet reads an object, and refuses what would be a promise that nobody
// keeps.
func ReadSubnet(o *v1.Subnet) (declare.Subnet, []declare.Fault) {
	d, faults := declare.ReadSubnet(o.Name, o.Spec)
	faults = append(faults, declare.ReadNotes(&d.Subnet, o.Annotations)...)
	if o.Spec.Vlan != "" && !v1.Routed(d.Provider) {
		faults = append(faults, declare.Fault{Path: "spec.vlan", Reason: "OVN does not carry provider " + d.Provider + ": leave it out"})
	}
	return d, faults
}

// LeaseNotes are the annotations that pods and nodes have alike. Of a Subnet of
// both families they name only those of the lease.
func LeaseNotes(at string, net Subnet, l core.Lease) map[string]string {
	var cidrs []netip.Prefix
	var gateways []netip.Addr
	for i, c := range net.CIDRs {
		if slices.ContainsFunc(l.IPs, func(ip netip.Addr) bool { return ip.Is4() == c.Addr().Is4() }) {
			cidrs, gateways = append(cidrs, c), append(gateways, net.Routers()[i])
		}
	}
	out := map[string]string{
		at + v1.FieldIP: Join(l.IPs), at + v1.FieldCIDR: Join(cidrs),
		at + v1.FieldGateway: Join(gateways), at + v1.FieldSubnet: net.Name, at + v1.FieldAllocated: "true",
	}
	if len(l.MAC) > 0 {
		out[at+v1.FieldMAC] = l.MAC.String()
	}
	return out
}

// fieldRouter is an annotation that only a controller writes or reads.
const fieldRouter = "logical_router"

// RoutedNotes are LeaseNotes and those that say that OVN carries the interface.
func RoutedNotes(at string, net Subnet, l core.Lease, nicType string) map[string]string {
	out := LeaseNotes(at, net, l)
	out[at+v1.FieldNICType], out[at+v1.FieldRouted] = nicType, "true"
	if net.OnRouter() {
		out[at+fieldRouter] = net.Vpc
	}
	maps.Copy(out, underlay.Notes(at, net.Subnet))
	return out
}

// Told are the prefixes of a pod's annotations that tell it addresses, sorted.
func Told(notes map[string]string) (prefixes []string) {
	for key, value := range notes {
		if prefix, ok := strings.CutSuffix(key, v1.ProviderSuffix+v1.FieldAllocated); ok && value == "true" {
			prefixes = append(prefixes, prefix)
		}
	}
	slices.Sort(prefixes)
	return prefixes
}

// Stale are the keys of all that tells a pod of an interface which has a lease. Addresses
// and a MAC that are others than the lease's are not told: the pod asks for them.
func Stale(notes map[string]string, prefix string, l core.Lease) (keys []string) {
	at := prefix + v1.ProviderSuffix
	for _, field := range []string{v1.FieldAllocated, v1.FieldRouted, v1.FieldIP, v1.FieldMAC, v1.FieldCIDR, v1.FieldGateway, v1.FieldSubnet, v1.FieldNICType, v1.FieldMachine, v1.FieldDeclared,
		fieldRouter, v1.FieldVLAN, v1.FieldProviderNetwork, v1.FieldNetworkType} {
		value, has := notes[at+field]
		asked := field == v1.FieldIP && len(l.IPs) > 0 && value != Join(l.IPs) || field == v1.FieldMAC && len(l.MAC) > 0 && value != l.MAC.String()
		if has && !asked {
			keys = append(keys, at+field)
		}
	}
	return keys
}

// Join writes addresses as annotations have them.
func Join[T fmt.Stringer](list []T) string {
	text := make([]string, len(list))
	for i, v := range list {
		text[i] = v.String()
	}
	return strings.Join(text, ",")
}

// Spell writes a lease's addresses into an object.
func Spell(s *v1.IPSpec, l core.Lease) {
	s.Subnet, s.IPAddress = l.Subnet, Join(l.IPs)
	if len(l.MAC) > 0 {
		s.MacAddress = l.MAC.String()
	}
	four, six := Families(l.IPs)
	s.V4IPAddress, s.V6IPAddress = cmp.Or(four, s.V4IPAddress), cmp.Or(six, s.V6IPAddress)
}

// Families are the addresses of a lease by their family, "" for none.
func Families(ips []netip.Addr) (four, six string) {
	for _, ip := range ips {
		if ip.Is4() {
			four = ip.String()
		} else {
			six = ip.String()
		}
	}
	return four, six
}

// Addrs are the addresses of a list; what is none is left out.
func Addrs(list, sep string) []netip.Addr { return addrs(strings.Split(list, sep)) }

// Prefix is the prefix of a logical port's annotations: what follows the pod in
// its name, "ovn" for nothing (sdn.md, 2).
func Prefix(pod core.Pod, port string) string {
	rest, ok := strings.CutPrefix(port, pod.Name+"."+pod.Namespace)
	if rest = strings.TrimPrefix(rest, "."); !ok || rest == "" {
		return v1.DefaultProvider
	}
	return rest
}
