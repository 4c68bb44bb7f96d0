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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
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

// TestAgentsFillClaims: with a node's own token an IPAMClaim that names no address is told some,
// and nothing else is changed of any.
func TestAgentsFillClaims(t *testing.T) {
	s := newSite(t)
	kinds.IPAMClaims(t, s.Cluster)
	here := "here-" + s.ns
	_, err := s.root.CoreV1().Nodes().Create(t.Context(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: here}}, metav1.CreateOptions{})
	require.NoError(t, err)
	of := func(c dynamic.Interface) dynamic.ResourceInterface {
		return c.Resource(schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1alpha1", Resource: "ipamclaims"}).Namespace(s.ns)
	}
	as, err := dynamic.NewForConfig(s.tokenOf(here))
	require.NoError(t, err)
	agent, root, n := of(as), of(s.Dynamic()), 0
	const filled = `{"status":{"ips":["10.9.0.1/24"]}}`
	change := func(before, after string) error {
		n++
		name := fmt.Sprint("vm-", n)
		_, err := root.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim", "metadata": map[string]any{"name": name}, "spec": map[string]any{"network": "a", "interface": "net1"},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		if before != "" {
			_, err = root.Patch(t.Context(), name, types.MergePatchType, []byte(before), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
		}
		_, err = agent.Patch(t.Context(), name, types.MergePatchType, []byte(after), metav1.PatchOptions{}, "status")
		return err
	}
	require.Eventually(t, func() bool {
		return change(filled, `{"status":{"ips":["10.9.0.2/24"]}}`) != nil && change("", filled) == nil
	}, time.Minute, 50*time.Millisecond)
	for _, c := range []struct {
		name    string
		err     error
		refused string
	}{
		{"fill", change("", filled), ""},
		{"fill one that has an owner", change(`{"status":{"ips":[],"ownerPod":{"name":"a"}}}`, filled), ""},
		{"name another address", change(filled, `{"status":{"ips":["10.9.0.2/24"]}}`), "may not change which addresses an IPAMClaim names"},
		{"name none any more", change(filled, `{"status":{"ips":[]}}`), "may not change which addresses an IPAMClaim names"},
		{"say whose it is", change("", `{"status":{"ips":["10.9.0.1/24"],"ownerPod":{"name":"a"}}}`), "nothing of an IPAMClaim's status but its addresses"},
		{"say how it is", change("", `{"status":{"ips":["10.9.0.1/24"],"conditions":[{"type":"Ready"}]}}`), "nothing of an IPAMClaim's status but its addresses"},
	} {
		t.Run(c.name, func(t *testing.T) { judge(t, c.err, c.refused) })
	}
}
