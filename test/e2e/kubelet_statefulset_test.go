package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// statefulSet has two replicas with an address each on both networks.
const statefulSet = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"db","namespace":%[1]q},"spec":{
"replicas":2,"serviceName":"db","podManagementPolicy":"Parallel","selector":{"matchLabels":{"app":"db"}},
"template":{"metadata":{"labels":{"app":"db"},"annotations":{%[2]q:"storage",
  "ovn.kubernetes.io/ip_pool":"10.16.5.10,10.16.5.11","storage.%[1]s.ovn.kubernetes.io/ip_pool":"10.20.5.10,10.20.5.11"}},
 "spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":%[3]q,"command":["sleep","1000000"]}]}}}}`

// TestKubelet_StatefulSet: a replica that its controller makes anew, after its
// deletion and after a forced one, has its addresses again.
func TestKubelet_StatefulSet(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{Control: true})
	n := kube.StartNode(t, c, testbed.New(t), kube.NodeOptions{})
	ns := c.Namespace()
	c.Apply(together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}),
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/16", "provider": "storage." + ns + ".ovn"}),
		nadObject(ns+"/storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.`+ns+`.ovn"}`)))
	n.Agent("--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.Name).WaitReady()
	n.WriteConf("00-fairlead.conflist", `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead"}]}`)
	n.WaitReady()
	c.Apply(fmt.Sprintf(statefulSet, ns, networksKey, kube.Busybox))
	uids := map[string]bool{}
	require.Equal(t, []string{"10.16.5.10 10.20.5.10", "10.16.5.11 10.20.5.11"}, replicas(t, c, ns, uids))
	for _, how := range [][]string{{"--wait=true"}, {"--force", "--grace-period=0"}} {
		c.Kubectl(append([]string{"delete", "pods", "-n", ns, "db-0", "db-1", "--timeout=60s"}, how...)...)
		require.Equal(t, []string{"10.16.5.10 10.20.5.10", "10.16.5.11 10.20.5.11"}, replicas(t, c, ns, uids))
	}
	require.Len(t, uids, 6, "each was made anew")
	c.Kubectl("delete", "statefulset", "-n", ns, "db", "--cascade=foreground", "--timeout=60s")
}

// replicas waits until both replicas run as new pods and gives the addresses of
// each, as its containers see them; uids remembers the pods.
func replicas(t *testing.T, c *kube.Cluster, ns string, uids map[string]bool) (ips []string) {
	t.Helper()
	for _, name := range []string{"db-0", "db-1"} {
		var pod *corev1.Pod
		eventually(t, func() string {
			var err error
			pod, err = c.Client().CoreV1().Pods(ns).Get(t.Context(), name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case uids[string(pod.UID)] || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning:
				return fmt.Sprintf("%s of %s is %s", name, pod.UID, pod.Status.Phase)
			}
			return ""
		})
		uids[string(pod.UID)] = true
		out := c.Kubectl("exec", "--quiet", "-n", ns, name, "--", "sh", "-c", "ip -o -4 addr show | grep -v ' lo ' | awk '{print $4}'")
		var bares []string
		for _, ip := range strings.Fields(out) {
			bares = append(bares, bare(ip))
		}
		ips = append(ips, strings.Join(bares, " "))
	}
	return ips
}
