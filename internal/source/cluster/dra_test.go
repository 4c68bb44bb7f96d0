package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/source/device"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

var _ device.Slices = (*cluster.Source)(nil)

const (
	attrID       = "k8s.cni.cncf.io/deviceID"
	attrResource = "k8s.cni.cncf.io/resourceName"
	sliceReaders = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS-slices}
rules: [{apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-slices}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-slices}
subjects: [{kind: ServiceAccount, name: agent, namespace: NS}]
`
)

// resourceSlice is an object with one device; where is "nodeName: x" or
// "allNodes: true".
func resourceSlice(name, where, pool string, generation int, dev, id string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: %s}
spec:
  driver: nic.example.com
  %s
  pool: {name: %s, generation: %d, resourceSliceCount: 1}
  devices:
  - name: %s
    attributes:
      %s: {string: "%s"}
      %s: {string: example.com/vf}
      %s/index: {int: 7}
      vendor: {string: acme}
`, name, where, pool, generation, dev, attrID, id, attrResource, "k8s.cni.cncf.io")
}

// sourceAs runs a Source of the node ns with the rights of a service account.
func sourceAs(t *testing.T, c *kube.Cluster, ns string, cfg *rest.Config) *cluster.Source {
	t.Helper()
	s := cluster.New(cluster.Config{Kubeconfig: c.Kubeconfig(cfg), Node: ns, UserAgent: "test"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s
}

func TestAttributesOfDRADevices(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	c.Apply(strings.ReplaceAll(sliceReaders, "NS", ns))
	here, there := "nodeName: "+ns, "nodeName: other"
	c.Apply(resourceSlice(ns+"-a", here, ns, 2, "vf0", "0000:03:02.0"))
	c.Apply(resourceSlice(ns+"-old", here, ns, 1, "vf0", "0000:ff:02.0"))
	c.Apply(resourceSlice(ns+"-gone", here, ns, 1, "vf9", "0000:ff:02.9"))
	c.Apply(resourceSlice("other-a", there, "other", 1, "vf0", "0000:99:02.0"))
	cfg := c.ServiceAccountConfig(ns, "agent")
	begin := c.Mark()
	s := sourceAs(t, c, ns, cfg)
	asked := func(verbs []string, since kube.Mark) (paths []string) {
		for _, r := range c.Requests(kube.Filter{Since: since, User: "system:serviceaccount:" + ns + ":agent", Resource: "resourceslices", Verbs: verbs}) {
			paths = append(paths, r.Verb+" "+r.URI)
		}
		return paths
	}
	require.Eventually(t, func() bool {
		return len(c.Requests(kube.Filter{Since: begin, User: "system:serviceaccount:" + ns + ":agent"})) > 0
	}, patience, 50*time.Millisecond)
	require.Empty(t, asked(nil, begin), "nobody has asked yet")

	get := func(pool, dev, name string) (string, error) {
		return s.Attribute(t.Context(), "nic.example.com", pool, dev, name)
	}
	require.Eventually(t, func() bool { _, err := get(ns, "vf0", attrID); return err == nil }, patience, 50*time.Millisecond)
	v, err := get(ns, "vf0", attrID)
	require.NoError(t, err)
	require.Equal(t, "0000:03:02.0", v, "the newest generation of the pool counts")
	v, err = get(ns, "vf0", attrResource)
	require.NoError(t, err)
	require.Equal(t, "example.com/vf", v)
	_, err = get(ns, "vf0", "k8s.cni.cncf.io/index")
	require.ErrorIs(t, err, core.ErrNotFound, "no string")
	require.Eventually(t, func() bool { // once the watch behind the list has begun
		since := c.Mark()
		_, err := get(ns, "vf0", attrID)
		return err == nil && len(asked(kube.Reads, since)) == 0
	}, patience, 50*time.Millisecond, "what is followed is not read")

	_, err = get(ns, "vf9", attrID)
	require.ErrorIs(t, err, core.ErrNotFound, "of an older generation")
	_, err = get("other", "vf0", attrID)
	require.ErrorIs(t, err, core.ErrNotFound, "another node's")

	// pools that are no node's own, and what a driver published a moment ago
	c.Apply(resourceSlice(ns+"-fabric", "allNodes: true", "fabric", 1, "port0", "p0"))
	v, err = get("fabric", "port0", attrID)
	require.NoError(t, err)
	require.Equal(t, "p0", v)
	c.Apply(resourceSlice(ns+"-new", here, ns+"/late", 1, "vf0", "0000:05:02.0"))
	v, err = get(ns+"/late", "vf0", attrID)
	require.NoError(t, err)
	require.Equal(t, "0000:05:02.0", v)
	c.Delete(resourceSlice(ns+"-a", here, ns, 2, "vf0", ""))
	require.Eventually(t, func() bool { v, _ := get(ns, "vf0", attrID); return v == "0000:ff:02.0" }, patience, 50*time.Millisecond)
}

// Without the right to read them the agent says so and does not make pods wait
// each time.
func TestSlicesThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	s := sourceAs(t, c, ns, c.ServiceAccountConfig(ns, "agent"))
	require.Eventually(t, func() bool {
		_, err := s.Attribute(t.Context(), "nic.example.com", ns, "vf0", attrID)
		return err != nil && strings.Contains(err.Error(), "forbidden")
	}, patience, 50*time.Millisecond)
	_, err := s.Attribute(t.Context(), "nic.example.com", ns, "vf0", attrID)
	require.ErrorIs(t, err, core.ErrUnavailable)
	require.ErrorContains(t, err, "resourceslices")
}
