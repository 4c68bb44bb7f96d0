// Package v1 holds the objects of API group fairlead.io/v1, which are Fairlead's
// own: AddressLease, and the names of what certificates are asked and kept by.
// Types and their names only: it must not know who takes an address, nor when it
// is free again.
//
// The CRDs in deploy/cluster and the deep copies are generated from the types
// and their markers (test/chart).
//
// +groupName=fairlead.io
// +kubebuilder:object:generate=true
package v1

import (
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// APIVersion is group and version of every object in this package.
const APIVersion = "fairlead.io/v1"

// GroupVersion is APIVersion as clients want it.
var GroupVersion = schema.GroupVersion{Group: "fairlead.io", Version: "v1"}

// AddToScheme makes the package's objects and their lists known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &AddressLease{}, &AddressLeaseList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.subnet + '.') && (self.spec.address.contains(':') ? self.metadata.name.substring(size(self.spec.subnet) + 1).matches('^[0-9a-f]{4}(-[0-9a-f]{4}){7}$') && isIP(self.metadata.name.substring(size(self.spec.subnet) + 1).replace('-', ':')) && isIP(self.spec.address) && ip(self.metadata.name.substring(size(self.spec.subnet) + 1).replace('-', ':')) == ip(self.spec.address) : self.metadata.name.substring(size(self.spec.subnet) + 1) == self.spec.address)",messageExpression="'name ' + self.metadata.name + ' is not that of address ' + self.spec.address + ' of Subnet ' + self.spec.subnet",fieldPath=".spec.address"

// AddressLease claims one address of one Subnet for one owner. Its name follows
// from Subnet and address (LeaseName), so that the API server makes it once: who
// made it has the address, whoever comes later is refused. It is for Subnets that
// have no logical switch to claim addresses in. It is cluster-scoped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=al,categories=fairlead
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=fairlead"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Subnet",type=string,JSONPath=".spec.subnet"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=".spec.address"
// +kubebuilder:printcolumn:name="Mac",type=string,JSONPath=".spec.mac"
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=".spec.owner.kind",priority=1
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=".spec.owner.namespace"
// +kubebuilder:printcolumn:name="Name",type=string,JSONPath=".spec.owner.name"
// +kubebuilder:printcolumn:name="NIC",type=string,JSONPath=".spec.owner.nic",priority=1
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".spec.node"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type AddressLease struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata"`

	Spec AddressLeaseSpec `json:"spec"`
	// +optional
	Status AddressLeaseStatus `json:"status,omitzero"`
}

// +kubebuilder:validation:XValidation:rule="isIP(self.address)",messageExpression="'address ' + self.address + ' is not an IP address'",fieldPath=".address"
// +kubebuilder:validation:XValidation:rule="!has(self.mac) || self.mac.matches('^[0-9a-f]{2}(:[0-9a-f]{2}){5}$')",messageExpression="'mac ' + self.mac + ' is not of the form 0a:00:00:00:00:01'",fieldPath=".mac"
// +kubebuilder:validation:XValidation:rule="self.subnet == oldSelf.subnet",messageExpression="'subnet ' + oldSelf.subnet + ' cannot become ' + self.subnet + ': a lease is of one address'",fieldPath=".subnet"
// +kubebuilder:validation:XValidation:rule="self.address == oldSelf.address",messageExpression="'address ' + oldSelf.address + ' cannot become ' + self.address + ': a lease is of one address'",fieldPath=".address"

// AddressLeaseSpec is who has which address. The owner may change, by an update
// that names the resourceVersion which it replaces.
type AddressLeaseSpec struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=213
	Subnet string `json:"subnet"`
	// +kubebuilder:validation:MaxLength=64
	Address string `json:"address"` // IPv4 or IPv6, one
	// +kubebuilder:validation:MaxLength=64
	MAC   string `json:"mac,omitempty"` // of the NIC, lower case
	Owner Owner  `json:"owner"`
	Node  string `json:"node,omitempty"` // on which the owner runs, "" where none does
}

// Owner is whose an address is.
type Owner struct {
	// +kubebuilder:validation:MinLength=1
	Kind string `json:"kind"` // Pod, StatefulSet, Node, Vip ...
	// Namespace is "" for what has none.
	Namespace string `json:"namespace,omitempty"`
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// UID tells apart what has the same name one after the other; "" where the
	// address stays with the name.
	UID string `json:"uid,omitempty"`
	NIC string `json:"nic,omitempty"` // name of the interface in the pod
}

// AddressLeaseStatus is what was observed.
type AddressLeaseStatus struct {
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AddressLeaseList is a list of AddressLeases.
//
// +kubebuilder:object:root=true
type AddressLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []AddressLease `json:"items"`
}

// LeaseName is the name of the AddressLease of one address of a Subnet, the same
// however the address is written: "web.10.16.0.5",
// "web.fd00-0010-0016-0000-0000-0000-0000-0005". No two pairs have one name: the
// part behind the Subnet is one group of 39 characters or four groups of digits.
func LeaseName(subnet string, address netip.Addr) string {
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return subnet + "." + address.String()
	}
	return subnet + "." + strings.ReplaceAll(address.StringExpanded(), ":", "-")
}

// ParseLeaseName gives back what LeaseName was given.
func ParseLeaseName(name string) (subnet string, address netip.Addr, err error) {
	i := strings.LastIndexByte(name, '.')
	text := strings.ReplaceAll(name[i+1:], "-", ":")
	if !strings.Contains(text, ":") {
		for range 3 {
			i = strings.LastIndexByte(name[:max(i, 0)], '.')
		}
		text = name[i+1:]
	}
	if address, err = netip.ParseAddr(text); err != nil || i < 1 || LeaseName(name[:i], address) != name {
		return "", netip.Addr{}, fmt.Errorf("AddressLease %q: its name is not that of an address of a Subnet", name)
	}
	return name[:i], address, nil
}
