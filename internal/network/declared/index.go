package declared

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/api/net/v1alpha1"
	"github.com/fairlead/fairlead/internal/core"
)

// ConfigMap is one with the label by which it declares settings of pods.
type ConfigMap struct {
	Namespace, Name string
	Data            map[string]string // by names of pods
}

// Index is all that is declared, for questions about single pods. The zero value is
// nothing.
type Index struct {
	pods     map[name]*v1alpha1.PodNetwork   // of single pods
	sets     map[name][]*v1alpha1.PodNetwork // of StatefulSets
	maps     map[string][]ConfigMap          // by namespace
	common   string                          // the namespace whose ConfigMaps are about pods of all others
	ordinals Ordinals
	broken   map[name]error // of single pods
	kept     []Kept
	faults   []Fault
}

// Fault is what is wrong with a part of an object; the pods that it is about hear it too.
type Fault struct {
	Object          string // "ConfigMap bank/db-net"
	Namespace, Name string
	Pod             string // whose settings they are, the key
	Err             error
}

// Ordinals tells a StatefulSet's first ordinal (spec.ordinals.start), and how many pods it
// is to have (spec.replicas): of one that is not there 0 and 0, and math.MaxInt32 pods where
// that is not known.
type Ordinals func(ctx context.Context, namespace, set string) (start, replicas int, err error)

type name struct{ namespace, name string }

// NewIndex makes one of objects in any order. common is the
// agent's namespace, "" for none. Without ordinals all StatefulSets begin at 0.
func NewIndex(pods []*v1alpha1.PodNetwork, maps []ConfigMap, common string, ordinals Ordinals) *Index {
	x := &Index{pods: map[name]*v1alpha1.PodNetwork{}, sets: map[name][]*v1alpha1.PodNetwork{}, maps: map[string][]ConfigMap{}, common: common, ordinals: ordinals, broken: map[name]error{}}
	for _, p := range pods {
		if set := p.Spec.StatefulSet; set != "" {
			at := name{p.Namespace, set}
			x.sets[at] = append(x.sets[at], p)
		} else {
			x.pods[name{p.Namespace, p.Name}] = p
		}
	}
	for _, m := range maps {
		x.maps[m.Namespace] = append(x.maps[m.Namespace], m)
	}
	for _, all := range x.sets {
		slices.SortFunc(all, func(a, b *v1alpha1.PodNetwork) int { return cmp.Compare(a.Name, b.Name) })
	}
	for _, all := range x.maps {
		slices.SortFunc(all, func(a, b ConfigMap) int { return cmp.Compare(a.Name, b.Name) })
	}
	x.keep()
	return x
}

// Of is what is declared of a pod, the strongest first. Errors are those of the
// objects that speak of it (Of, InConfigMap), and those of Ordinals.
func (x *Index) Of(ctx context.Context, pod core.Pod) ([]Declaration, error) {
	var out []Declaration
	var failed []error
	add := func(d *Declaration, err error) {
		if failed = append(failed, err); d != nil {
			out = append(out, *d)
		}
	}
	add(nil, x.broken[name{pod.Namespace, pod.Name}])
	if p := x.pods[name{pod.Namespace, pod.Name}]; p != nil {
		add(Of(p, pod, 0))
	}
	if i := strings.LastIndexByte(pod.Name, '-'); i > 0 {
		set := pod.Name[:i]
		for _, p := range x.sets[name{pod.Namespace, set}] {
			start, replicas, err := x.of(ctx, pod.Namespace, set)
			if err != nil {
				return nil, core.WithCode(core.CodeTryAgain, "PodNetwork "+p.Namespace+"/"+p.Name, err)
			}
			d, err := Of(p, pod, start)
			if n, ok := ordinal(pod.Name, set); ok && d != nil {
				d.Beyond = n >= start+replicas
			}
			add(d, err)
		}
	}
	for _, m := range x.maps[pod.Namespace] {
		add(InConfigMap(m.Namespace, m.Name, m.Data, pod, OfNamespace))
	}
	if x.common != "" && x.common != pod.Namespace {
		for _, m := range x.maps[x.common] {
			add(InConfigMap(m.Namespace, m.Name, m.Data, pod, OfAll))
		}
	}
	return out, errors.Join(failed...)
}

// About tells that something is declared of a pod, right or wrong.
func (x *Index) About(pod core.Pod) bool {
	at := name{pod.Namespace, pod.Name}
	if x.pods[at] != nil || x.broken[at] != nil {
		return true
	}
	if i := strings.LastIndexByte(pod.Name, '-'); i > 0 && len(x.sets[name{pod.Namespace, pod.Name[:i]}]) > 0 {
		return true
	}
	named := func(m ConfigMap) bool { _, ok := m.Data[pod.Name]; return ok }
	return slices.ContainsFunc(x.maps[pod.Namespace], named) || x.common != "" && slices.ContainsFunc(x.maps[x.common], named)
}

func (x *Index) of(ctx context.Context, namespace, set string) (start, replicas int, err error) {
	if x.ordinals == nil {
		return 0, math.MaxInt32, nil
	}
	return x.ordinals(ctx, namespace, set)
}

