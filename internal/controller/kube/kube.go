// Package kube is the controller's World over the Kubernetes API: informers
// read the objects, and patches and events carry what came of them. It must not
// know what the controller does with either.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
	"github.com/fairlead/fairlead/internal/source/cluster/health"
)

// Resources of the kinds that are read or written.
var (
	vpcs       = v1.GroupVersion.WithResource("vpcs")
	subnets    = v1.GroupVersion.WithResource("subnets")
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	events     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	services   = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	slicesOf   = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	policies   = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
	ips        = v1.GroupVersion.WithResource("ips")
	ippools    = v1.GroupVersion.WithResource("ippools")
	groups     = v1.GroupVersion.WithResource("security-groups")
	vips       = v1.GroupVersion.WithResource("vips")
	vlans      = v1.GroupVersion.WithResource("vlans")
	providers  = v1.GroupVersion.WithResource("provider-networks")
	qos        = v1.GroupVersion.WithResource("qos-policies")
	sets       = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	nads       = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}
)

// Cluster is the objects of one API server.
type Cluster struct {
	clients
	log    *slog.Logger
	all    map[object.Kind]cache.SharedIndexInformer
	vms    *machines
	unseen sync.Map // by object.Key, a write that the watches have not told of yet

	revisions health.Revisions

	mu    sync.Mutex
	fails map[object.Kind]error // why a kind cannot be listed or watched
}

// New makes a Cluster that knows no object yet: Run reads them.
func New(config *rest.Config, log *slog.Logger) (*Cluster, error) {
	to, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	c := &Cluster{clients: to, log: log, all: map[object.Kind]cache.SharedIndexInformer{}, fails: map[object.Kind]error{}}
	if c.vms, err = newMachines(to, func(err error) { c.failed(object.KindMachine, err) }); err != nil {
		return nil, err
	}
	for kind, k := range map[object.Kind]reader{
		object.KindVpc:       custom(to, vpcs, read[v1.Vpc]),
		object.KindSubnet:    custom(to, subnets, readSubnet),
		object.KindNode:      builtin(to.core.CoreV1().RESTClient(), nodes, &corev1.Node{}, readNode),
		object.KindPod:       builtin(to.core.CoreV1().RESTClient(), pods, &corev1.Pod{}, readPod),
		object.KindNamespace: builtin(to.core.CoreV1().RESTClient(), namespaces, &corev1.Namespace{}, readNamespace),
		object.KindNAD:       custom(to, nads, readNAD),
		object.KindService:   builtin(to.core.CoreV1().RESTClient(), services, &corev1.Service{}, logical.ReadService),
		kindSlice:            builtin(to.core.DiscoveryV1().RESTClient(), slicesOf, &discoveryv1.EndpointSlice{}, logical.ReadEndpoints),
		object.KindPolicy:    builtin(to.core.NetworkingV1().RESTClient(), policies, &networking.NetworkPolicy{}, readPolicy),
		object.KindIP:        custom(to, ips, readIP),
		object.KindSet:       builtin(to.core.AppsV1().RESTClient(), sets, &appsv1.StatefulSet{}, readSet),
		object.KindPool:      custom(to, ippools, read[v1.IPPool]),
		object.KindGroup:     custom(to, groups, read[v1.SecurityGroup]),
		object.KindVip:       custom(to, vips, readVip),
		object.KindVlan:      custom(to, vlans, read[v1.Vlan]),
		object.KindQoS:       custom(to, qos, read[v1.QoSPolicy]),
		object.KindProvider:  custom(to, providers, read[v1.ProviderNetwork]),
		object.KindClaim:     custom(to, leases, readClaim),
	} {
		if err := k.SetTransform(k.keep); err != nil {
			return nil, fmt.Errorf("read %s objects: %w", kind, err)
		}
		if err := k.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { c.failed(kind, err) }); err != nil {
			return nil, fmt.Errorf("watch %s objects: %w", kind, err)
		}
		c.all[kind] = k
	}
	if err := c.all[kindSlice].AddIndexers(cache.Indexers{byService: indexed}); err != nil {
		return nil, fmt.Errorf("read %s: %w", slicesOf.Resource, err)
	}
	if err := c.all[object.KindClaim].AddIndexers(cache.Indexers{byPod: ofPod}); err != nil {
		return nil, fmt.Errorf("read %s: %w", leases.Resource, err)
	}
	for kind := range c.all {
		if err := c.clean(kind); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run reads the objects and their changes until ctx ends. It is called once.
func (c *Cluster) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { c.vms.run(ctx) })
	for _, informer := range c.all {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	wg.Wait()
}

