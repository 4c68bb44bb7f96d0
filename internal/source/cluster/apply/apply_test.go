package apply_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorization "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead/fairlead/internal/install/manifest"
	"github.com/fairlead/fairlead/internal/source/cluster/apply"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

func TestMain(m *testing.M) { os.Exit(kube.Main(m)) }

// objects are the chart's with values, CRDs first.
func objects(t *testing.T, sets ...string) []manifest.Object {
	t.Helper()
	v, err := manifest.Defaults()
	require.NoError(t, err)
	for _, s := range sets {
		require.NoError(t, v.Set(s))
	}
	crds, err := manifest.CRDs(manifest.Values{})
	require.NoError(t, err)
	rest, err := manifest.Render(v)
	require.NoError(t, err)
	return append(crds, rest...)
}

func client(t *testing.T, o apply.Options) *apply.Client {
	t.Helper()
	c, err := apply.New(o)
	require.NoError(t, err)
	return c
}

// TestInstallation: dry run, installation, repetition, change, removal, removal
// again, on a real API server.
func TestInstallation(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	kubeconfig := c.AdminKubeconfig()
	daemonSet := func() *unstructured.Unstructured {
		ds, err := c.Dynamic().Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}).
			Namespace("kube-system").Get(t.Context(), "fairlead-agent", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		require.NoError(t, err)
		return ds
	}
	each := func(cl *apply.Client, list []manifest.Object, want func(manifest.Object) apply.Outcome) {
		t.Helper()
		for _, o := range list {
			have, err := cl.Apply(t.Context(), o)
			require.NoError(t, err, o)
			require.Equal(t, want(o), have, o)
		}
	}
	// The test cluster has the CRDs from the beginning.
	isCRD := func(o manifest.Object) bool { return o.Kind() == "CustomResourceDefinition" }
	first := func(o manifest.Object) apply.Outcome {
		if isCRD(o) {
			return apply.Changed // another manager applied them
		}
		return apply.Created
	}
	ovn := []string{"ovn.enabled=true", "ovn.nb=tcp:10.0.0.1:6641", "ovn.podCIDR=10.40.0.0/16"} // all kinds of objects
	all := objects(t, ovn...)

	each(client(t, apply.Options{Kubeconfig: kubeconfig, DryRun: true}), all[7:], first)
	require.Nil(t, daemonSet(), "a dry run keeps nothing")

	real := client(t, apply.Options{Kubeconfig: kubeconfig})
	each(real, all, first)
	require.NotNil(t, daemonSet())
	each(real, all, func(manifest.Object) apply.Outcome { return apply.Unchanged })

	changed := objects(t, append(ovn, "image.tag=next")...)
	each(real, changed, func(o manifest.Object) apply.Outcome {
		if isCRD(o) {
			return apply.Unchanged
		}
		return apply.Changed // the version is a label of all
	})
	images, _, err := unstructured.NestedSlice(daemonSet().Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	require.Equal(t, "ghcr.io/fairlead/fairlead:next", images[0].(map[string]any)["image"])

	for _, want := range []apply.Outcome{apply.Deleted, apply.Absent} {
		for _, o := range all[6:] {
			have, err := real.Delete(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, want, have, o)
		}
	}
	require.Nil(t, daemonSet())
}

// TestForeignCRDsStay: Kube-OVN brings CRDs of the same names.
func TestForeignCRDsStay(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	c.Kubectl("label", "crd", "vlans.kubeovn.io", "app.kubernetes.io/part-of=kube-ovn", "--overwrite")
	cl := client(t, apply.Options{Kubeconfig: c.AdminKubeconfig()})
	for _, o := range objects(t)[:5] {
		outcome, err := cl.Apply(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, o.Name() == "vlans.kubeovn.io", outcome == apply.Foreign, o)
		if outcome == apply.Foreign {
			outcome, err = cl.Delete(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, apply.Foreign, outcome)
		}
	}
}

// TestFieldsOfOthers: what Helm installed is Helm's.
func TestFieldsOfOthers(t *testing.T) {
	c := kube.Start(t, kube.Options{})
	all := objects(t)
	text, err := manifest.YAML(all)
	require.NoError(t, err)
	c.Apply(string(text))
	ds := objects(t, "image.tag=next")[len(all)-1]
	_, err = client(t, apply.Options{Kubeconfig: c.AdminKubeconfig()}).Apply(t.Context(), ds)
	require.True(t, apply.IsConflict(err), "%v", err)
	outcome, err := client(t, apply.Options{Kubeconfig: c.AdminKubeconfig(), Force: true}).Apply(t.Context(), ds)
	require.NoError(t, err)
	require.Equal(t, apply.Changed, outcome)
}

