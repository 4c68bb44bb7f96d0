package cluster_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authentication/v1"
	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/source/cluster"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// boundToken is a token of the agent's account that dies with a secret.
func boundToken(t *testing.T, c *kube.Cluster, ns, secret string) string {
	t.Helper()
	s, err := c.Client().CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := c.Client().CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "agent", &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
		BoundObjectRef: &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret, UID: s.UID},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}

// revoke ends a token and waits until the server refuses it.
func revoke(t *testing.T, c *kube.Cluster, ns, secret, token string) {
	t.Helper()
	require.NoError(t, c.Client().CoreV1().Secrets(ns).Delete(t.Context(), secret, metav1.DeleteOptions{}))
	cfg := rest.AnonymousClientConfig(c.Admin())
	cfg.BearerToken = token
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	eventually(t, "the refusal", func() bool {
		_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + ns})
		return err != nil && strings.Contains(err.Error(), "Unauthorized")
	})
}

// Tokens end while the agent runs, wherever they stand: in a file of their own,
// as kubelet projects them, or inside a kubeconfig that is written anew.
func TestComplaint_TokensExpire(t *testing.T) {
	t.Parallel()
	for _, inline := range []bool{false, true} {
		t.Run(map[bool]string{false: "file", true: "inline"}[inline], func(t *testing.T) {
			t.Parallel()
			c := kube.Shared(t)
			ns := c.Namespace()
			account(c, ns)
			dir := t.TempDir()
			config, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
			write := func(token string) {
				text := kubeconfigText(c, "tokenFile", file)
				if inline {
					text = kubeconfigText(c, "token", token)
				}
				require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
				require.NoError(t, os.WriteFile(config+".new", []byte(text), 0o600))
				require.NoError(t, os.Rename(config+".new", config))
			}
			first := boundToken(t, c, ns, "one")
			write(first)
			a := newAgent(t, cluster.Config{Kubeconfig: config, Node: ns})
			a.synced()

			write(boundToken(t, c, ns, "two"))
			revoke(t, c, ns, "one", first)
			p := makePod(c, ns, "web", ns)
			a.attach(record(p, "c1", "10.16.0.2"))
			eventually(t, "the status", func() bool { return status(t, c, p) != "" })
		})
	}
}

func kubeconfigText(c *kube.Cluster, key, value string) string {
	text, _ := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": c.URL(), "certificate-authority-data": c.Admin().CAData}}},
		"users":    []any{map[string]any{"name": "c", "user": map[string]any{key: value}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "c"}}},
	})
	return string(text)
}

// A kubeconfig that comes late, or that is broken at first, is no reason to end.
func TestKubeconfigComesLate(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	config, _ := account(c, ns)
	late := filepath.Join(t.TempDir(), "kubeconfig")
	a := newAgent(t, cluster.Config{Kubeconfig: late, Node: ns})
	eventually(t, "the reason", func() bool { return strings.Contains(a.problems(), "no such file") })
	require.NoError(t, os.WriteFile(late, nil, 0o600))
	eventually(t, "the reason", func() bool { return strings.Contains(a.problems(), "the file is empty") })
	require.NoError(t, os.WriteFile(late, []byte("{"), 0o600))
	eventually(t, "the reason", func() bool { return strings.Contains(a.problems(), "yaml") })
	good, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(late, good, 0o600))
	a.synced()
	require.NotContains(t, a.problems(), "API server")
}

// Without a right the agent says which one it lacks, and takes it when it comes.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	a := newAgent(t, cluster.Config{Kubeconfig: c.Kubeconfig(c.ServiceAccountConfig(ns, "agent")), Node: ns})
	eventually(t, "the reason", func() bool { return strings.Contains(a.problems(), `pods: cannot be watched: `) })
	require.ErrorIs(t, a.Synced(), core.ErrUnavailable)
	require.ErrorContains(t, a.Synced(), "forbidden")
	grant(c, ns, "{kind: ServiceAccount, name: agent, namespace: "+ns+"}")
	a.synced()
	// Nodes are asked for again at a time of their own.
	eventually(t, "no more reasons", func() bool { return !strings.Contains(a.problems(), "cannot be watched") })
}

