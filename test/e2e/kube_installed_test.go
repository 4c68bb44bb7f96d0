package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// TestKubeInstalled: an installation's objects are accepted by the API server,
// in a dry run and for real, and an agent that has no other rights than they
// give it, under policies that deny, does all its work: nothing that it asks is
// refused, and no right is one that it never uses. (That of DRA is for nodes with
// such devices: TestRule8_DRADevices.)
func TestKubeInstalled(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n := &kubeNode{clusterNode: startClusterNode(t, c), user: "system:serviceaccount:kube-system:fairlead-agent"}
	values := filepath.Join(n.Dir, "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte("{policies: {requests: {actions: [Deny]}}, rbac: {resourceSlices: false}}"), 0o600))
	printed := n.Fairlead("install", "--dry-run", "-o", "yaml", "--values", values)
	for _, more := range [][]string{{"--dry-run=server"}, nil} {
		_, err := c.TryKubectl(printed, append([]string{"apply", "--server-side", "--force-conflicts", "-f", "-"}, more...)...)
		require.NoError(t, err)
	}
	c.Apply(kubeObjects())
	n.args = []string{"--kubeconfig", c.Kubeconfig(n.boundToken()), "--node-name", n.name}
	n.Run("ip", "link", "add", "br-foreign", "address", "0a:00:00:00:30:01", "up", "type", "bridge")
	n.agent = n.Agent(n.args...)
	n.agent.WaitReady()
	n.everyRight()
	_, metrics, err := n.agent.Get("/metrics")
	require.NoError(t, err)
	require.Contains(t, metrics, `fairlead_api_requests_total{code="200",method="PATCH"}`)
	for _, refusal := range []string{`code="401"`, `code="403"`, `code="422"`} {
		require.NotContains(t, metrics, "fairlead_api_requests_total{"+refusal)
	}
	// It has no card, no interface that NetworkPolicies do not reach, and no range of
	// whereabouts': package vfpolicies, TestPolicyInVain and TestKube/leased use these, with the
	// same rights.
	elsewhere := []string{"get ipamclaims", "list networkpolicies", "patch ipamclaims/status", "patch nodevfpolicies/status", "watch addressleases"}
	require.Equal(t, n.granted(), slices.Sorted(slices.Values(append(n.used(), elsewhere...))))
}

// boundToken is the account of the installed agent with the token that its pod
// on this node would have.
func (n *kubeNode) boundToken() *rest.Config {
	n.t.Helper()
	api := n.c.Client().CoreV1()
	pod, err := api.Pods("kube-system").Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fairlead-agent-x"},
		Spec:       corev1.PodSpec{NodeName: n.name, ServiceAccountName: "fairlead-agent", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(n.t, err)
	token, err := api.ServiceAccounts("kube-system").CreateToken(n.t.Context(), "fairlead-agent", &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID,
		}},
	}, metav1.CreateOptions{})
	require.NoError(n.t, err)
	cfg := rest.AnonymousClientConfig(n.c.Admin())
	cfg.BearerToken = token.Status.Token
	return cfg
}

// everyRight has the agent do all that it may: networks of both kinds, hot plug
// with a condition, a network that is missing, and a pod that it does not know.
func (n *kubeNode) everyRight() {
	n.t.Helper()
	before := n.Inventory()
	p := n.makePod("web", map[string]string{networksKey: "default/storage,default/foreign"})
	p.add()
	p.ask("default/storage,default/nowhere")
	p.awaitCondition("False NoNetworkFound")
	p.ask("default/storage")
	p.awaitCondition("True AsAnnotated")
	p.awaitNICs(2)
	p.cni("CHECK").Must()
	p.end()
	n.erase("web")

	declaration := `{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: ` + n.name + `, name: db}, spec: {statefulSet: db, interfaces: [{name: eth0, ipRange: 10.16.7.1-10.16.7.9}]}}`
	n.c.Apply(declaration)
	db := n.makePod("db-1", nil)
	eventually(n.t, func() string { // the PodNetwork comes by a watch of its own
		db.cni("ADD").Must()
		if ips := db.ips(); ips[0] != "10.16.7.2" {
			db.cni("DEL").Must()
			return fmt.Sprintf("%v is not the second of the range", ips)
		}
		return ""
	})
	lease := func() string {
		return n.c.Kubectl("get", "nal", "ovn-default.10.16.7.2", "--ignore-not-found", "-o", "jsonpath={.status.phase}")
	}
	require.Equal(n.t, "Bound", lease())
	eventually(n.t, func() string {
		if told := n.c.Kubectl("-n", n.name, "get", "pnet", "db", "-o", "jsonpath={.status.nodes[*].pods[*].name}"); told != "db-1" {
			return "the PodNetwork's status tells of " + told
		}
		return ""
	})
	n.c.Delete(declaration)
	other := n.makePod("db-2", nil)
	eventually(n.t, func() string {
		other.cni("ADD").Must()
		other.cni("DEL").Must()
		return n.c.Kubectl("get", "nal", "ovn-default.10.16.7.3", "--ignore-not-found", "-o", "jsonpath={.metadata.name} is leased still")
	})
	other.end()
	n.erase("db-2")
	db.end()
	eventually(n.t, lease) // what is not declared any more is not reserved
	n.erase("db-1")

	missing := n.makePod("missing", map[string]string{networksKey: "default/nowhere"})
	require.NotNil(n.t, missing.cni("ADD").Err())
	missing.end()
	n.erase("missing")
	unknown := &kubePod{n: n, Pod: n.NewPod(n.name + "/unknown"), uid: "8f6c2b1e-0000-4000-8000-000000000003"}
	require.NotNil(n.t, unknown.cni("ADD").Err())
	unknown.end()
	n.RequireNoLeaks(before)
}

// granted are the rights of the installed ClusterRole: "verb resource".
func (n *kubeNode) granted() []string {
	n.t.Helper()
	role, err := n.c.Client().RbacV1().ClusterRoles().Get(n.t.Context(), "fairlead-agent", metav1.GetOptions{})
	require.NoError(n.t, err)
	all := map[string]bool{}
	for _, rule := range role.Rules {
		require.Empty(n.t, rule.NonResourceURLs)
		for _, r := range rule.Resources {
			for _, verb := range rule.Verbs {
				all[verb+" "+r] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// used are the requests that the agent made, in the same form.
func (n *kubeNode) used() []string {
	n.t.Helper()
	all := map[string]bool{}
	for _, r := range n.c.Requests(kube.Filter{User: n.user}) {
		all[strings.TrimSuffix(r.Verb+" "+r.Resource+"/"+r.Subresource, "/")] = true
	}
	return slices.Sorted(maps.Keys(all))
}
