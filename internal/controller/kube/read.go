package kube

import (
	"cmp"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	kjson "sigs.k8s.io/json"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// keep has an informer keep what read makes of an object.
func keep[T any](read func(*unstructured.Unstructured) T) cache.TransformFunc {
	return func(o any) (any, error) {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return o, nil // it was read already
		}
		return &item[T]{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
			},
			value: read(u),
		}, nil
	}
}

// decode fills to with an object. Fields that it does not know are those of
// another version of the kind.
func decode(u *unstructured.Unstructured, to any) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(text, to)
}

func meta(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), Generation: u.GetGeneration(), CreationTimestamp: u.GetCreationTimestamp()}
}

// read keeps an object that cannot be read as one without a spec: such a Subnet or
// IPPool is refused, an IP reserves nothing, a Vlan has no network, a security group has
// no rule, of which nothing passes, and a QoSPolicy no rate.
func read[T any, P interface {
	*T
	metav1.ObjectMetaAccessor
}](u *unstructured.Unstructured) P {
	out := P(new(T))
	if decode(u, out) != nil {
		out = new(T)
	}
	*out.GetObjectMeta().(*metav1.ObjectMeta) = meta(u) // every kind of ours embeds it
	return out
}

func readIP(u *unstructured.Unstructured) *v1.IP {
	out := read[v1.IP](u)
	out.Labels, out.Annotations, out.Finalizers = u.GetLabels(), u.GetAnnotations(), u.GetFinalizers()
	return out
}

func readSet(u *unstructured.Unstructured) object.StatefulSet {
	s := object.StatefulSet{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), Ending: u.GetDeletionTimestamp() != nil, Replicas: 1}
	if n, has, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); has {
		s.Replicas = int(n)
	}
	first, _, _ := unstructured.NestedInt64(u.Object, "spec", "ordinals", "start")
	s.First = int(first)
	return s
}

func readNode(u *unstructured.Unstructured) object.Node {
	n := object.Node{Name: u.GetName(), UID: string(u.GetUID()), Annotations: u.GetAnnotations(), Zone: u.GetLabels()[corev1.LabelTopologyZone]}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses")
	for _, one := range all {
		m, _ := one.(map[string]any)
		text, _ := m["address"].(string)
		if ip, err := netip.ParseAddr(text); err == nil && m["type"] == string(corev1.NodeInternalIP) {
			n.IPs = append(n.IPs, ip.Unmap())
		}
	}
	return n
}

func readNamespace(u *unstructured.Unstructured) object.Namespace {
	return object.Namespace{Name: u.GetName(), Labels: u.GetLabels()}
}

func readNAD(u *unstructured.Unstructured) resolve.NAD {
	config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
	return resolve.NAD{Namespace: u.GetNamespace(), Name: u.GetName(), Annotations: u.GetAnnotations(), Config: config}
}

// readPolicy keeps a NetworkPolicy that cannot be read as one that lets nothing
// pass to or from any pod of its namespace.
func readPolicy(u *unstructured.Unstructured) object.NetworkPolicy {
	o := &networking.NetworkPolicy{}
	if decode(u, o) != nil {
		o = &networking.NetworkPolicy{Spec: networking.NetworkPolicySpec{PolicyTypes: []networking.PolicyType{networking.PolicyTypeIngress, networking.PolicyTypeEgress}}}
	}
	return object.NetworkPolicy{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), Spec: o.Spec}
}

// namedPorts are the ports of a pod's containers that have names.
func namedPorts(u *unstructured.Unstructured) (out []logical.ContainerPort) {
	containers, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "containers")
	sidecars, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "initContainers")
	for _, list := range []any{containers, sidecars} {
		all, _ := list.([]any)
		for _, c := range all {
			container, _ := c.(map[string]any)
			ports, _ := container["ports"].([]any)
			for _, p := range ports {
				port, _ := p.(map[string]any)
				name, _ := port["name"].(string)
				number, _ := port["containerPort"].(int64)
				protocol, _ := port["protocol"].(string)
				if name != "" && number != 0 {
					out = append(out, logical.ContainerPort{Name: name, Protocol: cmp.Or(protocol, "TCP"), Number: int(number)})
				}
			}
		}
	}
	return out
}

func readPod(u *unstructured.Unstructured) object.Pod {
	p := object.Pod{
		Pod:         core.Pod{Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID())},
		Annotations: u.GetAnnotations(), Labels: u.GetLabels(), Ports: namedPorts(u), Ending: u.GetDeletionTimestamp() != nil, Version: u.GetResourceVersion(),
	}
	if by := metav1.GetControllerOfNoCopy(u); by != nil {
		p.Owner = object.Owner{Kind: by.Kind, Name: by.Name, UID: string(by.UID)}
	}
	p.Node, _, _ = unstructured.NestedString(u.Object, "spec", "nodeName")
	p.Host, _, _ = unstructured.NestedBool(u.Object, "spec", "hostNetwork")
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	p.Done = phase == "Succeeded" || phase == "Failed"
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "podIPs")
	for _, one := range all {
		m, _ := one.(map[string]any)
		text, _ := m["ip"].(string)
		if ip, err := netip.ParseAddr(text); err == nil {
			p.IPs = append(p.IPs, ip.Unmap())
		}
	}
	return p
}
