package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/book"
	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/core"
)

// shelf is objects of one kind by namespace and name.
type shelf[T any] map[[2]string]T

func (s shelf[T]) Get(namespace, name string) (T, bool) {
	o, ok := s[[2]string{namespace, name}]
	return o, ok
}

func (s shelf[T]) List() []T { return slices.Collect(maps.Values(s)) }

// drawn is a policy of a namespace, of all the shapes that peers and ports have.
func drawn(r *rand.Rand, namespace, name string) object.NetworkPolicy {
	app := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(r.IntN(3))}}
	}
	var peers []networking.NetworkPolicyPeer
	for range r.IntN(3) {
		o := networking.NetworkPolicyPeer{PodSelector: app()}
		if r.IntN(2) == 0 {
			o.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(r.IntN(3))}}
		}
		peers = append(peers, o)
	}
	var ports []networking.NetworkPolicyPort
	switch web, number := intstr.FromString("web"), intstr.FromInt32(80); r.IntN(3) {
	case 0:
		ports = append(ports, networking.NetworkPolicyPort{Port: &web})
	case 1:
		ports = append(ports, networking.NetworkPolicyPort{Port: &number})
	}
	spec := networking.NetworkPolicySpec{PodSelector: *app()}
	if r.IntN(2) == 0 {
		spec.Ingress = []networking.NetworkPolicyIngressRule{{From: peers, Ports: ports}}
	} else {
		spec.Egress = []networking.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	}
	return object.NetworkPolicy{Namespace: namespace, Name: name, Spec: spec}
}

// TestNearPolicies: a pod asks the policies that reach its namespace, and these are
// all that it concerns, whatever came of policies and of namespaces' labels
// meanwhile; a policy sees every pod that concerns it.
func TestNearPolicies(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	rules, spaces := shelf[object.NetworkPolicy]{}, shelf[object.Namespace]{}
	s := newPolicies(object.Readers{Policies: rules, Namespaces: spaces})
	space := func() string { return fmt.Sprintf("ns%d", r.IntN(4)) }
	for range 3000 {
		switch in, name := space(), fmt.Sprint(r.IntN(3)); r.IntN(4) {
		case 0:
			spaces[[2]string{"", in}] = object.Namespace{Name: in, Labels: map[string]string{"team": fmt.Sprint(r.IntN(3))}}
			s.label(in)
		case 1:
			rules[[2]string{in, name}] = drawn(r, in, name)
			if r.IntN(3) == 0 {
				delete(rules, [2]string{in, name})
			}
			s.Changed(object.KindPolicy.Named(in, name))
			s.look()
		default:
			now := &logical.Member{
				Name: name, Labels: map[string]string{"app": fmt.Sprint(r.IntN(3))}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
				Ports: []logical.ContainerPort{{Name: "web", Protocol: "TCP", Number: 1 + r.IntN(9)}},
			}
			if r.IntN(3) == 0 {
				now = nil
			}
			before, had := s.faces[in][name]
			got := s.put(core.Pod{Namespace: in, Name: name}, now)
			require.ElementsMatch(t, concerned(s, in, had, before, now), got)
		}
	}
}

// concerned are the policies that a pod's change concerns, each of all being asked.
func concerned(s *policies, in string, had bool, before logical.Member, now *logical.Member) (keys []object.Key) {
	if now != nil && had && before.Labels["app"] == now.Labels["app"] && slices.Equal(before.Ports, now.Ports) || now == nil && !had {
		return nil
	}
	of := s.space(in)
	for namespace, all := range s.all {
		for name, p := range all {
			if had && p.Concerns(of, before) || now != nil && p.Concerns(of, *now) {
				keys = append(keys, object.KindPolicy.Named(namespace, name))
			}
		}
	}
	return keys
}

