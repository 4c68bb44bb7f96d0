package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

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
