package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/api/agent"
	"github.com/fairlead/fairlead/api/cni"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// clusterNode is a node whose agent reads an API server under a name of its
// own, which is the namespace's too.
type clusterNode struct {
	*testbed.Node
	t    *testing.T
	c    *kube.Cluster
	link *kube.Link
	name string
	args []string
}

func startClusterNode(t *testing.T, c *kube.Cluster) *clusterNode {
	t.Helper()
	c.Alone()
	return joinCluster(t, c)
}

// joinCluster is startClusterNode beside the cluster's other nodes.
func joinCluster(t *testing.T, c *kube.Cluster, podCIDRs ...string) *clusterNode {
	t.Helper()
	n := &clusterNode{Node: testbed.New(t), t: t, c: c, name: c.Namespace()}
	c.RegisterNode(n.name, podCIDRs...)
	n.link = c.Link(n.NetnsPath())
	n.args = []string{"--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.name}
	return n
}

// pod makes a pod on the node, and its sandbox.
func (n *clusterNode) pod(name string, notes map[string]string) *testbed.Pod {
	n.t.Helper()
	n.c.Apply(object("v1", "Pod", n.name+"/"+name, notes, map[string]any{
		"nodeName": n.name, "containers": []any{map[string]any{"name": "c", "image": "none"}},
	}))
	return n.NewPod(n.name + "/" + name)
}

// call is the plugin's call as containerd makes it, UID included.
func (n *clusterNode) call(op string, p *testbed.Pod, conf string) testbed.Answer {
	n.t.Helper()
	return n.CNI(cni.Request{
		Command: op, ContainerID: p.ContainerID, Netns: p.Netns(), IfName: "eth0",
		Args: p.Args() + ";K8S_POD_UID=" + n.uid(p.Name), Config: []byte(conf),
	})
}

func (n *clusterNode) uid(pod string) string {
	n.t.Helper()
	o, err := n.c.Client().CoreV1().Pods(n.name).Get(n.t.Context(), pod, metav1.GetOptions{})
	require.NoError(n.t, err)
	return string(o.UID)
}

// published is the pod's network-status at the API server.
func (n *clusterNode) published(pod string) []agent.NetworkStatus {
	n.t.Helper()
	o, err := n.c.Client().CoreV1().Pods(n.name).Get(n.t.Context(), pod, metav1.GetOptions{})
	require.NoError(n.t, err)
	var out []agent.NetworkStatus
	if text := o.Annotations[statusKey]; text != "" {
		require.NoError(n.t, json.Unmarshal([]byte(text), &out), text)
	}
	return out
}

const statusKey = "k8s.v1.cni.cncf.io/network-status"

// TestClusterPod: a pod of a real API server gets the networks that its
// annotation names, and its status says what it got.
func TestClusterPod(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	n.c.Apply(nadObject(n.name+"/storage", `{"cniVersion":"1.0.0","type":"bridge","bridge":"br-storage","ipam":{"type":"host-local","subnet":"10.20.0.0/24","rangeStart":"10.20.0.5"}}`))
	n.Run("ip", "link", "add", "br-storage", "address", "0a:00:00:00:20:01", "up", "type", "bridge") // the plugin leaves it for all pods
	n.Agent(n.args...).WaitReady()
	before := n.Inventory()
	p := n.pod("web", map[string]string{networksKey: "storage"})

	n.call("ADD", p, ownConf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	eventually(t, func() string {
		if len(n.published("web")) != 2 {
			return "no status"
		}
		return ""
	})
	got := n.published("web")
	require.Equal(t, "eth0", got[0].Interface)
	require.True(t, got[0].Default)
	require.Equal(t, []string{bare(addresses(t, p, "eth0")[0])}, got[0].IPs)
	require.Equal(t, n.name+"/storage", got[1].Name)
	require.Equal(t, []string{"10.20.0.5"}, got[1].IPs)

	n.call("DEL", p, ownConf).Must()
	p.Delete()
	require.Equal(t, before, n.Inventory())
}

// TestClusterOfTheConf: an agent without flags reads the API server that the
// first configuration of the runtime names, as Multus does. Until then it is an
// agent without a cluster.
func TestClusterOfTheConf(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	n.c.Apply(nadObject(n.name+"/storage", `{"cniVersion":"1.0.0","type":"bridge","bridge":"br-storage","ipam":{"type":"host-local","subnet":"10.20.0.0/24"}}`))
	n.Agent("--objects", "", "--node-name", n.name).WaitReady()
	p := n.pod("web", map[string]string{networksKey: "storage"})
	conf := `{"cniVersion":"1.1.0","name":"multus-cni-network","type":"multus","kubeconfig":"` + n.args[1] + `",
		"delegates":[{"cniVersion":"1.1.0","name":"pods","type":"fairlead"}]}`
	n.call("ADD", p, conf).Must()
	require.Equal(t, []string{"eth0", "lo", "net1"}, linkNames(t, p))
	eventually(t, func() string {
		if len(n.published("web")) != 2 {
			return "no status"
		}
		return ""
	})
	require.Contains(t, n.Fairlead("get", "nets"), n.name+"/storage")
	n.call("DEL", p, conf).Must()
}

// TestClusterOfTheConfigFile: the agent's own file names the API server, and lays
// a network for every pod over the runtime's configuration.
func TestClusterOfTheConfigFile(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	n.c.Apply(nadObject(n.name+"/storage", `{"cniVersion":"1.0.0","type":"bridge","bridge":"br-storage","ipam":{"type":"host-local","subnet":"10.20.0.0/24"}}`))
	file := filepath.Join(n.Dir, "daemon-config.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"kubeconfig": "`+n.args[1]+`", "multusNamespace": "`+n.name+`",
		"clusterNetwork": "storage", "colour": "blue"}`), 0o600))
	n.Agent("--objects", "", "--config", file, "--node-name", n.name).WaitReady()
	p := n.pod("web", nil)
	conf := `{"cniVersion":"1.1.0","name":"multus-cni-network","type":"multus","clusterNetwork":"other"}`
	n.call("ADD", p, conf).Must()
	require.True(t, strings.HasPrefix(addresses(t, p, "eth0")[0], "10.20.0."))
	n.call("DEL", p, conf).Must()
}

// TestClusterCertificate: --bootstrap-kubeconfig makes the agent ask for a
// certificate of its node's own, which is all that it reads and writes with.
func TestClusterCertificate(t *testing.T) {
	t.Parallel()
	n := startClusterNode(t, kube.Shared(t))
	boot := n.c.User("boot-"+n.name, "system:masters")
	a := n.Agent("--bootstrap-kubeconfig", n.c.Kubeconfig(boot), "--node-name", n.name)
	call(n.Node, "STATUS").MustCode(50)
	user := "system:fairlead:" + n.name
	n.c.Apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: "` + n.name + `"},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "` + user + `"}]}`)
	n.sign("boot-" + n.name)
	a.WaitReady()
	require.Contains(t, n.Run("ls", "-l", "/var/lib/fairlead/pki"), "-rw------- ")
	p := n.pod("web", nil)
	n.call("ADD", p, ownConf).Must()
	eventually(t, func() string {
		if len(n.published("web")) != 1 {
			return "no status"
		}
		return ""
	})
	require.NotEmpty(t, n.c.Requests(kube.Filter{User: user, Resource: "pods/status", Namespace: n.name}))
	n.call("DEL", p, ownConf).Must()
}

// sign approves and signs the request of a user, as a controller would.
func (n *clusterNode) sign(user string) {
	n.t.Helper()
	requests := n.c.Client().CertificatesV1().CertificateSigningRequests()
	eventually(n.t, func() string {
		list, err := requests.List(n.t.Context(), metav1.ListOptions{})
		require.NoError(n.t, err)
		for i := range list.Items {
			r := &list.Items[i]
			if r.Spec.Username != user {
				continue
			}
			r.Status.Conditions = []certv1.CertificateSigningRequestCondition{{Type: certv1.CertificateApproved, Status: "True", Reason: "Test"}}
			r, err = requests.UpdateApproval(n.t.Context(), r.Name, r, metav1.UpdateOptions{})
			require.NoError(n.t, err)
			r.Status.Certificate = n.c.Sign(r.Spec.Request, time.Hour)
			_, err = requests.UpdateStatus(n.t.Context(), r, metav1.UpdateOptions{})
			require.NoError(n.t, err)
			return ""
		}
		return "no request"
	})
}
