package local

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/source/declare"
	"github.com/fairlead/fairlead/internal/source/folder"
)

// wholeMakers are the makers where OVN carries out what is declared: they keep
// what a controller needs, and know more kinds.
func wholeMakers() map[string]maker {
	all := makers()
	all[folder.Pod] = func(o *folder.Object) (any, []*folder.Fault) {
		v, faults := makePod(o)
		return withWhole{v, readPod(o)}, faults
	}
	all[folder.NetworkAttachmentDefinition] = func(o *folder.Object) (any, []*folder.Fault) {
		v, faults := makeNAD(o)
		return withWhole{v, v}, faults
	}
	all[folder.Subnet] = makeRouted
	all[folder.Namespace] = plain[corev1.Namespace]
	all[folder.NetworkPolicy] = plain[networking.NetworkPolicy]
	all[folder.Vpc] = plain[v1.Vpc]
	all[folder.IPPool] = plain[v1.IPPool]
	all[folder.SecurityGroup] = plain[v1.SecurityGroup]
	all[folder.Service] = makeService
	all[folder.EndpointSlice] = makeSlice
	return all
}

// plain keeps an object whose fields are all known.
func plain[T any](o *folder.Object) (any, []*folder.Fault) {
	out := new(T)
	if faults := decode(o, out); faults != nil {
		return nil, faults
	}
	if m, ok := any(out).(metav1.Object); ok {
		m.SetNamespace(o.ID.Namespace)
	}
	return withWhole{whole: out}, nil
}

// makeRouted is makeSubnet where there is OVN.
func makeRouted(o *folder.Object) (any, []*folder.Fault) {
	var s v1.Subnet
	if faults := decode(o, &s); faults != nil {
		return nil, faults
	}
	out, faults := readSubnet(o, s)
	if s.Spec.Vlan != "" {
		faults = append(faults, declare.Fault{Path: "spec.vlan", Reason: "OVN does not carry it out here yet: leave it out"})
	}
	return withWhole{out, &s}, place(o, faults)
}

// podWhole is what a controller needs of a Pod beside its annotations.
type podWhole struct {
	labels map[string]string
	ports  []corev1.ContainerPort // that have names
}

// readPod leaves out what it cannot read: what a container runs is not ours to
// judge.
func readPod(o *folder.Object) podWhole {
	var p pod
	_, _ = o.Decode(&p) // makePod tells what is wrong
	type container struct {
		Ports []corev1.ContainerPort `json:"ports"`
	}
	var rest struct {
		Spec struct {
			Containers     []container `json:"containers"`
			InitContainers []container `json:"initContainers"`
		} `json:"spec"`
	}
	_, _ = o.Decode(&rest)
	out := podWhole{labels: p.Labels}
	for _, c := range append(rest.Spec.Containers, rest.Spec.InitContainers...) {
		for _, port := range c.Ports {
			if port.Name != "" && port.ContainerPort > 0 && port.ContainerPort < 1<<16 {
				out.ports = append(out.ports, port)
			}
		}
	}
	return out
}

// makeService refuses what nobody on one machine carries out, and says what an API
// server would choose.
func makeService(o *folder.Object) (any, []*folder.Fault) {
	v, faults := plain[corev1.Service](o)
	if faults != nil {
		return nil, faults
	}
	kept, _ := v.(withWhole)
	s, _ := kept.whole.(*corev1.Service)
	faults = serviceKind(o, s)
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return kept, faults
	}
	return kept, append(append(faults, serviceAddresses(o, s)...), servicePorts(o, s)...)
}

// serviceAddresses fills in clusterIPs.
func serviceAddresses(o *folder.Object, s *corev1.Service) (faults []*folder.Fault) {
	switch {
	case s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) == 0:
		return []*folder.Fault{o.Faultf("spec", "spec.clusterIP is missing: nobody chooses one here; give it an address that no Subnet has, or None")}
	case len(s.Spec.ClusterIPs) == 0:
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	case s.Spec.ClusterIP != "" && s.Spec.ClusterIP != s.Spec.ClusterIPs[0]:
		faults = append(faults, o.Faultf("spec.clusterIP", "spec.clusterIP: %q is not the first one of clusterIPs", s.Spec.ClusterIP))
	}
	for i, text := range s.Spec.ClusterIPs {
		if _, err := netip.ParseAddr(text); err != nil {
			faults = append(faults, o.Faultf(fmt.Sprintf("spec.clusterIPs[%d]", i), "spec.clusterIP: %q is no address", text))
		}
	}
	return faults
}

