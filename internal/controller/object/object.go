// Package object is what the controller knows of objects, and what it tells them: over an
// API server (kube) or a folder (machine).
package object

import (
	"context"
	"net/netip"
	"strings"

	networking "k8s.io/api/networking/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// Kind is a kind of objects.
type Kind string

// The kinds whose changes Readers tell.
const (
	KindVpc       Kind = "Vpc"
	KindSubnet    Kind = "Subnet"
	KindNode      Kind = "Node"
	KindPod       Kind = "Pod"
	KindNamespace Kind = "Namespace"
	KindNAD       Kind = "NetworkAttachmentDefinition"
	KindService   Kind = "Service"
	KindPolicy    Kind = "NetworkPolicy"
	KindIP        Kind = "IP"
	KindSet       Kind = "StatefulSet"
	KindPool      Kind = "IPPool"
	KindGroup     Kind = "SecurityGroup"
	KindVip       Kind = "Vip"
	KindVlan      Kind = "Vlan"
	KindQoS       Kind = "QoSPolicy"
	KindClaim     Kind = "AddressLease"
)

// Key names an object. Namespace is "" where the kind has none.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
}

// Named is an object of a kind.
func (k Kind) Named(namespace, name string) Key {
	return Key{Kind: k, Namespace: namespace, Name: name}
}

// String is "Kind namespace/name".
func (k Key) String() string {
	if k.Namespace == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name
}

// Object is one incarnation of what has a Key.
type Object struct {
	Key
	UID string
	// Version is the only one of which a write is meant, "" for any.
	Version string
}

// Pod is what the controller needs of a pod.
type Pod struct {
	core.Pod
	Annotations map[string]string
	Labels      map[string]string
	Ports       []logical.ContainerPort // that have names
	Owner       Owner                   // that made it, the zero value for none
	Node        string                  // "" until it is scheduled
	IPs         []netip.Addr            // that it has, once it runs
	Host        bool                    // it has its node's network
	Done        bool                    // all its containers have ended for good
	Ending      bool                    // it is being deleted
	Version     string                  // of the object
}

// Owner is an object that makes pods, in the pods' namespace.
type Owner struct{ Kind, Name, UID string }

// String is "kind/name/UID", "" for none.
func (o Owner) String() string {
	if o == (Owner{}) {
		return ""
	}
	return o.Kind + "/" + o.Name + "/" + o.UID
}

// ReadOwner reads what String wrote, and nothing else.
func ReadOwner(text string) Owner {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Owner{}
	}
	return Owner{parts[0], parts[1], parts[2]}
}

// StatefulSet is what the controller needs of a StatefulSet: which pods it has.
type StatefulSet struct {
	Namespace, Name, UID string
	First, Replicas      int // ordinals from First on
	Ending               bool
}

// Node is what the controller needs of a node.
type Node struct {
	Name        string
	UID         string
	Annotations map[string]string
	Zone        string       // label topology.kubernetes.io/zone
	IPs         []netip.Addr // of type InternalIP
}

// Namespace is what the controller needs of a namespace.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// NetworkPolicy is what the controller needs of a NetworkPolicy.
type NetworkPolicy struct {
	Namespace string
	Name      string
	UID       string
	Spec      networking.NetworkPolicySpec
}

// Lister gives the objects of one kind as they are known now. What it gives is
// not to be changed.
type Lister[T any] interface {
	// Get gives one object; false is proof that it does not exist.
	Get(namespace, name string) (T, bool)
	List() []T
}

// Readers tell what should be.
type Readers struct {
	Vpcs       Lister[*v1.Vpc]
	Subnets    Lister[*v1.Subnet]
	Nodes      Lister[Node]
	Pods       Lister[Pod]
	Namespaces Lister[Namespace]
	NADs       Lister[resolve.NAD]
	Services   Lister[logical.Service]
	// Endpoints are what a Service's EndpointSlices say. Their changes are told as
	// the Service's.
	Endpoints func(namespace, service string) []logical.Endpoints
	Policies  Lister[NetworkPolicy]
	IPs       Lister[*v1.IP]
	Sets      Lister[StatefulSet]
	Pools     Lister[*v1.IPPool]
	Groups    Lister[*v1.SecurityGroup]
	Vips      Lister[*v1.Vip]
	Vlans     Lister[*v1.Vlan]
	QoS       Lister[*v1.QoSPolicy]
	Claims    claim.Reader
	// Follow returns when all Listers know all objects, and calls changed for
	// each object that comes, changes or goes after that, until ctx ends. changed
	// does not block.
	Follow func(ctx context.Context, changed func(Key)) error
}

// Event is what an operator should know about an object.
type Event struct {
	Reason  string // the reference's
	Message string
}

// Outcomes carry to the objects what the controller did. Each method may be
// repeated, and says core.ErrNotFound where the incarnation is gone.
type Outcomes interface {
	claim.Writer
	// Annotate sets these annotations of a pod or node, in one write, and leaves
	// the others.
	Annotate(ctx context.Context, o Object, set map[string]string) error
	// SubnetStatus replaces the conditions of these types, and all counts.
	SubnetStatus(ctx context.Context, o Object, status v1.SubnetStatus) error
	// VpcStatus replaces the conditions of these types, and of the rest what a router
	// and its Subnets are; what others wrote beside it stays.
	VpcStatus(ctx context.Context, o Object, status v1.VpcStatus) error
	// PoolStatus replaces the conditions of these types, and all counts.
	PoolStatus(ctx context.Context, o Object, status v1.IPPoolStatus) error
	// Status makes the status of an object of the kinds SecurityGroup, Vip, Vlan and
	// QoSPolicy what a status of its kind says; conditions of other types stay.
	Status(ctx context.Context, o Object, status any) error
	// PutIP makes an object what want is, as far as want says it. have is the object
	// as it is known, nil for none.
	PutIP(ctx context.Context, have, want *v1.IP) error
	// DropIP deletes an object; one that is gone is success.
	DropIP(ctx context.Context, have *v1.IP) error
	// Warn records an event of type Warning.
	Warn(ctx context.Context, o Object, e Event)
}

// World is the objects that the controller serves.
type World struct {
	Readers
	Outcomes
}
