package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/controller/logical"
	"github.com/fairlead/fairlead/internal/controller/object"
	"github.com/fairlead/fairlead/internal/controller/object/objecttest"
	"github.com/fairlead/fairlead/internal/core"
)

// TestNamespaceIsForgotten: of a namespace that is gone with its pods and policies, in
// whatever order, nothing is kept.
func TestNamespaceIsForgotten(t *testing.T) {
	t.Parallel()
	spaces, all := objecttest.Shelf[object.Namespace]{}, objecttest.Shelf[object.NetworkPolicy]{}
	s := newPolicies(object.Readers{Namespaces: spaces, Policies: all})
	pod, policy := core.Pod{Namespace: "ns", Name: "a"}, object.KindPolicy.Named("ns", "p")
	ends := map[string]func(){
		"namespace": func() { delete(spaces, "/ns"); s.label("ns") },
		"pod":       func() { s.put(pod, nil) },
		"policy":    func() { delete(all, "ns/p"); s.Changed(policy); s.look() },
	}
	for _, order := range [][]string{{"namespace", "pod", "policy"}, {"policy", "namespace", "pod"}, {"pod", "policy", "namespace"}} {
		spaces["/ns"], all["ns/p"] = object.Namespace{Name: "ns"}, object.NetworkPolicy{Namespace: "ns", Name: "p"}
		s.label("ns")
		s.doubt([]string{"networkpolicy/ns/p"})
		s.Changed(policy)
		s.look()
		s.put(pod, &logical.Member{Name: "a"})
		require.True(t, s.pods.Known("ns"))
		for _, what := range order {
			ends[what]()
		}
		require.False(t, s.pods.Known("ns"), order)
		require.Empty(t, s.all, order)
		require.Empty(t, s.untold, order)
	}
}

// TestPodBeforeItsNamespace: a pod of which is heard before its namespace is seen by policies that
// select that by its labels, whoever looks first.
func TestPodBeforeItsNamespace(t *testing.T) {
	t.Parallel()
	spaces, all := objecttest.Shelf[object.Namespace]{}, objecttest.Shelf[object.NetworkPolicy]{}
	s := newPolicies(object.Readers{Namespaces: spaces, Policies: all})
	policy := object.KindPolicy.Named("ns", "p")
	from := networking.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	all["ns/p"] = object.NetworkPolicy{Namespace: "ns", Name: "p", Spec: networking.NetworkPolicySpec{
		Ingress: []networking.NetworkPolicyIngressRule{{From: []networking.NetworkPolicyPeer{from}}},
	}}
	s.doubt([]string{"networkpolicy/ns/p"})
	s.Changed(policy)
	s.look()
	pod, m := core.Pod{Namespace: "red", Name: "a"}, func() *logical.Member { return &logical.Member{Name: "a"} }
	require.Empty(t, s.put(pod, m()))
	spaces["/red"] = object.Namespace{Name: "red", Labels: map[string]string{"team": "a"}}
	require.Equal(t, []object.Key{policy}, s.put(pod, m()))
	require.Empty(t, s.label("red"), "it is known")
}
