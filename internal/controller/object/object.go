// Package object is what the controller knows of objects, and what it tells them: over an
// API server (kube) or a folder (machine).
package object

import (
	"context"
	"net/netip"
	"strings"
	"time"

	networking "k8s.io/api/networking/v1"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/declare"
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
	KindProvider  Kind = "ProviderNetwork"
	KindClaim     Kind = "AddressLease"
	KindNetwork   Kind = "PodNetwork"     // with no name all that is declared of pods
	KindMap       Kind = "ConfigMap"      // told of nobody
	KindMachine   Kind = "VirtualMachine" // KubeVirt's; with no name all of them, which are known now
)

// OwnerInstance is the kind of what makes the launcher pods of a virtual machine.
const OwnerInstance = "VirtualMachineInstance"

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
	Born        time.Time               // when it was made
	// Machine: it stands for the launcher pods of a virtual machine of its name, which
	// are on Nodes, the one that runs it first. Unsure: whether that is there is not known.
	Machine, Unsure bool
	Nodes           []string
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

// Machine is what the controller needs of a virtual machine of KubeVirt.
type Machine struct {
	Namespace, Name, UID string
	Ending               bool
}

// Machines are the virtual machines. Nobody asks an API server for them before the first
// question.
type Machines interface {
	// Get gives one. known: it is there, or there is proof that it is not; what is not
	// known is told of, by a key without a name, when it is.
	Get(namespace, name string) (m Machine, there, known bool)
	// Launchers asks for the pods, at this moment, that run one. Where nobody has asked
	// for a machine there are none.
	Launchers(ctx context.Context, namespace, machine string) ([]Pod, error)
}

// Node is what the controller needs of a node.
type Node struct {
	Name        string
	UID         string
	Annotations map[string]string
	Labels      map[string]string
	Down        string            // the condition for which it should be no gateway, "" for none
	Zone        string            // label topology.kubernetes.io/zone
	Uplinks     map[string]string // labels about provider networks
	IPs         []netip.Addr      // of type InternalIP
	// Gives are Subnets whose addresses the node's agent chooses itself, by name.
	Gives []string
	// Holds are addresses in use on the node whose pods may not be known, by Subnet.
	Holds map[string][]netip.Addr
	// Unled: its agent chooses addresses where a pod wants some. It runs without OVN.
	Unled bool
}

// Namespace is what the controller needs of a namespace.
type Namespace struct {
	Name        string
	UID         string
	Labels      map[string]string
	Annotations map[string]string // that a controller writes
}

// NetworkPolicy is what the controller needs of a NetworkPolicy.
type NetworkPolicy struct {
	Namespace string
	Name      string
	UID       string
	Spec      networking.NetworkPolicySpec
}

// Map is what the controller needs of a ConfigMap of declare.ConfigNamespace.
type Map struct {
	Name, UID string
	Data      map[string]string
}

// Object is the ConfigMap, for who is told of it.
func (m Map) Object() Object {
	return Object{Key: Key{Kind: KindMap, Namespace: declare.ConfigNamespace, Name: m.Name}, UID: m.UID}
}

// Maps gives those named declare.ConfigExternal and ConfigInterconnect that there are, false
// while that is not known, and calls changed for each change until ctx ends.
type Maps func(ctx context.Context, changed func()) (now func() (map[string]Map, bool))

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
	Providers Lister[*v1.ProviderNetwork]
	QoS       Lister[*v1.QoSPolicy]
	Claims    claim.Reader
	Machines  Machines // nil: there are none
	// Gone asks whether a Service, a node, a NetworkPolicy, a SecurityGroup or a Vip is gone at
	// this moment: true is proof.
	Gone func(ctx context.Context, k Key) (bool, error)
	// Follow returns when all Listers know all objects, and calls changed for
	// each object that comes, changes or goes after that, until ctx ends. changed
	// does not block.
	Follow func(ctx context.Context, changed func(Key)) error
}

// Event is what an operator should know about an object.
type Event struct {
	Reason  string // the reference's
	Message string
	// Unserved: for this reason the object has nothing. A pod is told it on itself, too,
	// where its agent sees it.
	Unserved bool
	Good     bool // nothing is wrong: of type Normal
}

// Outcomes carry to the objects what the controller did. Each method may be
// repeated, and says core.ErrNotFound where the incarnation is gone.
type Outcomes interface {
	claim.Writer
	// Annotate sets these annotations of a pod, node or namespace and removes those of
	// drop, in one write, and leaves the others.
	Annotate(ctx context.Context, o Object, set map[string]string, drop ...string) error
	// SubnetStatus replaces the conditions of these types, and all counts.
	SubnetStatus(ctx context.Context, o Object, status v1.SubnetStatus) error
	// PutSubnet makes an object that shows a Subnet, and DropSubnet deletes it; one that is
	// there, or gone, is success.
	PutSubnet(ctx context.Context, want *v1.Subnet) error
	DropSubnet(ctx context.Context, have *v1.Subnet) error
	// VpcStatus replaces the conditions of these types, and of the rest what a router
	// and its Subnets are; what others wrote beside it stays. Of no incarnation it makes
	// the object, without spec, where there is none.
	VpcStatus(ctx context.Context, o Object, status v1.VpcStatus) error
	// PoolStatus replaces the conditions of these types, and all counts.
	PoolStatus(ctx context.Context, o Object, status v1.IPPoolStatus) error
	// Status makes the status of an object of the kinds SecurityGroup, Vip, Vlan, IP,
	// ProviderNetwork and QoSPolicy what a status of its kind says; conditions of other types stay.
	Status(ctx context.Context, o Object, status any) error
	// PutIP makes an object what want is, as far as want says it. have is the object
	// as it is known, nil for none.
	PutIP(ctx context.Context, have, want *v1.IP) error
	// DropIP deletes an object; one that is gone is success.
	DropIP(ctx context.Context, have *v1.IP) error
	// Warn records an event, of type Warning unless nothing is wrong. An error says that
	// it is not told, or not all of it, and that to try it again may help.
	Warn(ctx context.Context, o Object, e Event) error
}

// World is the objects that the controller serves.
type World struct {
	Readers
	Outcomes
}
