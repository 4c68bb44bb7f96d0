package logical

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/core"
)

// Labels of IP objects, the reference's (sdn.md, 12); the Subnet's name is one more.
const (
	LabelSubnet   = "ovn.kubernetes.io/subnet"
	LabelNode     = "ovn.kubernetes.io/node-name"
	LabelReserved = "ovn.kubernetes.io/ip_reserved"
)

// Annotations of IP objects that this controller made: whose address it is.
const (
	NoteOwner  = "fairlead.io/owner-uid"
	NoteKeeper = "fairlead.io/keeper"
)

// Ours tells that a controller made an object, and not a user who reserves.
func Ours(o *v1.IP) bool {
	return o.Annotations[NoteOwner] != "" || slices.Contains(o.Finalizers, v1.Finalizer)
}

// ReadIP is what an IP object says: for which port of which pod, and which
// addresses, none where a controller is to choose.
func ReadIP(o *v1.IP) (core.Lease, error) {
	l := core.Lease{Subnet: o.Spec.Subnet, Owner: core.Owner{
		Key: core.Key{Container: book.Reserving(string(o.UID)), IfName: o.Name}, Pod: core.Pod{Namespace: o.Spec.Namespace, Name: o.Spec.PodName},
	}}
	if Ours(o) {
		l.Owner.Key.Container = o.Annotations[NoteOwner]
	}
	if err := fits(o); err != nil {
		return l, err
	}
	if l.Owner.Pod.Namespace == "" || l.Owner.Pod.Name == "" {
		l.Owner.Pod = core.Pod{} // nobody's but the object's
	}
	text := o.Spec.IPAddress
	if text == "" {
		text = strings.Trim(o.Spec.V4IPAddress+","+o.Spec.V6IPAddress, ",")
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil {
			return l, fmt.Errorf("spec.ipAddress: %w", err)
		}
		l.IPs = append(l.IPs, ip)
	}
	if o.Spec.MacAddress == "" {
		return l, nil
	}
	if err := l.MAC.UnmarshalText([]byte(o.Spec.MacAddress)); err != nil {
		return l, fmt.Errorf("spec.macAddress: %w", err)
	}
	return l, nil
}

// fits tells of a user's object for a pod that it has another name than a port of the pod,
// which would never have what it reserves. A node's port has the name of its "pod".
func fits(o *v1.IP) error {
	pod, namespace := o.Spec.PodName, o.Spec.Namespace
	port := pod + "." + namespace
	switch {
	case Ours(o), pod == "", pod == o.Name && namespace == "", o.Name == port, strings.HasPrefix(o.Name, port+"."):
		return nil
	case namespace == "":
		return fmt.Errorf("spec.podName: %s is a pod of some namespace, and spec.namespace is missing", pod)
	}
	return fmt.Errorf("metadata.name: pod %s/%s never has it: call the object %[3]s, or %[3]s.PROVIDER for an interface of another network", namespace, pod, port)
}

// Label adds the labels of Subnet and node, but for names that are too long for one,
// and that of a user's reservation, which stays.
func Label(o, have *v1.IP) {
	if have != nil && (!Ours(have) || have.Labels[LabelReserved] == "true") {
		o.Labels[LabelReserved] = "true"
	}
	for key, value := range map[string]string{LabelSubnet: o.Spec.Subnet, LabelNode: o.Spec.NodeName, o.Spec.Subnet: ""} {
		if len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 && (value != "" || key == o.Spec.Subnet) {
			o.Labels[key] = value
		}
	}
}
