package logical

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// ReadService reads a Service; an external name has no addresses.
func ReadService(o *corev1.Service) Service {
	s := Service{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)}
	if o.Spec.Type == corev1.ServiceTypeExternalName {
		return s
	}
	s.IPs = addrs(o.Spec.ClusterIPs) // "None" is no address
	for _, p := range o.Spec.Ports {
		s.Ports = append(s.Ports, ServicePort{Name: p.Name, Protocol: protocol(p.Protocol), Port: uint16(p.Port)}) //nolint:gosec // G115: others are refused before
	}
	if o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		s.Affinity = int(corev1.DefaultClientIPServiceAffinitySeconds)
		if c := o.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			s.Affinity = int(*c.ClientIP.TimeoutSeconds)
		}
	}
	s.Local = o.Spec.InternalTrafficPolicy != nil && *o.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
	return s
}

func protocol(p corev1.Protocol) string {
	if p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(p)
}

// addrs leaves out what is no address.
func addrs(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// ReadEndpoints reads an EndpointSlice.
func ReadEndpoints(o *discoveryv1.EndpointSlice) Endpoints {
	out := Endpoints{Namespace: o.Namespace, Service: o.Labels[discoveryv1.LabelServiceName]}
	for _, p := range o.Ports {
		if p.Port == nil {
			continue
		}
		port := ServicePort{Protocol: string(corev1.ProtocolTCP), Port: uint16(*p.Port)} //nolint:gosec // G115: others are refused before
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Protocol != nil {
			port.Protocol = protocol(*p.Protocol)
		}
		out.Ports = append(out.Ports, port)
	}
	value := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	is := func(b *bool, unsaid bool) bool { return b == nil && unsaid || b != nil && *b }
	for _, e := range o.Endpoints {
		ready := is(e.Conditions.Ready, true)
		one := Endpoint{
			IPs: addrs(e.Addresses), Node: value(e.NodeName), Ready: ready,
			Last: is(e.Conditions.Serving, ready) && is(e.Conditions.Terminating, false),
		}
		one.hint(e.Hints)
		out.All = append(out.All, one)
	}
	return out
}

// hint reads for whom an endpoint is.
func (e *Endpoint) hint(hints *discoveryv1.EndpointHints) {
	if hints == nil {
		return
	}
	for _, n := range hints.ForNodes {
		e.ForNodes = append(e.ForNodes, n.Name)
	}
	for _, z := range hints.ForZones {
		e.ForZones = append(e.ForZones, z.Name)
	}
}
