package machine

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/folder"
	"github.com/fairlead/fairlead/internal/source/local"
)

// kinds are the controller's names of the folder's kinds.
var kinds = map[string]object.Kind{
	folder.Pod: object.KindPod, folder.NetworkAttachmentDefinition: object.KindNAD, folder.Subnet: object.KindSubnet,
	folder.Vpc: object.KindVpc, folder.IPPool: object.KindPool, folder.Namespace: object.KindNamespace,
	folder.NetworkPolicy: object.KindPolicy, folder.Service: object.KindService,
	folder.SecurityGroup: object.KindGroup, folder.PodNetwork: object.KindNetwork, folder.ConfigMap: object.KindNetwork,
}

// world is the machine as the controller has it. Statuses live as long as the
// process: the next one finds them anew.
type world struct {
	*local.Machine
	log *slog.Logger

	mu      sync.Mutex
	subnets map[string]v1.SubnetStatus
	pools   map[string]v1.IPPoolStatus
	vpcs    map[string]v1.VpcStatus
	groups  map[string]v1.SecurityGroupStatus
	spaces  map[string]bool // namespaces that were told, declared or not
}

func newWorld(m *local.Machine, log *slog.Logger) *world {
	return &world{
		Machine: m, log: log, subnets: map[string]v1.SubnetStatus{}, pools: map[string]v1.IPPoolStatus{}, vpcs: map[string]v1.VpcStatus{},
		groups: map[string]v1.SecurityGroupStatus{}, spaces: map[string]bool{},
	}
}

// lister gives objects by two functions.
type lister[T any] struct {
	get  func(namespace, name string) (T, bool)
	list func() []T
}

// Get implements controller.Lister.
func (l lister[T]) Get(namespace, name string) (T, bool) { return l.get(namespace, name) }

// List implements controller.Lister.
func (l lister[T]) List() []T { return l.list() }

// none has no object.
func none[T any]() lister[T] {
	return lister[T]{func(string, string) (out T, ok bool) { return out, false }, func() []T { return nil }}
}

// of reads objects of the folder of one kind.
func of[T, U any](w *world, kind string, read func(U) T) lister[T] {
	return lister[T]{
		get: func(namespace, name string) (out T, ok bool) {
			o, ok := local.Get[U](w.Machine, folder.ID{Kind: kind, Namespace: namespace, Name: name})
			if !ok {
				return out, false
			}
			return read(o), true
		},
		list: func() (out []T) {
			for _, o := range local.List[U](w.Machine, kind) {
				out = append(out, read(o))
			}
			return out
		},
	}
}

// World is what the controller is made of.
func (w *world) World() object.World {
	subnets := of(w, folder.Subnet, with(w, w.subnets, func(o *v1.Subnet) (string, *v1.SubnetStatus) { return o.Name, &o.Status }))
	declared := subnets.get
	subnets.get = func(namespace, name string) (*v1.Subnet, bool) {
		s, ok := declared(namespace, name)
		if !ok && name == v1.DefaultSubnet && w.Withheld() {
			return &v1.Subnet{}, true // it keeps the built-in one away
		}
		return s, ok
	}
	return object.World{
		Readers: object.Readers{
			Gone:    func(context.Context, object.Key) (bool, error) { return true, nil }, // a folder is read as it is
			Subnets: subnets,
			Vpcs:    of(w, folder.Vpc, with(w, w.vpcs, func(o *v1.Vpc) (string, *v1.VpcStatus) { return o.Name, &o.Status })),
			Pools:   of(w, folder.IPPool, with(w, w.pools, func(o *v1.IPPool) (string, *v1.IPPoolStatus) { return o.Name, &o.Status })),
			Nodes:   lister[object.Node]{w.node, w.nodes}, Pods: lister[object.Pod]{w.pod, w.pods},
			Namespaces: lister[object.Namespace]{w.namespace, w.namespaces},
			NADs:       of(w, folder.NetworkAttachmentDefinition, func(n resolve.NAD) resolve.NAD { return n }),
			Services:   of(w, folder.Service, service), Endpoints: w.endpoints,
			Policies: of(w, folder.NetworkPolicy, func(o *networking.NetworkPolicy) object.NetworkPolicy {
				return object.NetworkPolicy{Namespace: o.Namespace, Name: o.Name, Spec: o.Spec}
			}),
			Groups: of(w, folder.SecurityGroup, with(w, w.groups, func(o *v1.SecurityGroup) (string, *v1.SecurityGroupStatus) { return o.Name, &o.Status })),
			// The folder refuses these, and of Vlans the agent takes care.
			IPs: none[*v1.IP](), Sets: none[object.StatefulSet](), Vips: none[*v1.Vip](), Vlans: none[*v1.Vlan](), Providers: none[*v1.ProviderNetwork](), QoS: none[*v1.QoSPolicy](),
			Claims: claim.Nobody(),
			Follow: w.follow,
		},
		Outcomes: w,
	}
}

