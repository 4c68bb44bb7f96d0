package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fencedNode is a node that fences itself, of which the pod db has an address that is declared.
type fencedNode struct {
	*kubeNode
	db *kubePod
}

// lease reads fields of the address' lease, or of the node's heartbeat.
func (n *fencedNode) lease(of, path string) string {
	n.t.Helper()
	kind, name, namespace := "addressleases.net.fairlead.io", n.name+".db.10.7.0.16", "default"
	if of == "heartbeat" {
		kind, name, namespace = "leases.coordination.k8s.io", "fairlead-node-"+n.name, "kube-system"
	}
	return n.c.Kubectl("get", "-n", namespace, kind, name, "--ignore-not-found", "-o", "jsonpath={"+path+"}")
}

// start starts the agent anew, with more arguments.
func (n *fencedNode) start(more ...string) {
	n.agent = n.StartAgent(append(slices.Clone(n.args), more...)...)
}

// restart starts it, and waits until it serves.
func (n *fencedNode) restart(more ...string) {
	n.t.Helper()
	n.start(more...)
	n.agent.WaitServing()
}

// dies has the agent end at a point that it is about to pass.
func (n *fencedNode) dies(point string, do func()) {
	n.t.Helper()
	n.Crash(point)
	do()
	require.Error(n.t, n.agent.Wait(), point)
	require.False(n.t, n.CrashPending(), point)
}

// is waits until the interface is on the network, or off it.
func (n *fencedNode) is(up bool) {
	n.t.Helper()
	eventually(n.t, func() string {
		if link := n.db.Run("ip", "-br", "link", "show", "net1"); up != strings.Contains(link, ",UP") {
			return fmt.Sprintf("up is not %v: %s", up, link)
		}
		return ""
	})
}

// TestKubeFenced: a node that does not reach the API server takes what its pods lease off the
// network, says so, gives nothing meanwhile, and puts it back when it is its own still, also
// when its agent dies at any point of that. Without the flag it ends its heartbeat first.
func TestKubeFenced(t *testing.T) {
	t.Parallel()
	n := &fencedNode{kubeNode: lonelyNode(t)}
	before := n.Inventory()
	n.Run("ip", "link", "add", "up0", "type", "veth", "peer", "name", "up1")
	n.c.Apply(nadObject(n.name+"/db", `{"cniVersion":"1.0.0","type":"macvlan","master":"up0","mode":"bridge"}`))
	for i, pod := range []string{"db", "late"} {
		n.c.Apply(fmt.Sprintf(`{apiVersion: net.fairlead.io/v1alpha1, kind: PodNetwork, metadata: {namespace: %s, name: %s}, spec: {interfaces: [{name: net1, network: %s/db, ips: [10.7.0.%d/24]}]}}`,
			n.name, pod, n.name, 16+i))
	}
	n.agent.Stop()
	n.dies("heartbeat.renewed", func() { n.start("--self-fence") })
	n.restart("--self-fence")
	n.agent.WaitReady()
	n.db = n.makePod("db", nil)
	late := n.makePod("late", nil)
	eventually(t, func() string { // what is declared comes by watches of its own
		n.db.cni("ADD").Must()
		if len(addresses(t, n.db.Pod, "net1")) == 0 {
			n.db.cni("DEL").Must()
			return "no net1"
		}
		return ""
	})
	require.Equal(t, "true", n.lease("address", ".spec.holder.selfFence"))
	require.Contains(t, n.Fairlead("lease", "describe", n.name+".db.10.7.0.16", "--kubeconfig", n.args[1]), "\nSelf-fence: ")
	require.NotEmpty(t, n.lease("heartbeat", ".spec.renewTime"))
	n.db.cni("CHECK").Must()

	n.dies("fence.noted", n.c.Stop)
	n.is(true)
	n.dies("fence.down", func() { n.start("--self-fence") }) // which knows how long ago it was
	n.restart("--self-fence")
	n.is(false)
	require.Contains(t, n.db.cni("CHECK").MustCode(11).Details, "fenced: no renewal of the node's heartbeat since ")
	late.cni("ADD").MustCode(11)
	requireBare(t, late.Pod)
	require.Contains(t, exitsWith(t, n.Node, 1, "status"), "fenced: no renewal")

	n.dies("fence.up", n.c.Restart)
	n.restart("--self-fence")
	n.is(true)
	require.Equal(t, []string{"10.7.0.16/24"}, addresses(t, n.db.Pod, "net1"))
	n.agent.WaitReady()
	eventually(t, func() string {
		if out, err := n.TryFairlead("status"); err != nil {
			return out + err.Error()
		}
		return ""
	})
	n.db.cni("CHECK").Must()
	require.Equal(t, n.db.ContainerID, n.lease("address", ".spec.holder.sandbox"))

	n.agent.Stop()
	n.dies("heartbeat.retired", func() { n.start() })
	n.restart()
	n.agent.WaitReady()
	require.Empty(t, n.lease("heartbeat", ".spec.renewTime"))
	n.is(true)
	eventually(t, func() string { return n.lease("address", ".spec.holder.selfFence") })
	n.db.end()
	late.end()
	n.Run("ip", "link", "del", "up0")
	n.RequireNoLeaks(before)
}