func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("HOME", t.TempDir())
	_, err := apply.New(apply.Options{})
	require.ErrorIs(t, err, apply.ErrNoCluster)
	_, err = apply.New(apply.Options{Kubeconfig: "/nonexistent"})
	require.ErrorContains(t, err, "/nonexistent")
}

// TestRightsOfTheAgent: all that internal/source/cluster does is allowed, and nothing
// else. The API server is asked as the agent.
func TestRightsOfTheAgent(t *testing.T) {
	c := kube.Shared(t)
	all := append(objects(t)[6:], slices.DeleteFunc(objects(t, "ovn.enabled=true", "ovn.nb=tcp:10.0.0.1:6641"), func(o manifest.Object) bool { return o.Name() != "fairlead-gateways" })...)
	text, err := manifest.YAML(all)
	require.NoError(t, err)
	c.Apply(string(text))
	as, err := kubernetes.NewForConfig(c.ServiceAccountConfig("kube-system", "fairlead-agent"))
	require.NoError(t, err)
	may := func(t *testing.T, what string) bool {
		t.Helper()
		f := strings.Fields(what) // VERB RESOURCE[/SUB][.GROUP] [NAMESPACE [NAME]]
		resource, group, _ := strings.Cut(f[1], ".")
		resource, sub, _ := strings.Cut(resource, "/")
		attr := &authorization.ResourceAttributes{Verb: f[0], Group: group, Resource: resource, Subresource: sub}
		if len(f) > 2 {
			attr.Namespace = f[2]
		}
		if len(f) > 3 {
			attr.Name = f[3]
		}
		r, err := as.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorization.SelfSubjectAccessReview{
			Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: attr},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		return r.Status.Allowed
	}
	for _, what := range []string{
		"get pods", "get network-attachment-definitions.k8s.cni.cncf.io", "list pods", "watch pods", "patch pods/status", "patch pods/status default",
		"list network-attachment-definitions.k8s.cni.cncf.io", "watch network-attachment-definitions.k8s.cni.cncf.io",
		"list subnets.kubeovn.io", "watch vlans.kubeovn.io", "list provider-networks.kubeovn.io", "watch provider-networks.kubeovn.io", "list resourceslices.resource.k8s.io", "create events.events.k8s.io",
		"list nodes", "watch nodes", "patch nodes/status",
		"list configmaps kube-system ovn-external-gw-config", "watch configmaps kube-system ovn-ic-config",
		"list podnetworks.net.fairlead.io", "watch podnetworks.net.fairlead.io", "list nodevfpolicies.net.fairlead.io", "watch nodevfpolicies.net.fairlead.io", "patch nodevfpolicies/status.net.fairlead.io", "get statefulsets.apps", "get ipamclaims.k8s.cni.cncf.io", "patch ipamclaims/status.k8s.cni.cncf.io", "get addressleases.net.fairlead.io", "list addressleases.net.fairlead.io", "watch addressleases.net.fairlead.io", "create addressleases.net.fairlead.io", "update addressleases.net.fairlead.io", "delete addressleases.net.fairlead.io", "list configmaps kube-system", "watch configmaps kube-system", "patch podnetworks/status.net.fairlead.io", "list networkpolicies.networking.k8s.io",
	} {
		require.True(t, may(t, what), what)
	}
	for _, what := range []string{
		"create pods", "update pods", "patch pods", "delete pods", "update pods/status", "create pods/exec", "create pods/binding",
		"create pods/eviction", "get pods/log", "get secrets", "list secrets kube-system", "get configmaps", "get configmaps kube-system", "list configmaps", "list configmaps default ovn-external-gw-config", "patch podnetworks.net.fairlead.io", "patch addressleases.net.fairlead.io", "deletecollection addressleases.net.fairlead.io", "get addressleases.fairlead.io", "list statefulsets.apps", "list ipamclaims.k8s.cni.cncf.io", "patch ipamclaims.k8s.cni.cncf.io", "update ipamclaims/status.k8s.cni.cncf.io", "patch configmaps kube-system ovn-external-gw-config", "update podnetworks/status.net.fairlead.io", "watch networkpolicies.networking.k8s.io", "patch networkpolicies.networking.k8s.io",
		"get nodes", "patch nodes", "update nodes", "update nodes/status", "create nodes", "delete nodes", "get namespaces", "get services", "list endpoints", "get serviceaccounts",
		"create serviceaccounts/token kube-system", "impersonate users", "create network-attachment-definitions.k8s.cni.cncf.io",
		"update network-attachment-definitions.k8s.cni.cncf.io", "patch subnets.kubeovn.io", "patch subnets/status.kubeovn.io",
		"get subnets.kubeovn.io", "get vlans.kubeovn.io", "get resourceslices.resource.k8s.io", "use subnets.kubeovn.io", "manage subnets.kubeovn.io", "get provider-networks.kubeovn.io", "patch provider-networks/status.kubeovn.io", "delete vlans.kubeovn.io",
		"update events.events.k8s.io", "list events.events.k8s.io", "create events", "get leases.coordination.k8s.io", "patch daemonsets.apps kube-system",
		"create certificatesigningrequests.certificates.k8s.io", "patch clusterroles.rbac.authorization.k8s.io",
		"delete validatingadmissionpolicies.admissionregistration.k8s.io",
	} {
		require.False(t, may(t, what), what)
	}
	_, err = as.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// TestManifestsOfKubeOVN: objects as its documentation and its own programs
// write them, with keys that Fairlead has no type for.
func TestManifestsOfKubeOVN(t *testing.T) {
	c := kube.Shared(t)
	out := c.Apply(`
apiVersion: kubeovn.io/v1
kind: ProviderNetwork
metadata: {name: net1}
spec:
  defaultInterface: eth1
  customInterfaces: [{interface: eth2, nodes: [node1]}]
  excludeNodes: [node2]
  keptForOthers: {a: 1}
---
apiVersion: kubeovn.io/v1
kind: Vlan
metadata: {name: vlan1}
spec: {id: 0, provider: net1}
---
apiVersion: kubeovn.io/v1
kind: Vlan
metadata: {name: old}
spec: {vlanId: 7, providerInterfaceName: net1}
---
apiVersion: kubeovn.io/v1
kind: Subnet
metadata: {name: subnet1}
spec:
  protocol: Dual
  cidrBlock: 10.66.0.0/16,fd00:10:66::/112
  gateway: 10.66.0.1,fd00:10:66::1
  excludeIps: [10.66.0.0..10.66.0.10]
  vlan: vlan1
  mtu: 1400
  gatewayType: distributed
  natOutgoing: true
  natOutgoingPolicyRules: [{match: {srcIPs: "10.66.0.5"}, action: forward, ruleID: abc}]
  acls: [{action: drop, direction: to-lport, match: "ip4.dst == 10.66.0.2 && ip", priority: 1002, tier: 2}]
  namespaceSelectors: [{matchLabels: {team: a}}]
  u2oInterconnectionIP: ""
  enableLb: true
  enableMulticastSnoop: true
  someNewKey: [1]
`)
	get := func(o *unstructured.Unstructured, path ...string) any {
		v, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, map[string]any{"a": int64(1)}, get(out[0], "spec", "keptForOthers"))
	require.Equal(t, int64(0), get(out[1], "spec", "id"))
	require.Equal(t, []any{int64(1)}, get(out[3], "spec", "someNewKey"))
	require.Equal(t, "abc", get(out[3], "spec", "natOutgoingPolicyRules").([]any)[0].(map[string]any)["ruleID"])
	require.Equal(t, int64(2), get(out[3], "spec", "acls").([]any)[0].(map[string]any)["tier"])

	// Status is a subresource; its counts are numbers or strings.
	subnets := c.Dynamic().Resource(schema.GroupVersionResource{Group: "kubeovn.io", Version: "v1", Resource: "subnets"})
	require.NoError(t, unstructured.SetNestedMap(out[3].Object, map[string]any{
		"v4availableIPs": int64(65000), "v6availableIPs": "1329227995784915872903807060280344576", "v4usingIPs": 3.0,
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
	}, "status"))
	_, err := subnets.UpdateStatus(t.Context(), out[3], metav1.UpdateOptions{FieldValidation: "Strict"})
	require.NoError(t, err)
	table := c.Kubectl("get", "subnets", "subnet1")
	require.Contains(t, table, "65000")
	require.Contains(t, table, "1329227995784915872903807060280344576")
	require.Contains(t, c.Kubectl("get", "vlan", "vlan1"), "net1")
	require.Contains(t, c.Kubectl("get", "pn"), "eth1")
	for _, bad := range []string{
		`{apiVersion: kubeovn.io/v1, kind: Vlan, metadata: {name: bad}, spec: {id: 4096}}`,
		`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: bad}, spec: {cidrBlock: 5}}`,
		`{apiVersion: kubeovn.io/v1, kind: Subnet, metadata: {name: bad}}`,
	} {
		require.Error(t, c.TryApply(c.Admin(), bad), bad)
	}
}
