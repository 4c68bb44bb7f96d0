package kube

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/fairlead/fairlead/internal/controller"
	"github.com/fairlead/fairlead/internal/controller/logical"
)

// kindSlice are the EndpointSlices, of which the controller hears as of their
// Services.
const kindSlice controller.Kind = "EndpointSlice"

// byService is the index of EndpointSlices by Service.
const byService = "service"

// readService keeps a Service that cannot be read as one without addresses.
func readService(u *unstructured.Unstructured) logical.Service {
	s := logical.Service{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID())}
	var o corev1.Service
	if decode(u, &o) != nil || o.Spec.Type == corev1.ServiceTypeExternalName {
		return s
	}
	s.IPs = addresses(o.Spec.ClusterIPs) // "None" is no address
	for _, p := range o.Spec.Ports {
		s.Ports = append(s.Ports, logical.ServicePort{Name: p.Name, Protocol: protocol(p.Protocol), Port: uint16(p.Port)}) //nolint:gosec // G115: the API server refuses others
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

func addresses(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// readEndpoints keeps an EndpointSlice that cannot be read as one without
// endpoints.
func readEndpoints(u *unstructured.Unstructured) logical.Endpoints {
	out := logical.Endpoints{Namespace: u.GetNamespace(), Service: u.GetLabels()[discoveryv1.LabelServiceName]}
	var o discoveryv1.EndpointSlice
	if decode(u, &o) != nil {
		return out
	}
	for _, p := range o.Ports {
		if p.Port == nil {
			continue
		}
		port := logical.ServicePort{Protocol: string(corev1.ProtocolTCP), Port: uint16(*p.Port)} //nolint:gosec // G115: the API server refuses others
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Protocol != nil {
			port.Protocol = protocol(*p.Protocol)
		}
		out.Ports = append(out.Ports, port)
	}
	is := func(b *bool, unsaid bool) bool { return b == nil && unsaid || b != nil && *b }
	for _, e := range o.Endpoints {
		ready := is(e.Conditions.Ready, true)
		out.All = append(out.All, logical.Endpoint{
			IPs: addresses(e.Addresses), Ready: ready,
			Last: is(e.Conditions.Serving, ready) && is(e.Conditions.Terminating, false),
		})
	}
	return out
}

// endpoints implements controller.Readers.Endpoints.
func (c *Cluster) endpoints(namespace, service string) (out []logical.Endpoints) {
	found, err := c.all[kindSlice].GetIndexer().ByIndex(byService, cache.NewObjectName(namespace, service).String())
	if err != nil {
		return nil // there is no such index: New makes it
	}
	for _, o := range found {
		if i, ok := o.(*item[logical.Endpoints]); ok {
			out = append(out, i.value)
		}
	}
	return out
}

// indexed is byService's value of an EndpointSlice.
func indexed(o any) ([]string, error) {
	i, ok := o.(*item[logical.Endpoints])
	if !ok || i.value.Service == "" {
		return nil, nil
	}
	return []string{cache.NewObjectName(i.value.Namespace, i.value.Service).String()}, nil
}

// serviceOf is the Service of an EndpointSlice; false for another object.
func serviceOf(o any) (controller.Key, bool) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	i, ok := o.(*item[logical.Endpoints])
	if !ok {
		return controller.Key{}, false
	}
	return controller.Key{Kind: controller.KindService, Namespace: i.value.Namespace, Name: i.value.Service}, true
}
