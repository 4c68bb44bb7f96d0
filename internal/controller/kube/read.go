package kube

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/networks"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster/share"
)

// decode fills to with an object.
func decode(u *unstructured.Unstructured, to any) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return object.Decode(text, to)
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

// notes are the annotations of a Subnet that are read of it (declare.ReadNotes); all
// others, of which kubectl's copy of the object is one, take memory for nothing.
var notes = []string{v1.AnnAllocate, v1.AnnPortSecurity, v1.AnnShown}

func readSubnet(u *unstructured.Unstructured) *v1.Subnet {
	out := read[v1.Subnet](u)
	out.Annotations = kept(u.GetAnnotations(), notes)
	return out
}

// kept are some of an object's annotations, nil for none.
func kept(all map[string]string, keys []string) (out map[string]string) {
	for _, key := range keys {
		if value, has := all[key]; has {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

func readIP(u *unstructured.Unstructured) *v1.IP {
	out := read[v1.IP](u)
	out.Labels, out.Annotations, out.Finalizers = u.GetLabels(), u.GetAnnotations(), u.GetFinalizers()
	return out
}

func readSet(o *appsv1.StatefulSet) object.StatefulSet {
	s := object.StatefulSet{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Ending: o.DeletionTimestamp != nil, Replicas: 1}
	if o.Spec.Replicas != nil {
		s.Replicas = int(*o.Spec.Replicas)
	}
	if o.Spec.Ordinals != nil {
		s.First = int(o.Spec.Ordinals.Start)
	}
	return s
}

func readNode(o *corev1.Node) object.Node {
	n := object.Node{Name: o.Name, UID: string(o.UID), Annotations: o.Annotations, Labels: o.Labels, Down: down(o), Zone: o.Labels[corev1.LabelTopologyZone], Uplinks: map[string]string{}}
	for key, v := range o.Labels {
		if strings.Contains(key, ".provider-network.kubernetes.io/") {
			n.Uplinks[key] = v
		}
	}
	for _, a := range o.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			n.IPs = append(n.IPs, ip.Unmap())
		}
	}
	claims := share.ReadNode(o.Annotations)
	n.Holds, n.Gives = claims.Claims.Holds()
	if claims.Fault != nil {
		n.Gives = []string{"(" + claims.Fault.Error() + ")"} // it may be any
	}
	n.Unled = o.Annotations[v1.AnnChassis] == "" && slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == share.Condition })
	return n
}

// down is the condition of a node for which it should be no gateway: its kubelet is not
// ready, or its agent says that its network does not work.
func down(o *corev1.Node) string {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue || c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("its condition %s is %s", c.Type, c.Status)
		}
	}
	return ""
}

func readNamespace(o *corev1.Namespace) object.Namespace {
	return object.Namespace{Name: o.Name, UID: string(o.UID), Labels: o.Labels, Annotations: kept(o.Annotations, networks.SpaceFields())}
}

func readNAD(u *unstructured.Unstructured) resolve.NAD {
	config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
	return resolve.NAD{Namespace: u.GetNamespace(), Name: u.GetName(), Annotations: u.GetAnnotations(), Config: config}
}

func readPolicy(o *networking.NetworkPolicy) object.NetworkPolicy {
	return object.NetworkPolicy{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), Spec: o.Spec}
}

// namedPorts are the ports of a pod's containers that have names.
func namedPorts(o *corev1.Pod) (out []logical.ContainerPort) {
	for _, list := range [][]corev1.Container{o.Spec.Containers, o.Spec.InitContainers} {
		for _, c := range list {
			for _, p := range c.Ports {
				if p.Name != "" && p.ContainerPort != 0 {
					out = append(out, logical.ContainerPort{Name: p.Name, Protocol: cmp.Or(string(p.Protocol), "TCP"), Number: int(p.ContainerPort)})
				}
			}
		}
	}
	return out
}

func readPod(o *corev1.Pod) object.Pod {
	p := object.Pod{
		Pod:         core.Pod{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID)},
		Annotations: o.Annotations, Labels: o.Labels, Ports: namedPorts(o), Ending: o.DeletionTimestamp != nil, Version: o.ResourceVersion,
		Node: o.Spec.NodeName, Host: o.Spec.HostNetwork, Done: ended(o), Born: o.CreationTimestamp.Time,
	}
	if by := metav1.GetControllerOfNoCopy(o); by != nil {
		p.Owner = object.Owner{Kind: by.Kind, Name: by.Name, UID: string(by.UID)}
		if by.Kind == object.OwnerInstance && v1.MachineOf(by) == "" {
			p.Owner.Kind = by.APIVersion + " " + by.Kind
		}
	}
	for _, one := range o.Status.PodIPs {
		if ip, err := netip.ParseAddr(one.IP); err == nil {
			p.IPs = append(p.IPs, ip.Unmap())
		}
	}
	return p
}

// ended tells that all containers of a pod have ended for good.
func ended(o *corev1.Pod) bool {
	return o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed
}