// BenchmarkPod is what policies cost a pod of a large cluster that comes and goes.
func BenchmarkPod(b *testing.B) {
	const namespaces = 50
	rules, spaces := shelf[object.NetworkPolicy]{}, shelf[object.Namespace]{}
	r := rand.New(rand.NewPCG(1, 2))
	s := newPolicies(object.Readers{Policies: rules, Namespaces: spaces})
	for i := range namespaces {
		in := fmt.Sprintf("ns%d", i)
		spaces[[2]string{"", in}] = object.Namespace{Name: in, Labels: map[string]string{"team": fmt.Sprint(i % 3)}}
		for j := range 4 {
			name := fmt.Sprint(j)
			rules[[2]string{in, name}] = drawn(r, in, name)
			s.Changed(object.KindPolicy.Named(in, name))
		}
		for j := range 200 {
			pod := core.Pod{Namespace: in, Name: fmt.Sprint("pod", j)}
			s.put(pod, &logical.Member{Name: pod.Name, Labels: map[string]string{"app": fmt.Sprint(j % 3)}})
		}
	}
	s.look()
	for b.Loop() {
		pod := core.Pod{Namespace: "ns0", Name: "one"}
		s.put(pod, &logical.Member{Name: "one", Labels: map[string]string{"app": "1"}})
		s.put(pod, nil)
	}
}

// counting counts how often all Subnets are read.
type counting struct {
	shelf[*v1.Subnet]
	lists *int
}

func (c counting) List() []*v1.Subnet {
	*c.lists++
	return c.shelf.List()
}

// TestCountsAreNoNews: a Subnet's status, which changes with every pod, has nobody
// look at all Subnets; what decides who is in force does.
func TestCountsAreNoNews(t *testing.T) {
	t.Parallel()
	lists, all, spaces, pools := 0, shelf[*v1.Subnet]{}, shelf[object.Namespace]{}, shelf[*v1.IPPool]{}
	n := newNetworks(object.Readers{Subnets: counting{all, &lists}, Namespaces: spaces, Pools: pools, Vpcs: shelf[*v1.Vpc]{}}, core.Subnet{}, book.New())
	told := func(what string, looks int, names ...string) {
		t.Helper()
		before := lists
		for _, name := range names {
			n.Changed(object.Key{Kind: object.KindSubnet, Name: name})
		}
		n.All()
		require.Equal(t, looks, lists-before, what)
	}
	change := func(name string, do func(*v1.Subnet)) {
		o := &v1.Subnet{}
		if was := all[[2]string{"", name}]; was != nil {
			o = was.DeepCopy()
		}
		o.Name = name
		do(o)
		all[[2]string{"", name}] = o
	}
	change("a", func(o *v1.Subnet) { o.Spec = v1.SubnetSpec{CIDRBlock: "10.0.0.0/24", Default: true} })
	told("it came", 1, "a")
	_, look := n.Since(0)
	change("a", func(o *v1.Subnet) { o.Status.V4UsingIPs = []byte("7") })
	told("its counts", 0, "a")
	none, again := n.Since(look)
	require.Nil(t, none)
	require.Equal(t, look, again)

	change("a", func(o *v1.Subnet) { o.Spec.CIDRBlock = "10.0.0.0/25" })
	told("its spec", 1, "a")
	require.Equal(t, 25, n.All()["a"].CIDRs[0].Bits())
	change("a", func(o *v1.Subnet) { o.UID = "another" })
	told("made anew", 1, "a")
	spaces[[2]string{"", "x"}] = object.Namespace{Name: "x"}
	n.Changed(object.Key{Kind: object.KindNamespace, Name: "x"})
	told("a namespace", 1)
	n.Changed(object.Key{Kind: object.KindNamespace, Name: "x"})
	told("the same namespace", 0)
	pools[[2]string{"", "p"}] = &v1.IPPool{Spec: v1.IPPoolSpec{Subnet: "a"}}
	n.Changed(object.Key{Kind: object.KindPool, Name: "p"})
	told("a pool", 1)
	delete(all, [2]string{"", "a"})
	told("it went", 1, "a")
	require.NotContains(t, n.All(), "a")
}
