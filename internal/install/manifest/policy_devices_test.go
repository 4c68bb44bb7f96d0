package manifest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestDevicesAreRequested: with policies.devices a pod requests the resources of its
// networks, be these named by itself, by a PodNetwork or by a ConfigMap; a pod that
// requests them itself is left alone.
func TestDevicesAreRequested(t *testing.T) {
	c := kube.Shared(t)
	ns := c.Namespace()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	require.NoError(t, v.Set("policies.devices.enabled=true"))
	objects, err := manifest.Render(v)
	require.NoError(t, err)
	text, err := manifest.YAML(objects)
	require.NoError(t, err)
	c.Apply(string(text))
	nad := func(ns, name, resource string) string {
		return `{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {namespace: ` + ns + `, name: ` + name + `, annotations: {k8s.v1.cni.cncf.io/resourceName: "` + resource + `"}}, spec: {config: '{}'}}
---
`
	}
	c.Apply(nad(ns, "db", "vendor.example/db") + nad(ns, "db2", "vendor.example/db") + nad("default", "shared-"+ns, "vendor.example/shared") + nad(ns, "plain", "") + `
{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + ns + `, name: mysql-0}, spec: {interfaces: [{name: net1, network: ` + ns + `/db}, {name: eth0, network: ovn-default}]}}
---
{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + ns + `, name: mysql-2}, spec: {interfaces: [{name: net1, network: ` + ns + `/db}, {name: net2, network: ` + ns + `/db}]}}
---
{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + ns + `, name: pg}, spec: {statefulSet: pg, interfaces: [{name: net1, network: default/shared-` + ns + `}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ` + ns + `, name: db, labels: {net.fairlead.io/pod-network: "true"}}, data: {mysql-1: '{"interface":"net1","network":"` + ns + `/db2","ip":"10.9.0.4/24"}'}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ` + ns + `, name: unlabelled}, data: {other: '{"interface":"net1","network":"` + ns + `/db2"}'}}
`)
	root, err := kubernetes.NewForConfig(c.Admin())
	require.NoError(t, err)
	made := func(name, networks string, own core.ResourceList) core.ResourceList {
		p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PodSpec{Containers: []core.Container{{Name: "c", Image: "none", Resources: core.ResourceRequirements{Limits: own}}}}}
		if networks != "" {
			p.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": networks}
		}
		out, err := root.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err)
		require.Equal(t, out.Spec.Containers[0].Resources.Limits, out.Spec.Containers[0].Resources.Requests)
		return out.Spec.Containers[0].Resources.Limits
	}
	of := func(name string, n int64) core.ResourceList {
		if n == 0 {
			return nil
		}
		return core.ResourceList{core.ResourceName("vendor.example/" + name): *resource.NewQuantity(n, resource.DecimalSI)}
	}
	same := func(want, have core.ResourceList) bool {
		if len(want) != len(have) {
			return false
		}
		for name, n := range want {
			if q, ok := have[name]; !ok || q.Cmp(n) != 0 {
				return false
			}
		}
		return true
	}
	require.Eventually(t, func() bool {
		return same(of("db", 1), made("mysql-0", "", nil)) && same(of("db", 1), made("mysql-1", "", nil)) && same(of("shared", 1), made("pg-3", "", nil))
	}, time.Minute, 200*time.Millisecond, "the server reads policies, parameters and objects a moment after they were stored")
	policies := root.AdmissionregistrationV1().MutatingAdmissionPolicies()
	for round := range 8 {
		touch := fmt.Sprintf(`{"metadata":{"annotations":{"round":"%d"}}}`, round)
		_, err := policies.Patch(t.Context(), "fairlead-devices-requested", types.MergePatchType, []byte(touch), metav1.PatchOptions{})
		require.NoError(t, err)
		time.Sleep(1100 * time.Millisecond) // the server reads changed policies each second, and each time they get another order
		require.True(t, same(of("db", 1), made("mysql-0", "", nil)), "round %d: whatever the order in which the server invokes policies", round)
		require.True(t, same(of("db", 2), made("mysql-2", "db@net1", nil)), "round %d: what is declared beyond what the pod asks for", round)
	}
	for _, c := range []struct {
		name, networks string
		own, want      core.ResourceList
	}{
		{"p", "db", nil, of("db", 1)},
		{"p", "db@net1, " + ns + "/db, plain, db2", nil, of("db", 3)},
		{"p", `[{"name": "db", "interface":"net1", "cni-args": {"a": {"b": 1}}}, {"name":"db2","namespace":"` + ns + `"}, {"name":"db2","namespace":"elsewhere"}]`, nil, of("db", 2)},
		{"p", "default/shared-" + ns, nil, of("shared", 1)},
		{"p", "db,db2", of("db", 7), of("db", 7)},
		{"p", "plain", nil, nil},
		{"other", "", nil, nil},
		{"mysql-0", "db@net1", nil, of("db", 1)},
		{"mysql-0", "db2", nil, of("db", 2)},
		{"mysql-1", "db", of("shared", 1), core.ResourceList{"vendor.example/db": resource.MustParse("2"), "vendor.example/shared": resource.MustParse("1")}},
	} {
		have := made(c.name, c.networks, c.own)
		require.True(t, same(c.want, have), "pod %s, networks %q: %v, want %v", c.name, c.networks, have, c.want)
	}
}
