package logical

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// drawn is a policy of a namespace, of all the shapes that peers and ports have.
func drawn(r *rand.Rand, namespace, name string) *NetworkPolicy {
	app := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(r.IntN(3))}}
	}
	var peers []networking.NetworkPolicyPeer
	for range r.IntN(3) {
		o := networking.NetworkPolicyPeer{PodSelector: app()}
		switch r.IntN(6) {
		case 0, 1:
			o.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(r.IntN(3))}}
		case 2:
			o.NamespaceSelector = &metav1.LabelSelector{}
		case 3: // wrong: nobody
			o.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}
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
		spec.PolicyTypes = []networking.PolicyType{networking.PolicyTypeEgress}
		spec.Egress = []networking.NetworkPolicyEgressRule{{To: peers, Ports: ports}}
	}
	return ReadNetworkPolicy(namespace, name, spec)
}

// truth is what an index was told, to be looked at as a whole.
type truth struct {
	labels   map[string]map[string]string
	pods     map[string]map[string]*Member
	policies map[string]*NetworkPolicy
}

// meets tells that a policy's pods and another may be in one Vpc: a and b are linked.
func (w *truth) meets(p *NetworkPolicy, m *Member) bool {
	linked := map[string]string{"a": "ab", "b": "ab"}
	unknown, some, met := m.Vpc == "", false, false
	for _, own := range w.pods[p.namespace] {
		if p.Selects(own.Labels) {
			some, unknown = true, unknown || own.Vpc == ""
			met = met || own.Vpc == m.Vpc || linked[own.Vpc] != "" && linked[own.Vpc] == linked[m.Vpc]
		}
	}
	return unknown || !some || met
}

// same requires that each policy sees the pods that it selects.
func (w *truth) same(t *testing.T, x *Pods) {
	t.Helper()
	for _, p := range w.policies {
		seen := x.Seen(p)
		for _, s := range p.selections() {
			var want []*Member
			for namespace, pods := range w.pods {
				for _, m := range pods {
					if s.in(namespace, w.labels[namespace]) && s.selects(m) && w.meets(p, m) {
						want = append(want, m)
					}
				}
			}
			require.ElementsMatch(t, want, seen[s.key], "%s: %s", p.name, s.key)
		}
	}
}

// TestPods: whatever comes of pods, policies and namespaces' labels, a policy sees
// the pods that it selects, and what changes concerns the policies that see it.
func TestPods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, w := NewPods(), &truth{map[string]map[string]string{}, map[string]map[string]*Member{}, map[string]*NetworkPolicy{}}
	require.True(t, x.Link("a", []string{"b"}))
	require.True(t, x.Link("b", []string{"a"}))
	require.False(t, x.Link("b", []string{"a"}))
	told, more := 0, 0
	for range 3000 {
		in, name := fmt.Sprintf("ns%d", r.IntN(4)), fmt.Sprint(r.IntN(3))
		was := map[*NetworkPolicy]Seen{}
		for _, p := range w.policies {
			was[p] = x.Seen(p)
		}
		var want, got []*NetworkPolicy
		switch r.IntN(4) {
		case 0:
			w.labels[in] = map[string]string{"team": fmt.Sprint(r.IntN(3))}
			got = x.Label(in, w.labels[in])
		case 1:
			key := in + "/" + name
			before := w.policies[key]
			if delete(w.policies, key); r.IntN(3) > 0 {
				w.policies[key] = drawn(r, in, name)
				x.Add(w.policies[key])
			}
			if before != nil {
				x.Remove(before)
				delete(was, before)
			}
		default:
			now := &Member{
				Name: name, Labels: map[string]string{"app": fmt.Sprint(r.IntN(3))}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
				Ports: []ContainerPort{{Name: "web", Protocol: "TCP", Number: 1 + r.IntN(3)}},
				Vpc:   []string{"", "a", "a", "a", "b", "b", "c", "c"}[r.IntN(8)],
			}
			now.texts = texts(now.IPs) // as the index has it
			if r.IntN(3) == 0 {
				now = nil
			}
			before := w.pods[in][name]
			got = x.Put(in, name, now)
			if w.pods[in] == nil {
				w.pods[in] = map[string]*Member{}
			}
			switch {
			case now == nil:
				delete(w.pods[in], name)
			case !reflect.DeepEqual(before, now): // else the one that it has stays
				w.pods[in][name] = now
			}
		}
		for p, seen := range was {
			if !sameSeen(seen, x.Seen(p)) {
				want = append(want, p)
			}
		}
		require.Subset(t, got, want)
		require.Len(t, slices.Compact(slices.SortedFunc(slices.Values(got), func(a, b *NetworkPolicy) int {
			return cmp.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name)
		})), len(got))
		w.same(t, x)
		told, more = told+len(want), more+len(got)
	}
	require.Greater(t, told, 1000, "policies that were concerned")
	require.Less(t, more, 2*told, "policies that were looked at")
	for _, p := range w.policies {
		x.Remove(p)
	}
	require.Empty(t, x.selections)
}

func sameSeen(a, b Seen) bool {
	for key, pods := range a {
		other := b[key]
		if len(pods) != len(other) || slices.ContainsFunc(pods, func(m *Member) bool { return !slices.Contains(other, m) }) {
			return false
		}
	}
	return len(a) == len(b)
}

// BenchmarkPods is what policies cost a pod of a large cluster that comes and goes.
func BenchmarkPods(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	x := NewPods()
	for i := range 50 {
		in := fmt.Sprintf("ns%d", i)
		x.Label(in, map[string]string{"team": fmt.Sprint(i % 3)})
		for j := range 4 {
			x.Add(drawn(r, in, fmt.Sprint(j)))
		}
		for j := range 200 {
			name := fmt.Sprint("pod", j)
			x.Put(in, name, &Member{Name: name, Labels: map[string]string{"app": fmt.Sprint(j % 3)}, IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)})}})
		}
	}
	for b.Loop() {
		for _, m := range []*Member{{Name: "one", Labels: map[string]string{"app": "1"}}, nil} {
			for _, p := range x.Put("ns0", "one", m) {
				p.Set(x.Seen(p), nil)
			}
		}
	}
}

// TestForget: of a namespace that is forgotten nothing is kept, unless it has pods; one of its
// name is seen by what selects it.
func TestForget(t *testing.T) {
	x := NewPods()
	p := ReadNetworkPolicy("a", "p", networking.NetworkPolicySpec{Ingress: []networking.NetworkPolicyIngressRule{{
		From: []networking.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "t"}}}},
	}}})
	x.Add(p)
	come := func(labels map[string]string) []*NetworkPolicy {
		x.Label("b", labels)
		return x.Put("b", "q", &Member{Name: "q", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}})
	}
	require.Equal(t, []*NetworkPolicy{p}, come(map[string]string{"team": "t"}))
	x.Forget("b")
	require.Len(t, x.Of("b"), 1)
	x.Put("b", "q", nil)
	x.Forget("b")
	x.Forget("none")
	require.Empty(t, x.spaces)
	require.Empty(t, come(map[string]string{"team": "other"}))
	require.Equal(t, []*NetworkPolicy{p}, x.Label("b", map[string]string{"team": "t"}))
}