// Says tells whether what a pod's interface claims is declared of the pod still, and its
// StatefulSet not scaled down below it where it is kept until then. What cannot be told is
// taken for declared.
func (x *Index) Says(ctx context.Context, pod core.Pod, c core.Claim) bool {
	all, err := x.Of(ctx, pod)
	if err != nil {
		return true
	}
	for _, d := range all {
		for _, i := range d.Interfaces {
			has := func(text string) bool { a, err := parseAddr(text); return err == nil && a == c.Addr }
			if d.Beyond && i.Retain == v1alpha1.RetainUntilScaleDown {
				continue
			}
			if c.Addr.IsValid() && slices.ContainsFunc(i.IPs, has) || !c.Addr.IsValid() && strings.EqualFold(i.MAC, c.MAC.String()) {
				return true
			}
		}
	}
	return false
}

// PodNetworks are all of them, by namespace and name. They are the Index's own.
func (x *Index) PodNetworks() (out []*v1alpha1.PodNetwork) {
	for _, p := range x.pods {
		out = append(out, p)
	}
	for _, all := range x.sets {
		out = append(out, all...)
	}
	slices.SortFunc(out, func(a, b *v1alpha1.PodNetwork) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Break notes, before the Index is asked, that the PodNetwork of a pod's name is there
// and cannot be read: the pod hears why.
func (x *Index) Break(namespace, pod string, err error) { x.broken[name{namespace, pod}] = err }

// Kept are addresses that are declared, for whom: nobody else is given them.
type Kept struct {
	core.AddrRange

	Namespace string // of the pods; "" for those of the common namespace, which are of any
	Pod       string // "" where Set says which pods
	Set       string
	Network   string         // as declared, "" where the object does not say
	VLAN      *v1alpha1.VLAN // declared with them, nil for none
	Source    string
	Subnet    string // in which they are looked at
}

// Faults are what is wrong in ConfigMaps, in order.
func (x *Index) Faults() []Fault { return x.faults }

// For tells that they are kept for a pod.
func (k Kept) For(pod core.Pod) bool {
	if k.Namespace != "" && k.Namespace != pod.Namespace {
		return false
	}
	if k.Set == "" {
		return k.Pod == pod.Name
	}
	_, ok := ordinal(pod.Name, k.Set)
	return ok
}

func (x *Index) keep() {
	for _, p := range x.pods {
		x.keepAll(p.Spec.Interfaces, Kept{Namespace: p.Namespace, Pod: p.Name, Source: "PodNetwork " + p.Namespace + "/" + p.Name})
	}
	for at, all := range x.sets {
		for _, p := range all {
			x.keepAll(p.Spec.Interfaces, Kept{Namespace: p.Namespace, Set: at.name, Source: "PodNetwork " + p.Namespace + "/" + p.Name})
		}
	}
	for namespace, all := range x.maps {
		for _, m := range all {
			for pod := range m.Data {
				x.keepOf(m, core.Pod{Namespace: namespace, Name: pod})
			}
		}
	}
	slices.SortFunc(x.faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Pod, b.Pod)) })
	slices.SortFunc(x.kept, func(a, b Kept) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To), cmp.Compare(a.Source, b.Source))
	})
}

// keepOf keeps what a ConfigMap declares of a pod.
func (x *Index) keepOf(m ConfigMap, pod core.Pod) {
	d, err := InConfigMap(m.Namespace, m.Name, m.Data, pod, OfNamespace)
	if err != nil {
		x.faults = append(x.faults, Fault{"ConfigMap " + m.Namespace + "/" + m.Name, m.Namespace, m.Name, pod.Name, err})
		return
	}
	k := Kept{Namespace: pod.Namespace, Pod: pod.Name, Source: d.Source}
	if m.Namespace == x.common {
		k.Namespace = ""
	}
	for _, i := range d.Interfaces {
		x.keepAll([]v1alpha1.PodInterface{i.PodInterface}, k)
	}
}

func (x *Index) keepAll(all []v1alpha1.PodInterface, k Kept) {
	for _, i := range all {
		k.Network, k.VLAN = i.Network, i.VLAN
		if r, _, err := parseRange(i.IPRange); err == nil {
			k.AddrRange = r
			x.kept = append(x.kept, k)
		}
		for _, text := range i.IPs {
			if a, err := parseAddr(text); err == nil {
				k.AddrRange = core.AddrRange{From: a, To: a}
				x.kept = append(x.kept, k)
			}
		}
	}
}

// Within are the kept addresses of a Subnet, of which nad is the network ("" for none).
func (x *Index) Within(s core.Subnet, nad string) (out []Kept) {
	for _, k := range x.kept {
		inside := slices.ContainsFunc(s.CIDRs, func(p netip.Prefix) bool { return p.Contains(k.From) && p.Contains(k.To) })
		if inside && slices.Contains([]string{"", nad, s.Name}, k.Network) {
			k.Subnet = s.Name
			out = append(out, k)
		}
	}
	return out
}

// In are the kept addresses of a network without Subnet, of which there tells whether those
// that are declared with a network are in it.
func (x *Index) In(there func(Kept) bool) (out []Kept) {
	for _, k := range x.kept {
		if k.Network == "" || there(k) {
			out = append(out, k)
		}
	}
	return out
}

// Held is an AddressHeld (11) where an address is kept for another pod.
func Held(kept []Kept, pod core.Pod, ip netip.Addr) error {
	i := slices.IndexFunc(kept, func(k Kept) bool { return k.Contains(ip) && !k.For(pod) })
	if i < 0 {
		return nil
	}
	k, where := kept[i], ""
	switch {
	case k.Subnet != "":
		where = " of subnet " + k.Subnet
	case k.Network != "":
		where = " of network " + k.Network
	}
	return core.Blame(core.Reasoned(core.CodeTryAgain, core.ReasonAddressHeld, "address %s%s is kept for another pod: %s declares it", ip, where, k.Source), k.Source)
}
