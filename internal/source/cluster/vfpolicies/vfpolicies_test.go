package vfpolicies

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/network/vfpolicy"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// rights are the chart's for agents with a certificate of their own.
func rights(t *testing.T, c *kube.Cluster, set ...string) {
	t.Helper()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	for _, s := range append(set, "rbac.nodeCertificates=true") {
		require.NoError(t, v.Set(s))
	}
	all, err := manifest.Render(v)
	require.NoError(t, err)
	text, err := manifest.YAML(slices.DeleteFunc(all, func(o manifest.Object) bool {
		kinds := []string{"ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
		return !strings.HasPrefix(o.Name(), "fairlead-agent") || !slices.Contains(kinds, o.Kind())
	}))
	require.NoError(t, err)
	c.Apply(string(text))
}

// agentOf follows as the agent of a node.
func agentOf(t *testing.T, c *kube.Cluster, node string) *Follower {
	t.Helper()
	f := New(Config{
		Login: login.New(login.Config{Kubeconfig: c.Kubeconfig(c.User("system:fairlead:"+node, "system:fairlead")), Node: node, UserAgent: "fairlead/test"}).Current,
		Node:  node, Changed: func() {}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(t.Context()) })
	t.Cleanup(wg.Wait)
	return f
}

func names(f *Follower) string {
	all, err := f.VFPolicies()
	if err != nil {
		return err.Error()
	}
	out := []string{}
	for _, p := range all {
		out = append(out, p.Name)
	}
	return fmt.Sprint(out)
}

// TestFollows: with the chart's rights an agent sees the policies that mean its node, as its
// labels are now, and writes its own part of their status; what other nodes said, and the
// rest of a policy, it cannot touch.
func TestFollows(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	for _, node := range []string{"vf-1", "vf-2"} {
		c.Apply(`{apiVersion: v1, kind: Node, metadata: {name: ` + node + `, labels: {cards: igb}}}`)
	}
	is := func(f *Follower, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return names(f) == want }, time.Minute, 50*time.Millisecond, "%s, not %s", names(f), want)
	}
	first := agentOf(t, c, "vf-1")
	is(first, "[]") // without the right to them there are none, as with an older chart
	rights(t, c, "sriov.enabled=true")
	c.Apply(`{apiVersion: net.fairlead.io/v1alpha1, kind: NodeVFPolicy, metadata: {name: all}, spec: {resource: fairlead.io/db, pf: [ens1f0], numVFs: 3}}
---
{apiVersion: net.fairlead.io/v1alpha1, kind: NodeVFPolicy, metadata: {name: some}, spec: {resource: fairlead.io/some, pf: [ens1f1], nodeSelector: {cards: mlx}}}`)
	second := agentOf(t, c, "vf-2")
	is(first, "[all]")
	is(second, "[all]")
	c.Kubectl("label", "node", "vf-1", "cards=mlx", "--overwrite")
	is(first, "[all some]")
	is(second, "[all]")

	status := func(path string) string { return c.Kubectl("get", "nvfp", "all", "-o", "jsonpath={"+path+"}") }
	told := func(want, path string) {
		t.Helper()
		require.Eventually(t, func() bool { return status(path) == want }, time.Minute, 50*time.Millisecond, "%s: %s", path, want)
	}
	all, err := first.VFPolicies()
	require.NoError(t, err)
	first.ReportVFs([]vfpolicy.Report{{Policy: "all", Generation: all[0].Generation, Devices: 3, Healthy: 3}})
	second.ReportVFs([]vfpolicy.Report{{Policy: "all", Generation: 1, Devices: 3, Healthy: 2, Conflicts: []string{"virtual function 0 of ens1f0 is other's"}, Amiss: []string{"numVFs stays 2"}}})
	told("vf-1 true 3 3 ", `range .status.nodes[?(@.name=="vf-1")]}{.name} {.ready} {.devices} {.healthy} {end`)
	told("False NotInForce numVFs stays 2; virtual function 0 of ens1f0 is other's", `range .status.nodes[?(@.name=="vf-2")].conditions[?(@.type=="Ready")]}{.status} {.reason} {.message}{end`)
	told("True", `.status.nodes[?(@.name=="vf-2")].conditions[?(@.type=="Conflict")].status`)
	require.Contains(t, c.Kubectl("get", "nvfp", "all"), "vf-2")
	second.ReportVFs(nil) // the policy means it no more
	told("vf-1", `.status.nodes[*].name`)

	// The node's own token can do no more.
	as, err := dynamic.NewForConfig(c.User("system:fairlead:vf-2", "system:fairlead"))
	require.NoError(t, err)
	policies := as.Resource(schema.GroupVersionResource{Group: "net.fairlead.io", Version: "v1alpha1", Resource: "nodevfpolicies"})
	for _, patch := range []string{
		`{"status":{"nodes":[]}}`, `{"status":{"nodes":[{"name":"vf-1","devices":9,"healthy":9,"ready":true}]}}`,
		`{"status":{"nodes":[{"name":"vf-3","devices":9,"healthy":9,"ready":true}]}}`,
	} {
		_, err := policies.Patch(t.Context(), "all", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		require.ErrorContains(t, err, "the agent of node vf-2 may not say what other nodes made", patch)
	}
	_, err = policies.Patch(t.Context(), "all", types.MergePatchType, []byte(`{"spec":{"numVFs":7}}`), metav1.PatchOptions{})
	require.ErrorContains(t, err, "forbidden")
}
