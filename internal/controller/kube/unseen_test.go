package kube

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/internal/controller/object"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestOwnWriteIsAwaited: what was compared with an object from before the last
// write is not written. What is dropped goes in the same write.
func TestOwnWriteIsAwaited(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	ns := c.Namespace()
	p := c.Apply(strings.ReplaceAll("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: NS}, spec: {containers: [{name: c, image: none}]}}", "NS", ns))[0]
	as := c.Admin()
	as.UserAgent = "fairlead-controller/own"
	objects, err := New(as, slog.New(slog.DiscardHandler)) // not run: the test is its watch
	require.NoError(t, err)
	o := object.Object{Key: object.Key{Kind: object.KindPod, Namespace: ns, Name: "p"}, UID: string(p.GetUID())}
	store := objects.all[object.KindPod].GetStore()
	seen := func(version string) {
		require.NoError(t, store.Add(&item[object.Pod]{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "p", UID: types.UID(o.UID), ResourceVersion: version}}))
	}
	mark := c.Mark()
	patches := func() int {
		return len(c.Requests(kubebed.Filter{Since: mark, UserAgent: as.UserAgent, Verbs: []string{"patch"}, Namespace: ns}))
	}

	seen(p.GetResourceVersion())
	for range 3 {
		require.NoError(t, objects.Annotate(t.Context(), o, map[string]string{"test/a": "1"}))
	}
	require.Equal(t, 1, patches())
	now, err := c.Client().CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	seen(now.ResourceVersion)
	require.NoError(t, objects.Annotate(t.Context(), o, map[string]string{"test/b": "2"}, "test/a"))
	require.Equal(t, 2, patches())
	now, err = c.Client().CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"test/b": "2"}, now.Annotations)
}
