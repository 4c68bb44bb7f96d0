package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	fairlead "github.com/fairlead/fairlead/api/fairlead/v1"
	"github.com/fairlead/fairlead/internal/source/cluster/identity"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/ovn"
)

// shortLife is how long certificates are good for in TestCertificatesOfACluster.
const shortLife = 20 * time.Second

// TestCertificatesOfACluster: both CAs are replaced, and each certificate renewed, while
// pods of two nodes talk and others get addresses: no outage is felt, and the former
// CAs are trusted no more. In make soak all certificates lapse too, since no controller
// runs: what talks goes on, and all comes back by itself when one runs again.
func TestCertificatesOfACluster(t *testing.T) {
	t.Parallel()
	began := time.Now()
	o := newOVNCentral(t, kube.Options{}, ovn.Over)
	o.flags = []string{"--certificate-life", shortLife.String()}
	o.populate()
	one, two := o.nodes[0], o.nodes[1]
	controller := o.controller("a", "127.0.0.1:10666")
	for _, n := range o.nodes {
		n.joined()
		n.unavailable("False", "answers")
	}
	a, b := one.run("web/a"), two.run("web/b")
	a.reaches(b)
	pinged := func() (pings []*testbed.Pinger) {
		return []*testbed.Pinger{a.StartPing(b.ips[0], 20*time.Millisecond), b.StartPing(a.ips[1], 20*time.Millisecond)}
	}
	unharmed := func(pings []*testbed.Pinger, what string) {
		t.Helper()
		for _, g := range pings {
			g.Answers(10)
			answered, lost := g.Stop()
			// One may be Open vSwitch's own, in user space, when the node's routes change (docs/cluster.md).
			require.LessOrEqual(t, lost, 1, "pings lost while %s, %d answered", what, answered)
		}
	}

	pings, was := pinged(), o.cas()
	for _, name := range []string{"central", "chassis"} {
		o.c.Kubectl("annotate", "secret", "-n", "kube-system", fairlead.CAName, fairlead.AnnReplaceCA+"="+name)
		eventually(t, func() string {
			return o.c.Kubectl("get", "secret", "-n", "kube-system", fairlead.CAName, "-o", `jsonpath={.metadata.annotations.fairlead\.io/replace-ca}`)
		})
	}
	objects := 0
	eventually(t, func() string {
		o.allocates(fmt.Sprintf("only-%d", objects), one) // a link that comes would cost packets in user space (docs/cluster.md)
		objects++
		return o.trusting(was)
	})
	o.central.Sync() // each node has carried out what all these were
	unharmed(pings, "CAs were replaced")
	two.run("web/c").reaches(a)
	requests, err := o.c.Client().CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	t.Logf("%d pods had addresses meanwhile, %d certificates were asked for", objects, len(requests.Items))
	// Those of central, of a controller and of each node are renewed after half of their
	// life, and anew when the CAs change.
	most := 4 * (8 + int(time.Since(began)/(shortLife/4)))
	require.Less(t, len(requests.Items), most, "certificates that were asked for")
	if soak() {
		pings = pinged()
		o.lapses(controller)
		unharmed(pings, "certificates lapsed")
		one.run("web/d").reaches(b)
	}
	o.agrees()
}

// cas are the CAs that are trusted now, as the ConfigMap has them.
func (o *ovnCluster) cas() map[string]string {
	o.t.Helper()
	m, err := o.c.Client().CoreV1().ConfigMaps("kube-system").Get(o.t.Context(), fairlead.CAName, metav1.GetOptions{})
	require.NoError(o.t, err)
	return m.Data
}

// trusting is "" when nobody trusts one of these CAs any more, nor has a certificate of
// one, and central has started what did.
func (o *ovnCluster) trusting(former map[string]string) string {
	o.t.Helper()
	for name, now := range o.cas() {
		if strings.Contains(now, former[name]) {
			return "the ConfigMap has the former " + name
		}
	}
	for _, n := range o.nodes {
		if text, err := os.ReadFile(n.keys(identity.CAFile)); err != nil || strings.Contains(string(text), former[fairlead.BundleCentral]) {
			return fmt.Sprintf("%s trusts the former CA: %v", n.name, err)
		}
	}
	out := o.asks("10668", "/metrics")
	for _, part := range []string{"ovsdb-nb", "ovsdb-sb", "relay"} {
		if line := `fairlead_central_restarts_total{part="` + part + `"} `; !strings.Contains(out, line) || strings.Contains(out, line+"0") {
			return part + " of central has not begun anew: " + out
		}
	}
	if out := o.asks("10668", "/readyz"); !strings.Contains(out, " 200 OK") {
		return "central is not ready: " + out
	}
	return ""
}

// keys is the path of a file that the node's ovn-controller is known by.
func (n *ovnNode) keys(name string) string { return n.Path(filepath.Join(chassisKeys, name)) }

// allocates makes an object of a pod and waits until the controller has told its address.
func (o *ovnCluster) allocates(name string, n *ovnNode) {
	o.t.Helper()
	o.c.Apply(object("v1", "Pod", "web/"+name, nil, map[string]any{"nodeName": n.name, "containers": []any{map[string]any{"name": "c", "image": "none"}}}))
	eventually(o.t, func() string {
		p, err := o.c.Client().CoreV1().Pods("web").Get(o.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if p.Annotations["ovn.kubernetes.io/routed"] != "true" {
			return name + " has no address"
		}
		return ""
	})
}

// lapses stops the controller until each certificate is over, and has all connect anew,
// in vain; then it lets the controller go on, and waits until each has carried out what
// the databases say.
func (o *ovnCluster) lapses(controller *testbed.Process) {
	t := o.t
	t.Helper()
	require.NoError(t, syscall.Kill(controller.PID(), syscall.SIGSTOP))
	files := []string{filepath.Join(o.centralDir(), "cert.pem")}
	for _, n := range o.nodes {
		files = append(files, n.keys(identity.CertFile))
	}
	for _, f := range files {
		eventually(t, func() string {
			if end := ends(t, f); time.Now().Before(end) {
				return f + " is good until " + end.String()
			}
			return ""
		})
	}
	o.central.KillSB()
	o.central.StartSB()
	eventually(t, func() string {
		for _, n := range o.nodes {
			if out := n.Run("sh", "-c", "ovs-appctl -t /run/ovn/ovn-controller.*.ctl connection-status"); !strings.Contains(out, "not connected") {
				return n.name + " is still connected: " + out
			}
		}
		return ""
	})
	require.NoError(t, syscall.Kill(controller.PID(), syscall.SIGCONT))
	o.central.Sync()
}

// ends is when a certificate is over.
func ends(t *testing.T, file string) time.Time {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	b, _ := pem.Decode(text)
	require.NotNil(t, b)
	leaf, err := x509.ParseCertificate(b.Bytes)
	require.NoError(t, err)
	return leaf.NotAfter
}
