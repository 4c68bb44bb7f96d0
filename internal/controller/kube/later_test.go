package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	v1 "github.com/fairlead/fairlead/api/v1"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/testbed"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/kinds"
)

// TestLaterKinds: an object of each kind that nobody carries out is told so, of each
// version of it, and keeps all else that its status says; a kind may be installed
// later.
func TestLaterKinds(t *testing.T) {
	t.Parallel()
	c := alone(t)
	kinds.Install(t, c)
	mark := c.Mark()
	c.Kubectl("delete", "crd", "bgp-confs.kubeovn.io")
	objects, err := kube.New(account(t, c), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, objects.TellLater(ctx)) })
	t.Cleanup(func() { end(); wg.Wait() })

	root, err := testbed.Repository()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "deploy/testdata/later.yaml"))
	require.NoError(t, err)
	all := strings.Split(string(text), "\n---\n")
	require.Len(t, all, len(v1.Later()))
	of := func(k v1.LaterKind) dynamic.ResourceInterface {
		if k.Namespaced {
			return c.Dynamic().Resource(k.Resource()).Namespace(metav1.NamespaceDefault)
		}
		return c.Dynamic().Resource(k.Resource())
	}
	told := func(k v1.LaterKind, generation int64) (o *unstructured.Unstructured) {
		t.Helper()
		require.Eventually(t, func() bool {
			if o, err = of(k).Get(t.Context(), "full", metav1.GetOptions{}); err != nil {
				return false
			}
			conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			if len(conditions) == 0 {
				return false
			}
			last := conditions[len(conditions)-1].(map[string]any)
			return last["type"] == "NotImplemented" && last["status"] == "True" && last["reason"] == "KindNotImplemented" && last["observedGeneration"] == generation
		}, patience, tick, "%s: %v", k.Kind, err)
		return o
	}
	for _, one := range all[1:] { // the first kind is not installed
		c.Apply(one)
	}
	kindsOf := v1.Later()
	for _, k := range kindsOf[1:] {
		told(k, 1)
	}
	kinds.Install(t, c)
	c.Apply(all[0])
	require.Equal(t, "BgpConf", told(kindsOf[0], 1).GetKind())

	// What others say stays, whatever keys that has.
	eip := kindsOf[8]
	_, err = of(eip).Patch(t.Context(), "full", types.MergePatchType, []byte(`{"spec": {"type": "lsp"}, "status": {"ready": true, "conditions": [{"type": "Theirs", "new": 1}]}}`),
		metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	c.Kubectl("patch", "oeip", "full", "--type=merge", "-p", `{"spec": {"type": "lsp"}}`)
	o := told(eip, 2)
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	require.Len(t, conditions, 2)
	require.Equal(t, map[string]any{"type": "Theirs", "new": int64(1)}, conditions[0])
	ready, _, _ := unstructured.NestedBool(o.Object, "status", "ready")
	require.True(t, ready)
	patches := c.Requests(kubebed.Filter{Since: mark, UserAgent: agent, Verbs: []string{"patch"}, Resource: "ovn-fips"})
	require.Len(t, patches, 1, fmt.Sprint(patches)) // what was told is not told again
	for _, k := range kindsOf {
		require.NoError(t, of(k).Delete(context.Background(), "full", metav1.DeleteOptions{}))
	}
}
