package controller_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/claim"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/network/resolve"
)

// world is a cluster's objects in memory, which several controllers may serve.
type world struct {
	mu      sync.Mutex
	objects map[object.Key]any
	follow  map[*follower]bool
	events  []told
	refuse  error         // of every write
	mute    error         // of every event
	hold    chan struct{} // unless it is nil, IP objects are written when it is closed
	news    []object.Key
	version int
	unseen  map[object.Key]bool // what no watch has told of yet
	away    error               // of what is asked of the API server now
	silent  sync.Map            // nodes that answer no more
	unsure  bool                // which virtual machines there are is not known
	// lingering are AddressLeases that are gone and of which no watch has told that; nil where watches are at once.
	lingering map[string]*fairlead.AddressLease
}

type follower struct{ changed func(object.Key) }

// told is an event as it was recorded.
type told struct {
	by string
	on object.Key
	object.Event
}

func newWorld() *world {
	return &world{objects: map[object.Key]any{}, follow: map[*follower]bool{}}
}

// set puts an object in the place of the one that has its key; nil deletes.
func (w *world) set(k object.Key, o any) {
	w.mu.Lock()
	defer w.unlock()
	w.put(k, o)
}

func (w *world) put(k object.Key, o any) {
	tell := []object.Key{k}
	if k.Kind == kindSlice {
		tell = nil
		for _, is := range []any{w.objects[k], o} {
			if e, ok := is.(logical.Endpoints); ok {
				tell = append(tell, serviceKey(e.Service))
			}
		}
	}
	if p, ok := o.(object.Pod); ok {
		w.version++
		p.Version = fmt.Sprint(w.version)
		o = p
	}
	if o == nil {
		delete(w.objects, k)
	} else {
		w.objects[k] = o
	}
	w.news = append(w.news, tell...)
}

// lag has no watch tell of an object, until it is called without.
func (w *world) lag(k object.Key, lags bool) {
	w.mu.Lock()
	defer w.unlock()
	w.unseen = map[object.Key]bool{k: lags}
	w.news = append(w.news, k)
}

// unlock ends a change, and then tells it: who hears of it may ask at once.
func (w *world) unlock() {
	news, follow := w.news, slices.Collect(maps.Keys(w.follow))
	w.news = nil
	w.mu.Unlock()
	for _, k := range news {
		for _, f := range follow {
			f.changed(k)
		}
	}
}

// lister lists what is of a type.
type lister[T any] struct {
	*world
	kind object.Kind
}

func (l lister[T]) Get(namespace, name string) (T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := object.Key{Kind: l.kind, Namespace: namespace, Name: name}
	o, ok := l.objects[k].(T)
	if l.unseen[k] {
		return *new(T), false
	}
	return o, ok
}

func (l lister[T]) List() (out []T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(l.objects), func(a, b object.Key) int {
		return cmp.Compare(a.String(), b.String())
	})
	for _, k := range keys {
		if o, ok := l.objects[k].(T); ok && k.Kind == l.kind && !l.unseen[k] {
			out = append(out, o)
		}
	}
	return out
}

// seenBy is the world as one controller has it.
func (w *world) seenBy(name string) object.World {
	return object.World{
		Readers: object.Readers{
			Vpcs:       lister[*v1.Vpc]{w, object.KindVpc},
			Subnets:    lister[*v1.Subnet]{w, object.KindSubnet},
			Nodes:      lister[object.Node]{w, object.KindNode},
			Pods:       lister[object.Pod]{w, object.KindPod},
			Namespaces: lister[object.Namespace]{w, object.KindNamespace},
			NADs:       lister[resolve.NAD]{w, object.KindNAD},
			Services:   lister[logical.Service]{w, object.KindService},
			Endpoints: func(namespace, service string) []logical.Endpoints {
				return slices.DeleteFunc(lister[logical.Endpoints]{w, kindSlice}.List(), func(e logical.Endpoints) bool {
					return e.Namespace != namespace || e.Service != service
				})
			},
			Policies: lister[object.NetworkPolicy]{w, object.KindPolicy},
			IPs:      lister[*v1.IP]{w, object.KindIP},
			Sets:     lister[object.StatefulSet]{w, object.KindSet},
			Pools:    lister[*v1.IPPool]{w, object.KindPool},
			Groups:   lister[*v1.SecurityGroup]{w, object.KindGroup},
			Vips:     lister[*v1.Vip]{w, object.KindVip},
			Vlans:    lister[*v1.Vlan]{w, object.KindVlan}, Providers: lister[*v1.ProviderNetwork]{w, object.KindProvider},
			QoS:      lister[*v1.QoSPolicy]{w, object.KindQoS},
			Claims:   w.known(),
			Machines: machines{w},
			Gone: func(_ context.Context, k object.Key) (bool, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				_, there := w.objects[k]
				return !there, w.away
			},
			Follow: func(ctx context.Context, changed func(object.Key)) error {
				f := &follower{changed}
				w.mu.Lock()
				defer w.mu.Unlock()
				w.follow[f] = true
				context.AfterFunc(ctx, func() {
					w.mu.Lock()
					defer w.mu.Unlock()
					delete(w.follow, f)
				})
				return nil
			},
		},
		Outcomes: outcomes{w, name},
	}
}

