package node_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// TestDebug: kubectl debug looks into a pod that runs.
func TestDebug(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newBed(t))
	files := k.reach()
	testDebug(t, k, "--client-ca-file", files.CA, "--tls-cert-file", files.Cert, "--tls-private-key-file", files.Key)
}

// TestDebugOverDocker: the same over our own CRI.
func TestDebugOverDocker(t *testing.T) {
	t.Parallel()
	k := newCluster(t, newDockerBed(t), "--kubelet-certificate-authority=")
	testDebug(t, k, "--client-ca-file", k.reach().CA)
}

func testDebug(t *testing.T, k *cluster, args ...string) {
	t.Helper()
	args = append([]string{"--kubeconfig", k.conf, "--node-ip", nodeIP}, args...)
	k.startNode(args...)
	k.create("api-0", "sleep 31415926 & "+forever)
	k.object(k.ns, "api-0", ready)
	debug := func(stdin, name, target, script string, more ...string) {
		t.Helper()
		k.kubectl(stdin, append(append([]string{"debug", "api-0", "--image=" + image.BusyboxName, "--image-pull-policy=IfNotPresent", "-c", name, "--target=" + target}, more...),
			"--", "sh", "-c", script)...)
	}
	debug("", "sees", "c", "ps; exit 4")
	up := k.object(k.ns, "api-0", ephemeralEnded("sees"))
	require.Empty(t, ready(up), "the pod does not suffer")
	require.Equal(t, int32(4), up.Status.EphemeralContainerStatuses[0].State.Terminated.ExitCode)
	require.Contains(t, k.kubectl("", "logs", "api-0", "-c", "sees"), "sleep 31415926", "the target's processes")

	// One that is talked to; kubectl attaches to it.
	debug("hello\n", "hears", "c", "read -r line; echo heard $line", "-i")
	k.object(k.ns, "api-0", ephemeralEnded("hears"))
	require.Contains(t, k.kubectl("", "logs", "api-0", "-c", "hears"), "heard hello")

	// None is started twice, whoever runs the pod.
	k.killNode()
	k.startNode(args...)
	debug("", "after", "c", "true")
	k.object(k.ns, "api-0", ephemeralEnded("after"))
	require.ElementsMatch(t, []string{"c", "sees", "hears", "after"}, k.instances("api-0"))
	said := k.describe(k.ns + "/api-0")
	require.Contains(t, said, "Ephemeral container sees")
	require.Equal(t, int32(0), restarts(k.object(k.ns, "api-0", ready)))

	k.delete("api-0")
	k.absent(k.ns, "api-0")
	k.awaitEmpty()
	k.requireNoLeaks()
}

// ephemeralEnded is a condition for object.
func ephemeralEnded(name string) func(*v1.Pod) string {
	return func(p *v1.Pod) string {
		for _, c := range p.Status.EphemeralContainerStatuses {
			if c.Name == name && c.State.Terminated != nil {
				return ""
			}
		}
		return fmt.Sprintf("%s has not ended: %+v", name, p.Status.EphemeralContainerStatuses)
	}
}

// instances are the names of all containers that the runtime has of a pod.
func (b *bed) instances(pod string) []string {
	b.t.Helper()
	list, err := b.runtime.ListContainers(b.t.Context(), &cri.ListContainersRequest{})
	require.NoError(b.t, err)
	var out []string
	for _, c := range list.GetContainers() {
		if strings.HasPrefix(c.GetLabels()["io.kubernetes.pod.name"], pod) {
			out = append(out, c.GetMetadata().GetName())
		}
	}
	return out
}
