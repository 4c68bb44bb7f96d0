package cluster_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/fairlead/fairlead/internal/source/cluster/identity"
	"github.com/fairlead/fairlead/internal/source/cluster/login"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// chassisRights are what the chart gives an agent for its chassis' certificate.
const chassisRights = `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: chassis, namespace: NS}, rules: [
  {apiGroups: [""], resources: [configmaps], resourceNames: [fairlead-ca], verbs: [get, list, watch]}]}`

// chassis keeps files as an agent does, until the test ends or stop is called.
func chassis(t *testing.T, c *kube.Cluster, ns, dir string) (k *identity.Keeper, stop func()) {
	t.Helper()
	l := login.New(login.Config{Kubeconfig: bootFile(t, c, ns), Node: ns, UserAgent: "fairlead/test"})
	k = identity.New(identity.Config{Node: ns, Dir: dir, Namespace: ns, Login: l.Current, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return k, stop
}

// publish writes the controller's ConfigMap.
func publish(t *testing.T, maps v1.ConfigMapInterface, data map[string]string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fairlead-ca"}, Data: data}
	_, err := maps.Update(t.Context(), m, metav1.UpdateOptions{})
	if err != nil {
		_, err = maps.Create(t.Context(), m, metav1.CreateOptions{})
	}
	require.NoError(t, err)
}

// TestChassisCertificate: a node has a certificate of its name by the controller's
// signer, and whom it trusts by a watch; it says what it waits for, asks again after
// a refusal, in time and when the CAs change, and not after a restart.
func TestChassisCertificate(t *testing.T) {
	t.Parallel()
	c := kube.Shared(t)
	ns := c.Namespace()
	c.Apply(bootRights)
	account := "{kind: ServiceAccount, name: boot, namespace: " + ns + "}"
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: boot-` + ns + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: boot}, subjects: [` + account + `]}`)
	c.Apply(strings.ReplaceAll(chassisRights, "NS", ns))
	c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: chassis, namespace: ` + ns + `},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: chassis}, subjects: [` + account + `]}`)
	dir, user := filepath.Join(t.TempDir(), "ovn"), "system:serviceaccount:"+ns+":boot"
	configMaps := c.Client().CoreV1().ConfigMaps(ns)
	k, stop := chassis(t, c, ns, dir)
	says := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { err := k.Err(); return err != nil && strings.Contains(err.Error(), what) })
	}
	reads := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	says("the controller has not published its CA")
	ca := string(c.Admin().CAData)
	publish(t, configMaps, map[string]string{"central.crt": "none"})
	publish(t, configMaps, map[string]string{"central.crt": ca, "chassis.crt": ca})

	first := pending(t, c, user)
	require.Equal(t, "fairlead.io/chassis", first.Spec.SignerName)
	require.Equal(t, []certv1.KeyUsage{certv1.UsageDigitalSignature, certv1.UsageClientAuth}, first.Spec.Usages)
	says("request " + first.Name + " waits for fairlead-controller")
	first.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateDenied, Status: "True", Reason: "NotItsNode", Message: "the token is of no node"}}
	_, err := c.Client().CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), first.Name, first, metav1.UpdateOptions{})
	require.NoError(t, err)
	says("no certificate for this chassis yet: request " + first.Name + ": Denied: NotItsNode: the token is of no node")
	issue(t, c, pending(t, c, user), 18*time.Minute, 2*time.Minute) // the next is due at once
	eventually(t, "a certificate", func() bool { return k.Err() == nil })
	require.Equal(t, ca, reads("ca.pem"))
	leaf, err := identity.Load(dir)
	require.NoError(t, err)
	require.Equal(t, ns, leaf.Subject.CommonName)
	require.Equal(t, []string{"fairlead:chassis"}, leaf.Subject.Organization)
	info, err := os.Stat(filepath.Join(dir, "key.pem"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	renewed := func(was string) {
		t.Helper()
		eventually(t, "the next certificate", func() bool { return reads("cert.pem") != was })
		_, err := identity.Load(dir)
		require.NoError(t, err, "key and certificate change at one instant")
	}
	was := reads("cert.pem")
	issue(t, c, pending(t, c, user), 0, time.Hour)
	renewed(was)

	stop()
	since := c.Mark()
	k, stop = chassis(t, c, ns, dir)
	was = reads("cert.pem")
	publish(t, configMaps, map[string]string{"central.crt": ca + "\n" + ca, "chassis.crt": ca})
	issue(t, c, pending(t, c, user), 0, time.Hour)
	renewed(was)
	require.Equal(t, ca+"\n"+ca, reads("ca.pem"))
	made := c.Requests(kube.Filter{Verbs: []string{"create"}, Resource: "certificatesigningrequests", User: user, Since: since})
	require.Len(t, made, 1, "a restart asks for nothing, other CAs do")
	require.NoError(t, configMaps.Delete(t.Context(), "fairlead-ca", metav1.DeleteOptions{}))
	stop()
	require.NoError(t, k.Err(), "CAs that are gone are those that were")
	pairs, err := filepath.Glob(filepath.Join(dir, "pair-*"))
	require.NoError(t, err)
	require.Len(t, pairs, 1)
}