// known are the AddressLeases as a controller reads them.
func (w *world) known() claim.Reader {
	all := lister[*fairlead.AddressLease]{w, object.KindClaim}
	return claim.Reader{
		Get: func(name string) (*fairlead.AddressLease, bool) {
			if c, ok := all.Get("", name); ok {
				return c, true
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			c, ok := w.lingering[name]
			return c, ok
		},
		List: all.List,
		Of: func(pod core.Pod) []*fairlead.AddressLease {
			return slices.DeleteFunc(all.List(), func(c *fairlead.AddressLease) bool {
				return c.Spec.Owner.Namespace != pod.Namespace || c.Spec.Owner.Name != pod.Name
			})
		},
		Now: func(_ context.Context, name string) (*fairlead.AddressLease, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if c, ok := w.objects[object.Key{Kind: object.KindClaim, Name: name}].(*fairlead.AddressLease); ok {
				return c, nil
			}
			return nil, core.ErrNotFound
		},
		Gone: func(_ context.Context, pod core.Pod) (bool, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			p, ok := w.objects[object.KindPod.Named(pod.Namespace, pod.Name)].(object.Pod)
			return !ok || pod.UID != "" && p.UID != pod.UID || p.Done, w.away
		},
	}
}

// writers is the annotation by which a test tells who wrote an object, and how
// often.
const writers = "test/writers"

// outcomes are one controller's.
type outcomes struct {
	*world
	by string
}

func (o outcomes) Annotate(_ context.Context, at object.Object, set map[string]string, drop ...string) error {
	o.mu.Lock()
	defer o.unlock()
	if o.refuse != nil {
		return o.refuse
	}
	with := func(uid string, have map[string]string) map[string]string {
		if uid != at.UID {
			return nil
		}
		out := map[string]string{}
		maps.Copy(out, have)
		maps.Copy(out, set)
		maps.DeleteFunc(out, func(k, _ string) bool { return slices.Contains(drop, k) })
		out[writers] += o.by + " "
		return out
	}
	switch was := o.objects[at.Key].(type) {
	case object.Pod:
		if at.Version != "" && at.Version != was.Version {
			return core.ErrNotFound
		}
		if was.Annotations = with(was.UID, was.Annotations); was.Annotations != nil {
			o.put(at.Key, was)
			return nil
		}
	case object.Namespace:
		if was.Annotations = with(was.UID, was.Annotations); was.Annotations != nil {
			maps.DeleteFunc(was.Annotations, func(_, value string) bool { return value == "" })
			o.put(at.Key, was)
			return nil
		}
	case object.Node:
		if was.Annotations = with(was.UID, was.Annotations); was.Annotations != nil {
			o.put(at.Key, was)
			return nil
		}
	}
	return core.ErrNotFound
}

func (o outcomes) SubnetStatus(_ context.Context, at object.Object, status v1.SubnetStatus) error {
	o.mu.Lock()
	defer o.unlock()
	was, ok := o.objects[at.Key].(*v1.Subnet)
	if !ok || string(was.UID) != at.UID {
		return core.ErrNotFound
	}
	now := was.DeepCopy()
	now.Status = status
	o.put(at.Key, now)
	return nil
}

func (o outcomes) PoolStatus(_ context.Context, at object.Object, status v1.IPPoolStatus) error {
	o.mu.Lock()
	defer o.unlock()
	was, ok := o.objects[at.Key].(*v1.IPPool)
	if !ok || string(was.UID) != at.UID {
		return core.ErrNotFound
	}
	now := was.DeepCopy()
	now.Status = status
	o.put(at.Key, now)
	return nil
}

func (o outcomes) Status(_ context.Context, at object.Object, status any) error {
	o.mu.Lock()
	defer o.unlock()
	switch was := o.objects[at.Key].(type) {
	case *v1.SecurityGroup:
		now := was.DeepCopy()
		now.Status = status.(v1.SecurityGroupStatus)
		o.put(at.Key, now)
	case *v1.Vip:
		now := was.DeepCopy()
		now.Status = status.(v1.VipStatus)
		o.put(at.Key, now)
	case *v1.IP:
		now := was.DeepCopy()
		now.Status = status.(v1.IPStatus)
		o.put(at.Key, now)
	case *v1.Vlan:
		now := was.DeepCopy()
		now.Status = status.(v1.VlanStatus)
		o.put(at.Key, now)
	case *v1.ProviderNetwork:
		now := was.DeepCopy()
		now.Status = status.(v1.ProviderNetworkStatus)
		o.put(at.Key, now)
	case *v1.QoSPolicy:
		now := was.DeepCopy()
		now.Status = status.(v1.QoSPolicyStatus)
		o.put(at.Key, now)
	default:
		return core.ErrNotFound
	}
	return nil
}

func (o outcomes) VpcStatus(_ context.Context, at object.Object, status v1.VpcStatus) error {
	o.mu.Lock()
	defer o.unlock()
	was, ok := o.objects[at.Key].(*v1.Vpc)
	if !ok || string(was.UID) != at.UID {
		return core.ErrNotFound
	}
	now := was.DeepCopy()
	now.Status = status
	o.put(at.Key, now)
	return nil
}

func (o outcomes) PutSubnet(_ context.Context, want *v1.Subnet) error {
	o.mu.Lock()
	defer o.unlock()
	if _, there := o.objects[subnetKey(want.Name)]; !there {
		o.version++
		now := want.DeepCopy()
		now.UID = types.UID(fmt.Sprint("subnet-", o.version))
		o.put(subnetKey(want.Name), now)
	}
	return nil
}

func (o outcomes) DropSubnet(_ context.Context, have *v1.Subnet) error {
	o.mu.Lock()
	defer o.unlock()
	if now, there := o.objects[subnetKey(have.Name)].(*v1.Subnet); there && now.UID == have.UID {
		o.put(subnetKey(have.Name), nil)
	}
	return nil
}

func (o outcomes) PutIP(ctx context.Context, have, want *v1.IP) error {
	if o.hold != nil {
		select {
		case <-o.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.unlock()
	if o.refuse != nil {
		return o.refuse
	}
	k := object.Key{Kind: object.KindIP, Name: want.Name}
	now, there := o.objects[k].(*v1.IP)
	switch {
	case there != (have != nil), there && now.UID != have.UID:
		return nil
	case there:
		was := now
		now = now.DeepCopy()
		now.Spec = want.Spec
		for from, to := range map[*map[string]string]*map[string]string{&want.Labels: &now.Labels, &want.Annotations: &now.Annotations} {
			if *to == nil {
				*to = map[string]string{}
			}
			maps.Copy(*to, *from)
		}
		if reflect.DeepEqual(was, now) {
			return nil
		}
	default:
		now = want.DeepCopy()
		now.UID = types.UID(fmt.Sprintf("ip-%d", time.Now().UnixNano()))
	}
	o.put(k, now)
	return nil
}

func (o outcomes) DropIP(_ context.Context, have *v1.IP) error {
	o.mu.Lock()
	defer o.unlock()
	k := object.Key{Kind: object.KindIP, Name: have.Name}
	if now, there := o.objects[k].(*v1.IP); there && now.UID == have.UID {
		o.put(k, nil)
	}
	return nil
}

func (o outcomes) PutClaim(_ context.Context, have, want *fairlead.AddressLease) error {
	o.mu.Lock()
	defer o.unlock()
	if o.refuse != nil {
		return o.refuse
	}
	k := object.Key{Kind: object.KindClaim, Name: want.Name}
	now, there := o.objects[k].(*fairlead.AddressLease)
	if there != (have != nil) || there && now.ResourceVersion != have.ResourceVersion {
		return core.ErrExists
	}
	o.version++
	next := want.DeepCopy()
	next.UID, next.ResourceVersion = types.UID(fmt.Sprint("claim-", o.version)), fmt.Sprint(o.version)
	if there {
		next.UID = now.UID
	}
	o.put(k, next)
	return nil
}

func (o outcomes) DropClaim(_ context.Context, have *fairlead.AddressLease) error {
	o.mu.Lock()
	defer o.unlock()
	k := object.Key{Kind: object.KindClaim, Name: have.Name}
	switch now, there := o.objects[k].(*fairlead.AddressLease); {
	case !there:
	case now.ResourceVersion != have.ResourceVersion:
		return core.ErrExists
	default:
		o.put(k, nil)
		if o.lingering != nil {
			o.lingering[have.Name] = now
		}
	}
	return nil
}

func (o outcomes) Warn(_ context.Context, at object.Object, e object.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mute != nil {
		return o.mute
	}
	o.events = append(o.events, told{o.by, at.Key, e})
	return nil
}

// warned are the reasons of the events about an object.
func (w *world) warned(k object.Key) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.on == k {
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	return out
}

// kindSlice are the EndpointSlices.
const kindSlice object.Kind = "EndpointSlice"

func serviceKey(name string) object.Key {
	return object.Key{Kind: object.KindService, Namespace: "ns", Name: name}
}

func podKey(name string) object.Key {
	return object.Key{Kind: object.KindPod, Namespace: "ns", Name: name}
}

func subnetKey(name string) object.Key {
	return object.Key{Kind: object.KindSubnet, Name: name}
}

// subnet declares a Subnet.
func (w *world) subnet(name string, spec v1.SubnetSpec) {
	o := &v1.Subnet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Generation: 1}, Spec: spec}
	w.set(subnetKey(name), o)
}

// pod declares a pod of namespace ns; notes are pairs of key and value.
func (w *world) pod(name, uid string, notes ...string) {
	w.set(podKey(name), declared(name, uid, notes...))
}

func declared(name, uid string, notes ...string) object.Pod {
	p := object.Pod{Pod: core.Pod{Namespace: "ns", Name: name, UID: uid}, Annotations: map[string]string{}}
	for i := 0; i < len(notes); i += 2 {
		p.Annotations[notes[i]] = notes[i+1]
	}
	return p
}

// notes are a pod's annotations now.
func (w *world) notes(name string) map[string]string {
	p, _ := lister[object.Pod]{w, object.KindPod}.Get("ns", name)
	return p.Annotations
}

// ip waits until a pod was told its addresses.
func (w *world) ip(t testing.TB, name string) string {
	t.Helper()
	require.Eventually(t, func() bool { return w.notes(name)["ovn.kubernetes.io/routed"] == "true" }, patience, tick,
		"pod %s has no address", name)
	return w.notes(name)["ovn.kubernetes.io/ip_address"]
}

// counts waits until a Subnet's status says this of its IPv4 addresses.
func (w *world) counts(t testing.TB, name, used, usedRange, free, freeRange string) {
	t.Helper()
	want, got := [4]string{used, usedRange, free, freeRange}, [4]string{}
	require.Eventually(t, func() bool {
		o, ok := lister[*v1.Subnet]{w, object.KindSubnet}.Get("", name)
		if ok {
			s := o.Status
			got = [4]string{string(s.V4UsingIPs), s.V4UsingIPRange, string(s.V4AvailableIPs), s.V4AvailableIPRange}
		}
		return got == want
	}, patience, tick, "Subnet %s: wanted %v, have %v", name, want, &got)
}

// named gives a Vpc the metadata that its key says.
func (w *world) named(k object.Key) {
	w.mu.Lock()
	defer w.unlock()
	if o, ok := w.objects[k].(*v1.Vpc); ok {
		now := o.DeepCopy()
		now.Name, now.UID = k.Name, types.UID("uid-"+k.Name)
		w.put(k, now)
	}
}
