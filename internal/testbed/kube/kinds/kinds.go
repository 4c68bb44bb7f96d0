// Package kinds puts the CRDs of a cluster with a controller (deploy/cluster), and some of
// others, into a test's cluster, which has those of deploy/crds already. It must not
// know what is done with their objects.
package kinds

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// patience bounds the wait for kinds to be served.
const patience = time.Minute

// Install installs the CRDs and waits until their objects can be written. It may
// be repeated, and several tests of a shared cluster may call it at once.
func Install(t testing.TB, c *kube.Cluster) {
	t.Helper()
	root, err := testbed.Repository()
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "deploy/cluster/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var texts []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		texts = append(texts, string(text))
	}
	install(t, c, texts)
}

//go:embed testdata/ipamclaims.yaml
var ipamClaims string

// IPAMClaims installs that kind, which no part of Fairlead installs, as Install does.
func IPAMClaims(t testing.TB, c *kube.Cluster) {
	t.Helper()
	install(t, c, []string{ipamClaims})
}

//go:embed testdata/ippools.yaml
var ipPools string

// IPPools installs that of whereabouts, which no part of Fairlead installs, as Install does.
func IPPools(t testing.TB, c *kube.Cluster) {
	t.Helper()
	install(t, c, []string{ipPools})
}

func install(t testing.TB, c *kube.Cluster, texts []string) {
	t.Helper()
	var crds []*unstructured.Unstructured
	for _, text := range texts {
		crds = append(crds, c.With(t).Apply(text)...)
	}
	for _, crd := range crds {
		require.Eventually(t, func() bool { return served(c, crd) }, patience, 20*time.Millisecond, "CRD %s is not established", crd.GetName())
	}
}

// served tells that the kind's objects can be listed: the server begins to
// answer a moment after the CRD says Established.
func served(c *kube.Cluster, crd *unstructured.Unstructured) bool {
	ctx, client := context.Background(), c.Dynamic()
	now, err := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil || !established(now) {
		return false
	}
	group, _, _ := unstructured.NestedString(now.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(now.Object, "spec", "names", "plural")
	stored, _, _ := unstructured.NestedStringSlice(now.Object, "status", "storedVersions")
	_, err = client.Resource(schema.GroupVersionResource{Group: group, Version: stored[0], Resource: plural}).List(ctx, metav1.ListOptions{Limit: 1})
	return err == nil
}

// established reads the CRD's condition of that name.
func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}