// servicePorts fills in where pods are reached.
func servicePorts(o *folder.Object, s *corev1.Service) (faults []*folder.Fault) {
	if len(s.Spec.Ports) == 0 {
		faults = append(faults, o.Faultf("spec", "spec.ports is missing"))
	}
	names := map[string]bool{}
	for i := range s.Spec.Ports {
		p, path := &s.Spec.Ports[i], fmt.Sprintf("spec.ports[%d]", i)
		if names[p.Name] || p.Name == "" && len(s.Spec.Ports) > 1 {
			faults = append(faults, o.Faultf(path, "%s.name: of several ports each has a name of its own, not %q", path, p.Name))
		}
		names[p.Name] = true
		if p.TargetPort == (intstr.IntOrString{}) {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
		faults = append(faults, portFaults(o, path, p.Port, p.Protocol)...)
		if p.TargetPort.Type == intstr.Int {
			faults = append(faults, portFaults(o, path+".targetPort", p.TargetPort.IntVal, "")...)
		}
	}
	return faults
}

// serviceKind refuses what kube-proxy and a cloud do in a cluster.
func serviceKind(o *folder.Object, s *corev1.Service) (faults []*folder.Fault) {
	refuse := func(path, reason string) {
		faults = append(faults, o.Faultf(path, "%s: %s", path, reason))
	}
	switch s.Spec.Type {
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName:
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		refuse("spec.type", string(s.Spec.Type)+" needs kube-proxy; here pods reach a Service by its clusterIP, and the world a pod by its hostPort")
	default:
		refuse("spec.type", fmt.Sprintf("%q is none of ClusterIP, ExternalName", s.Spec.Type))
	}
	if len(s.Spec.ExternalIPs) > 0 {
		refuse("spec.externalIPs", "needs kube-proxy; leave it out")
	}
	if s.Spec.PublishNotReadyAddresses {
		refuse("spec.publishNotReadyAddresses", "means nothing here: a pod is an endpoint as soon as it has its address")
	}
	return faults
}

// portFaults is about a port and its protocol.
func portFaults(o *folder.Object, path string, port int32, protocol corev1.Protocol) (faults []*folder.Fault) {
	if port < 1 || port > 65535 {
		faults = append(faults, o.Faultf(path, "%s: port %d is not from 1 to 65535", path, port))
	}
	switch protocol {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
	default:
		faults = append(faults, o.Faultf(path, "%s.protocol: %q is none of TCP, UDP, SCTP", path, protocol))
	}
	return faults
}

// makeSlice wants to know whose endpoints an EndpointSlice has.
func makeSlice(o *folder.Object) (any, []*folder.Fault) {
	v, faults := plain[discoveryv1.EndpointSlice](o)
	if faults != nil {
		return nil, faults
	}
	kept, _ := v.(withWhole)
	s, _ := kept.whole.(*discoveryv1.EndpointSlice)
	if s.Labels[discoveryv1.LabelServiceName] == "" {
		faults = append(faults, o.Faultf("metadata", "label %s is missing: it says whose endpoints these are", discoveryv1.LabelServiceName))
	}
	for i, p := range s.Ports {
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if p.Port != nil {
			faults = append(faults, portFaults(o, fmt.Sprintf("ports[%d]", i), *p.Port, protocol)...)
		}
	}
	for i, e := range s.Endpoints {
		for _, text := range e.Addresses {
			if _, err := netip.ParseAddr(text); err != nil {
				path := fmt.Sprintf("endpoints[%d]", i)
				faults = append(faults, o.Faultf(path, "%s: %q is no address", path, text))
			}
		}
	}
	return kept, faults
}
