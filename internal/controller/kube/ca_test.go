package kube_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authentication "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/controller/kube"
	"github.com/fairlead/fairlead/internal/controller/pki"
	kubebed "github.com/fairlead/fairlead/internal/testbed/kube"
)

// certLife is short, so that certificates are renewed and CAs replaced in a test.
const certLife = 12 * time.Second

// asks lets the service accounts of a namespace ask for certificates.
const asks = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-asks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:NS"}]
`

// bound is an account whose token is bound to a pod on a node.
func bound(t *testing.T, c *kubebed.Cluster, ns, account, node string) *rest.Config {
	t.Helper()
	out := c.ServiceAccountConfig(ns, account)
	c.RegisterNode(node)
	pod := c.Apply(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: %s}\n"+
		"spec: {nodeName: %s, serviceAccountName: %s, containers: [{name: c, image: none}]}\n", node, ns, node, account))[0]
	token, err := c.Client().CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account, &authentication.TokenRequest{
		Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod.GetName(), UID: pod.GetUID(),
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	out.BearerToken = token.Status.Token
	return out
}

// asked is what became of a chassis' request.
func asked(t *testing.T, as *rest.Config, name string) *certificates.CertificateSigningRequest {
	t.Helper()
	client, err := kubernetes.NewForConfig(as)
	require.NoError(t, err)
	_, text, err := pki.NewRequest(name, fairlead.OrganizationChassis)
	require.NoError(t, err)
	all := client.CertificatesV1().CertificateSigningRequests()
	csr, err := all.Create(t.Context(), &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificates.CertificateSigningRequestSpec{Request: text, SignerName: fairlead.SignerChassis,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		csr, err = all.Get(t.Context(), csr.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return len(csr.Status.Certificate) > 0 || len(csr.Status.Conditions) > 0 && csr.Status.Conditions[0].Type != certificates.CertificateApproved
	}, patience, tick)
	return csr
}

// TestCertificates: on a real API server central and chassis get certificates, a
// chassis for its own node alone; they are renewed, and their CA is replaced, while
// what is in use is trusted.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := kubebed.Shared(t)
	ns := c.Namespace()
	c.Apply(strings.ReplaceAll(asks, "NS", ns))
	c.Kubectl("create", "configmap", "-n", ns, fairlead.CAName) // as the chart makes it
	log := slog.New(slog.DiscardHandler)
	authority, err := kube.NewAuthority(c.Admin(), ns, certLife, log)
	require.NoError(t, err)
	told := make(chan kube.Credentials, 100)
	self, err := kube.NewIdentity(c.ServiceAccountConfig(ns, fairlead.CentralAccount), kube.IdentityConfig{
		Namespace: ns, Name: "member", Log: log, Changed: func(now kube.Credentials) error { told <- now; return nil },
	})
	require.NoError(t, err)
	require.Error(t, self.Ready())
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() { self.Run(ctx) })
	wg.Go(func() { authority.Run(ctx) })
	require.Eventually(t, func() bool { return self.Ready() == nil }, patience, tick)
	first := <-told
	require.NotEmpty(t, first.Central, "nobody begins without knowing whom to trust")
	require.NotEmpty(t, first.Chassis)

	one := bound(t, c, ns, "fairlead", ns+"-1")
	csr := asked(t, one, ns+"-1")
	b, _ := pem.Decode(csr.Status.Certificate)
	leaf, err := x509.ParseCertificate(b.Bytes)
	require.NoError(t, err)
	require.Equal(t, ns+"-1", leaf.Subject.CommonName)
	require.NoError(t, pki.Trusts(first.Chassis, leaf, nil, x509.ExtKeyUsageClientAuth))
	require.Error(t, pki.Trusts(first.Central, leaf, nil, x509.ExtKeyUsageClientAuth))
	for name, as := range map[string]*rest.Config{ns + "-2": one, ns + "-1": c.ServiceAccountConfig(ns, "fairlead")} {
		csr := asked(t, as, name)
		require.Empty(t, csr.Status.Certificate)
		require.Equal(t, certificates.CertificateDenied, csr.Status.Conditions[0].Type)
		require.Contains(t, csr.Status.Conditions[0].Message, "is bound to")
	}

	// The CA is replaced. Each credential that is told trusts the one before and is
	// trusted by it; in the end the first CA is trusted no more.
	c.Kubectl("annotate", "secret", "-n", ns, fairlead.CAName, fairlead.AnnReplaceCA+"=central")
	for was := first; ; {
		var now kube.Credentials
		select {
		case now = <-told:
		case <-time.After(patience):
			require.FailNow(t, "the CA is not replaced")
		}
		for _, pair := range [][2]kube.Credentials{{was, now}, {now, was}} {
			b, _ := pem.Decode(pair[0].Cert)
			leaf, err := x509.ParseCertificate(b.Bytes)
			require.NoError(t, err)
			if time.Now().Before(leaf.NotAfter) {
				require.NoError(t, pki.Trusts(pair[1].Central, leaf, nil, x509.ExtKeyUsageServerAuth))
			}
		}
		was = now
		if !strings.Contains(now.Central, first.Central) {
			break
		}
	}
	require.NoError(t, self.Ready())

	// A Secret that cannot be read is no Secret that is missing: nothing is made.
	c.Kubectl("patch", "secret", "-n", ns, fairlead.CAName, "--type=merge", "-p", `{"data":{"chassis":"eA=="}}`)
	kept := c.Kubectl("get", "configmap", "-n", ns, fairlead.CAName, "-o", "jsonpath={.data}")
	_, text, err := pki.NewRequest(ns+"-1", fairlead.OrganizationChassis)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(one)
	require.NoError(t, err)
	late, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificates.CertificateSigningRequestSpec{Request: text, SignerName: fairlead.SignerChassis,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, kept, c.Kubectl("get", "configmap", "-n", ns, fairlead.CAName, "-o", "jsonpath={.data}"))
	require.Equal(t, "eA==", c.Kubectl("get", "secret", "-n", ns, fairlead.CAName, "-o", "jsonpath={.data.chassis}"))
	// Deleted, it is made anew, and those who are known stay known.
	c.Kubectl("delete", "secret", "-n", ns, fairlead.CAName)
	require.Eventually(t, func() bool {
		late, err = client.CertificatesV1().CertificateSigningRequests().Get(t.Context(), late.Name, metav1.GetOptions{})
		return err == nil && len(late.Status.Certificate) > 0
	}, patience, tick)
	require.Contains(t, c.Kubectl("get", "configmap", "-n", ns, fairlead.CAName, "-o", `jsonpath={.data.chassis\.crt}`), first.Chassis)
}