// with gives an object with the status that it was given last.
func with[T, S any](w *world, all map[string]S, at func(o *T) (name string, status *S)) func(*T) *T {
	return func(o *T) *T {
		w.mu.Lock()
		defer w.mu.Unlock()
		out := *o
		name, status := at(&out)
		*status = all[name]
		return &out
	}
}

func (w *world) node(_, name string) (object.Node, bool) {
	n := w.nodes()[0]
	return n, n.Name == name
}

// nodes is the machine. Its addresses are not told: whatever no Subnet has goes to
// it.
func (w *world) nodes() []object.Node {
	name, notes := w.Machine.Node()
	return []object.Node{{Name: name, UID: name, Annotations: notes}}
}

func (w *world) pod(namespace, name string) (object.Pod, bool) {
	g, ok := w.Guest(namespace, name)
	if !ok {
		return object.Pod{}, false
	}
	return w.read(g), true
}

func (w *world) pods() (out []object.Pod) {
	for _, g := range w.Guests() {
		out = append(out, w.read(g))
	}
	return out
}

func (w *world) read(g local.Guest) object.Pod {
	node, _ := w.Machine.Node()
	p := object.Pod{Pod: g.Pod, Annotations: g.Annotations, Labels: g.Labels, Owner: object.Owner{Kind: g.Controller}, Node: node}
	for _, c := range g.Ports {
		p.Ports = append(p.Ports, logical.ContainerPort{Name: c.Name, Protocol: protocol(c.Protocol), Number: int(c.ContainerPort)})
	}
	return p
}

func protocol(p corev1.Protocol) string {
	if p == "" {
		return string(corev1.ProtocolTCP)
	}
	return string(p)
}

// namespace is there whether it is declared or not.
func (w *world) namespace(_, name string) (object.Namespace, bool) {
	out := object.Namespace{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}
	if o, ok := local.Get[*corev1.Namespace](w.Machine, folder.ID{Kind: folder.Namespace, Name: name}); ok {
		maps.Copy(out.Labels, o.Labels)
		out.Labels[corev1.LabelMetadataName] = name
	}
	return out, true
}

// namespaces are those that are declared, and those of pods.
func (w *world) namespaces() (out []object.Namespace) {
	all := map[string]bool{}
	for _, o := range local.List[*corev1.Namespace](w.Machine, folder.Namespace) {
		all[o.Name] = true
	}
	for _, g := range w.Guests() {
		all[g.Namespace] = true
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one, _ := w.namespace("", name)
		out = append(out, one)
	}
	return out
}

// follow implements controller.Readers.Follow.
func (w *world) follow(ctx context.Context, changed func(object.Key)) error {
	return w.Follow(ctx, func(i folder.ID) {
		w.forget(i)
		if kind, ok := kinds[i.Kind]; ok {
			changed(object.Key{Kind: kind, Namespace: i.Namespace, Name: i.Name})
		}
		switch i.Kind {
		case folder.Pod:
			if w.enters(i.Namespace) {
				changed(object.Key{Kind: object.KindNamespace, Name: i.Namespace})
			}
			w.serving(i.Namespace, changed)
		case folder.EndpointSlice:
			w.serving(i.Namespace, changed)
		}
	})
}

