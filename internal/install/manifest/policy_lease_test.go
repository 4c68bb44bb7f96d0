package manifest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// TestAgentsLeaseForTheirNode: with a node's own token leases are made, taken and given back
// in that node's name alone.
func TestAgentsLeaseForTheirNode(t *testing.T) {
	s := newSite(t)
	here, there := "here-"+s.ns, "there-"+s.ns
	for _, n := range []string{here, there} {
		_, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	kind := schema.GroupVersionResource{Group: "net.fairlead.io", Version: "v1alpha1", Resource: "addressleases"}
	of := func(node string) dynamic.ResourceInterface {
		c, err := dynamic.NewForConfig(s.tokenOf(node))
		require.NoError(t, err)
		return c.Resource(kind)
	}
	agent, other, root := of(here), of(there), s.Dynamic().Resource(kind)
	lease := func(n int, node string, notes map[string]string) *unstructured.Unstructured {
		holder := map[string]any{"epoch": int64(1)}
		if node != "" {
			holder["sandbox"], holder["node"] = "c1", node
		}
		address := fmt.Sprintf("10.9.0.%d", n)
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "net.fairlead.io/v1alpha1", "kind": "AddressLease",
			"spec": map[string]any{
				"domain": s.ns, "address": address, "holder": holder,
				"owner": map[string]any{"namespace": "a", "pod": "b", "interface": "net1"},
			},
			"status": map[string]any{"phase": "Bound"},
		}}
		o.SetName(s.ns + "." + address)
		o.SetAnnotations(notes)
		return o
	}
	create := func(as dynamic.ResourceInterface, o *unstructured.Unstructured) error {
		_, err := as.Create(t.Context(), o, metav1.CreateOptions{})
		return err
	}
	n := 0
	require.Eventually(t, func() bool {
		n++
		return create(agent, lease(n, there, nil)) != nil && create(agent, lease(n, here, nil)) == nil
	}, time.Minute, 50*time.Millisecond)
	change := func(as dynamic.ResourceInterface, from, to string, notes map[string]string) error {
		n++
		require.NoError(t, create(root, lease(n, from, nil)))
		have, err := root.Get(t.Context(), lease(n, from, nil).GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		next := lease(n, to, notes)
		next.SetResourceVersion(have.GetResourceVersion())
		_, err = as.Update(t.Context(), next, metav1.UpdateOptions{})
		return err
	}
	contest := func(as dynamic.ResourceInterface, of, phase, by string) error {
		n++
		require.NoError(t, create(root, lease(n, of, nil)))
		have, err := root.Get(t.Context(), lease(n, of, nil).GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, unstructured.SetNestedField(have.Object, phase, "status", "phase"))
		if by != "" {
			require.NoError(t, unstructured.SetNestedField(have.Object, by, "spec", "declaredBy"))
		}
		_, err = as.Update(t.Context(), have, metav1.UpdateOptions{})
		return err
	}
	remove := func(as dynamic.ResourceInterface, of string) error {
		n++
		require.NoError(t, create(root, lease(n, of, nil)))
		return as.Delete(t.Context(), lease(n, of, nil).GetName(), metav1.DeleteOptions{})
	}
	n++
	for _, c := range []struct {
		name    string
		err     error
		refused string
	}{
		{"make one for another node", create(other, lease(n, here, nil)), "may not lease anything to node " + here},
		{"make one for nobody", create(agent, lease(n, "", nil)), "no lease that nobody has"},
		{"bind what nobody has", change(agent, "", here, nil), ""},
		{"bind again", change(agent, here, here, nil), ""},
		{"bind what a node had that is dead", change(agent, there, here, nil), ""},
		{"give back", change(agent, here, "", nil), ""},
		{"give to another node", change(agent, here, there, nil), "may not lease anything to node " + there},
		{"give back another's", change(agent, there, "", nil), "may not give back what node " + there},
		{"say that another's is in conflict", contest(agent, there, "Conflict", ""), ""},
		{"say that, and by whom it is declared", contest(agent, there, "Conflict", "nobody"), "may not lease anything to node " + there},
		{"say that another's is reserved", contest(agent, there, "Reserved", ""), "may not lease anything to node " + there},
		{"say who stole it", change(agent, here, here, map[string]string{"net.fairlead.io/stolen-by": "nobody"}), "may not change by whom"},
		{"delete what nobody has", remove(agent, ""), ""},
		{"delete its own", remove(agent, here), ""},
		{"delete another's", remove(agent, there), "may not give back what node " + there},
	} {
		t.Run(c.name, func(t *testing.T) { judge(t, c.err, c.refused) })
	}
}