const bootRights = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: boot}, rules: [
  {apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create, get, list, watch]}]}`

// A node gets a client certificate of its own with credentials that are good for
// nothing else, renews it with itself, and goes on with it after a restart.
func TestPerNodeCertificate(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	c.Apply(bootRights)
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: boot-` + ns + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: boot}, subjects: [{kind: ServiceAccount, name: boot, namespace: ` + ns + `}, {kind: User, name: "system:fairlead:` + ns + `", apiGroup: rbac.authorization.k8s.io}]}`)
	grant(c, ns, `{kind: User, name: "system:fairlead:`+ns+`", apiGroup: rbac.authorization.k8s.io}`)
	dir := filepath.Join(t.TempDir(), "pki")
	cfg := cluster.Config{
		Bootstrap: c.Kubeconfig(c.ServiceAccountConfig(ns, "boot")), CertDir: dir, CertDuration: time.Hour, Node: ns,
	}
	a := newAgent(t, cfg)
	eventually(t, "the reason", func() bool { return strings.Contains(a.problems(), "not issued yet") })

	first := pending(t, c, "system:serviceaccount:"+ns+":boot")
	require.Equal(t, "kubernetes.io/kube-apiserver-client", first.Spec.SignerName)
	require.Equal(t, []certv1.KeyUsage{certv1.UsageDigitalSignature, certv1.UsageClientAuth}, first.Spec.Usages)
	require.EqualValues(t, 3600, *first.Spec.ExpirationSeconds)
	// Nine tenths of its life are over, so that the next one is asked for at once,
	// and the rest is long enough for a machine that is busy.
	issue(t, c, first, 18*time.Minute, 2*time.Minute)
	a.synced()
	file := filepath.Join(dir, "fairlead-client.pem")
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	old, err := os.ReadFile(file)
	require.NoError(t, err)

	second := pending(t, c, "system:fairlead:"+ns)
	issue(t, c, second, 0, time.Hour)
	eventually(t, "the new certificate", func() bool {
		now, err := os.ReadFile(file)
		return err == nil && string(now) != string(old)
	})
	p := makePod(c, ns, "web", ns)
	a.attach(record(p, "c1", "10.16.0.2"))
	eventually(t, "the status", func() bool { return status(t, c, p) != "" })

	a.stop()
	cfg.Bootstrap = c.Kubeconfig(rest.AnonymousClientConfig(c.Admin())) // its token is over
	since := c.Mark()
	again := newAgent(t, cfg)
	again.synced()
	require.Empty(t, c.Requests(kube.Filter{Resource: "certificatesigningrequests", User: "system:fairlead:" + ns, Since: since}))
}

// A request that is denied is made again; a certificate of another node, or one
// that is damaged, is not used.
func TestCertificateDeniedOrForeign(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	c.Apply(bootRights)
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: boot-` + ns + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: boot}, subjects: [{kind: ServiceAccount, name: boot, namespace: ` + ns + `}]}`)
	grant(c, ns, `{kind: User, name: "system:fairlead:`+ns+`", apiGroup: rbac.authorization.k8s.io}`)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fairlead-client.pem"), []byte("torn"), 0o600))
	a := newAgent(t, cluster.Config{
		Bootstrap: bootFile(t, c, ns), CertDir: dir, CertDuration: time.Hour, Node: ns,
	})
	user := "system:serviceaccount:" + ns + ":boot"
	denied := pending(t, c, user)
	denied.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateDenied, Status: "True", Reason: "No", Message: "not you"}}
	_, err := c.Client().CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), denied.Name, denied, metav1.UpdateOptions{})
	require.NoError(t, err)
	issue(t, c, pending(t, c, user), 0, time.Hour)
	a.synced()
}

// bootFile is a bootstrap kubeconfig whose token stands in a file of its own.
func bootFile(t *testing.T, c *kube.Cluster, ns string) string {
	t.Helper()
	config, token := filepath.Join(t.TempDir(), "boot"), filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(c.ServiceAccountConfig(ns, "boot").BearerToken), 0o600))
	require.NoError(t, os.WriteFile(config, []byte(kubeconfigText(c, "tokenFile", token)), 0o600))
	return config
}

// pending is a request of a user that nobody decided on.
func pending(t *testing.T, c *kube.Cluster, user string) *certv1.CertificateSigningRequest {
	t.Helper()
	var out *certv1.CertificateSigningRequest
	eventually(t, "a request by "+user, func() bool {
		list, err := c.Client().CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			if r := &list.Items[i]; r.Spec.Username == user && len(r.Status.Conditions) == 0 {
				out = r
			}
		}
		return out != nil
	})
	return out
}

// issue approves and signs a request.
func issue(t *testing.T, c *kube.Cluster, r *certv1.CertificateSigningRequest, age, left time.Duration) {
	t.Helper()
	requests := c.Client().CertificatesV1().CertificateSigningRequests()
	r.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateApproved, Status: "True", Reason: "Test"}}
	r, err := requests.UpdateApproval(t.Context(), r.Name, r, metav1.UpdateOptions{})
	require.NoError(t, err)
	r.Status.Certificate = c.SignAged(r.Spec.Request, age, left)
	_, err = requests.UpdateStatus(t.Context(), r, metav1.UpdateOptions{})
	require.NoError(t, err)
}