// failed notes, and logs once, why a kind cannot be listed or watched. That a
// watch ended is no news: the next one begins.
func (c *Cluster) failed(kind object.Kind, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	c.mu.Lock()
	before := c.fails[kind]
	c.fails[kind] = err
	c.mu.Unlock()
	if before == nil || before.Error() != err.Error() {
		c.log.Warn("objects of a kind cannot be read; it is tried again", "kind", kind, "err", err)
	}
}

// Listed is nil once all objects of all kinds are known; else it wraps
// core.ErrUnavailable and tells which kinds are missing, and why.
func (c *Cluster) Listed() error {
	var missing []string
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind, informer := range c.all {
		if informer.HasSynced() {
			continue
		}
		text := string(kind)
		if err := c.fails[kind]; err != nil {
			text += " (" + err.Error() + ")"
		}
		missing = append(missing, text)
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("not listed yet: %s: %w", strings.Join(missing, ", "), core.ErrUnavailable)
}

// World is the cluster as the controller has it.
func (c *Cluster) World() object.World {
	return object.World{
		Readers: object.Readers{
			Vpcs:       lister[*v1.Vpc]{c.all[object.KindVpc]},
			Subnets:    lister[*v1.Subnet]{c.all[object.KindSubnet]},
			Nodes:      lister[object.Node]{c.all[object.KindNode]},
			Pods:       lister[object.Pod]{c.all[object.KindPod]},
			Namespaces: lister[object.Namespace]{c.all[object.KindNamespace]},
			NADs:       lister[resolve.NAD]{c.all[object.KindNAD]},
			Services:   lister[logical.Service]{c.all[object.KindService]},
			Endpoints:  c.endpoints,
			Policies:   lister[object.NetworkPolicy]{c.all[object.KindPolicy]},
			IPs:        lister[*v1.IP]{c.all[object.KindIP]},
			Sets:       lister[object.StatefulSet]{c.all[object.KindSet]},
			Pools:      lister[*v1.IPPool]{c.all[object.KindPool]},
			Groups:     lister[*v1.SecurityGroup]{c.all[object.KindGroup]},
			Vips:       lister[*v1.Vip]{c.all[object.KindVip]},
			Vlans:      lister[*v1.Vlan]{c.all[object.KindVlan]},
			Providers:  lister[*v1.ProviderNetwork]{c.all[object.KindProvider]},
			QoS:        lister[*v1.QoSPolicy]{c.all[object.KindQoS]},
			Claims:     c.claims(),
			Machines:   c.vms,
			Gone:       c.gone,
			Follow:     c.follow,
		},
		Outcomes: c,
	}
}

// follow implements controller.Readers.Follow.
func (c *Cluster) follow(ctx context.Context, changed func(object.Key)) error {
	var synced []cache.InformerSynced
	if err := c.vms.follow(ctx, changed); err != nil {
		return err
	}
	for kind, informer := range c.all {
		tell := func(o any) {
			if of, ok := serviceOf(o); ok {
				if of.Name != "" {
					changed(of)
				}
				return
			}
			if name, err := cache.DeletionHandlingObjectToName(o); err == nil {
				changed(object.Key{Kind: kind, Namespace: name.Namespace, Name: name.Name})
			}
		}
		handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: tell, UpdateFunc: func(was, now any) {
				if _, ok := serviceOf(was); ok {
					tell(was) // its label may name another now
				}
				tell(now)
			}, DeleteFunc: tell,
		})
		if err != nil {
			return fmt.Errorf("follow %s objects: %w", kind, err)
		}
		context.AfterFunc(ctx, func() { _ = informer.RemoveEventHandler(handle) }) // it fails when the informer has ended
		synced = append(synced, handle.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("the API server has not told all objects: %w", core.ErrUnavailable)
	}
	return nil
}

// item is an object as an informer keeps it: what names it, and what the
// controller needs of it.
type item[T any] struct {
	metav1.ObjectMeta
	value T
}

// lister gives what an informer keeps.
type lister[T any] struct{ from cache.SharedIndexInformer }

// Get implements controller.Lister.
func (l lister[T]) Get(namespace, name string) (out T, ok bool) {
	found, exists, err := l.from.GetStore().GetByKey(cache.NewObjectName(namespace, name).String())
	if err != nil || !exists {
		return out, false
	}
	i, ok := found.(*item[T])
	if !ok {
		return out, false
	}
	return i.value, true
}

// List implements controller.Lister.
func (l lister[T]) List() []T {
	all := l.from.GetStore().List()
	out := make([]T, 0, len(all))
	for _, o := range all {
		if i, ok := o.(*item[T]); ok {
			out = append(out, i.value)
		}
	}
	return out
}