// forget drops the status of an object that is gone.
func (w *world) forget(i folder.ID) {
	if w.Declares(i) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch i.Kind {
	case folder.Subnet:
		delete(w.subnets, i.Name)
	case folder.IPPool:
		delete(w.pools, i.Name)
	case folder.Vpc:
		delete(w.vpcs, i.Name)
	case folder.SecurityGroup:
		delete(w.groups, i.Name)
	}
}

// enters tells that a namespace has its first pod.
func (w *world) enters(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.spaces[namespace]
	w.spaces[namespace] = true
	return !before
}

// serving has the Services of a namespace looked at.
func (w *world) serving(namespace string, changed func(object.Key)) {
	for _, s := range local.List[*corev1.Service](w.Machine, folder.Service) {
		if s.Namespace == namespace {
			changed(object.Key{Kind: object.KindService, Namespace: namespace, Name: s.Name})
		}
	}
}

// endpoints are those of a Service's EndpointSlices, and the pods that its selector
// fits and that have their address: nobody here makes EndpointSlices of these.
func (w *world) endpoints(namespace, service string) (out []logical.Endpoints) {
	for _, s := range local.List[*discoveryv1.EndpointSlice](w.Machine, folder.EndpointSlice) {
		if s.Namespace == namespace && s.Labels[discoveryv1.LabelServiceName] == service {
			out = append(out, logical.ReadEndpoints(s))
		}
	}
	s, ok := local.Get[*corev1.Service](w.Machine, folder.ID{Kind: folder.Service, Namespace: namespace, Name: service})
	if !ok || len(s.Spec.Selector) == 0 {
		return out
	}
	fits := labels.SelectorFromSet(s.Spec.Selector)
	for _, g := range w.Guests() {
		if g.Namespace == namespace && fits.Matches(labels.Set(g.Labels)) {
			out = append(out, endpoint(s, g))
		}
	}
	return out
}

// service reads a Service: all its endpoints are on this node.
func service(o *corev1.Service) logical.Service {
	s := logical.ReadService(o)
	s.Local = false
	return s
}

// endpoint is a pod behind a Service, without ports before it has its address.
func endpoint(s *corev1.Service, g local.Guest) logical.Endpoints {
	out := logical.Endpoints{Namespace: s.Namespace, Service: s.Name}
	const at = v1.DefaultProvider + v1.ProviderSuffix
	if g.Annotations[at+v1.FieldRouted] != "true" {
		return out
	}
	e := logical.Endpoint{Ready: true}
	for text := range strings.SplitSeq(g.Annotations[at+v1.FieldIP], ",") {
		if ip, err := netip.ParseAddr(text); err == nil {
			e.IPs = append(e.IPs, ip)
		}
	}
	out.All = []logical.Endpoint{e}
	for _, p := range s.Spec.Ports {
		if number := target(p, g); number != 0 {
			out.Ports = append(out.Ports, logical.ServicePort{Name: p.Name, Protocol: protocol(p.Protocol), Port: number})
		}
	}
	return out
}

// target is a Service's port at a pod, 0 where the pod has none of that name.
func target(p corev1.ServicePort, g local.Guest) uint16 {
	if p.TargetPort.Type == intstr.Int {
		return uint16(p.TargetPort.IntVal) //nolint:gosec // G115: the folder refuses others
	}
	for _, c := range g.Ports {
		if c.Name == p.TargetPort.StrVal && protocol(c.Protocol) == protocol(p.Protocol) {
			return uint16(c.ContainerPort) //nolint:gosec // G115: a container listens on no other
		}
	}
	return 0
}
