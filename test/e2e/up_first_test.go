package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// chainedConf calls our plugin, then one that fails: every file is in order, and
// no pod gets a network.
const chainedConf = `{"cniVersion": "1.0.0", "name": "mine", "plugins": [{"type": "fairlead"}, {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.none": "1"}}]}`

// TestUpTriesAPod: before the first pod of the folder begins, the runtime has
// attached one. Where it cannot, `up` says why and leaves nothing.
func TestUpTriesAPod(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	conf := filepath.Join(b.Dir, "disk/etc/cni/net.d/10-mine.conflist")
	require.NoError(t, os.WriteFile(conf, []byte(chainedConf), 0o600))
	awaitNetwork(t, b.containerd, true)
	b.write("a.yaml", upPod("web-0", "", "one"))
	_, err := b.TryFairlead(append([]string{"up"}, b.args...)...)
	require.ErrorContains(t, err, "runtime: a pod got no network: ")
	require.ErrorContains(t, err, "net/ipv4/conf/eth0/none")
	require.ErrorContains(t, err, "next: `fairlead doctor` ")
	require.Empty(t, b.sandboxes())
	require.Equal(t, "nothing is up\n", b.down())
	require.NoError(t, os.Remove(conf))
	b.requireNothing()
}

// TestUpTriesAPodThatNothingEnds: a network that can neither be made nor removed
// is told as what it is, and the next start mends it once the plugin works.
func TestUpTriesAPodThatNothingEnds(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	conf := filepath.Join(b.Dir, "disk/etc/cni/net.d/10-mine.conflist")
	b.Run("sh", "-c", "mkdir /run/bin && cp /opt/cni/bin/* /run/bin && mount --bind /run/bin /opt/cni/bin") // it is read-only
	const never = `#!/bin/sh
[ "$CNI_COMMAND" != VERSION ] || exec /opt/cni/bin/tuning
echo '{"cniVersion": "1.0.0", "code": 100, "msg": "never again"}'
exit 1`
	b.Run("sh", "-c", `echo "$0" > /run/bin/never && chmod +x /run/bin/never`, never)
	require.NoError(t, os.WriteFile(conf, []byte(strings.Replace(chainedConf, `"tuning"`, `"never"`, 1)), 0o600))
	awaitNetwork(t, b.containerd, true)
	b.write("a.yaml", upPod("web-0", "", "one"))
	_, err := b.TryFairlead(append([]string{"up"}, b.args...)...)
	require.ErrorContains(t, err, "runtime: a pod got no network: ")
	require.ErrorContains(t, err, "never again")

	require.NoError(t, os.WriteFile(conf, []byte(strings.Replace(chainedConf, `, {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.none": "1"}}`, "", 1)), 0o600))
	b.up()
	b.awaitUp()
	require.Len(t, b.sandboxes(), 1)
	b.Fairlead("gc") // the chain's DEL never came to our plugin
	b.down()
	require.NoError(t, os.Remove(conf))
	b.Run("sh", "-c", "umount /opt/cni/bin && rm -r /run/bin")
	b.requireNothing()
}

// TestUpAfterATrial: what a trial left whose process was killed is no pod of
// another program, and goes.
func TestUpAfterATrial(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	trial := func() {
		_, err := b.runtime.RunPodSandbox(t.Context(), inNodesNetwork("trial", map[string]string{runtimes.ProofLabel: "true"}, ""))
		require.NoError(t, err)
	}
	trial()
	b.write("a.yaml", upPod("web-0", "", "one"))
	b.up()
	b.awaitUp()
	require.Len(t, b.sandboxes(), 1)

	b.proc.end(syscall.SIGKILL)
	trial()
	b.down()
	require.Empty(t, b.sandboxes())
	b.requireNothing()
}

// TestUpWithoutAFreeAddress: a subnet whose addresses are all spoken for serves
// the pods that it is for.
func TestUpWithoutAFreeAddress(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	b.write("networks.yaml", strings.Replace(upNetworks, "cidrBlock: 10.16.0.0/16", "cidrBlock: 10.16.0.0/30, excludeIps: [10.16.0.2]", 1))
	b.write("a.yaml", upPod("web-0", ", ovn.kubernetes.io/ip_address: 10.16.0.2", "one"))
	b.up()
	b.awaitUp()
	require.Equal(t, "10.16.0.2", b.ip("web-0-node1", "eth0"))
	b.down()
	b.requireNothing()
}

// TestCgroupParent: with systemd's driver containerd needs a slice, by whatever
// version it tells so.
func TestCgroupParent(t *testing.T) {
	t.Parallel()
	eachContainerd(t, func(t *testing.T, v kube.ContainerdVersion) {
		n := testbed.New(t)
		c := kube.NewContainerdOf(t, n, v)
		c.Start()
		parent, err := runtimes.CgroupParent(t.Context(), c)
		require.NoError(t, err)
		require.Empty(t, parent)

		c.Kill()
		c.UnderSystemd()
		c.Start()
		parent, err = runtimes.CgroupParent(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, "system.slice", parent)
		_, err = c.RunPodSandbox(t.Context(), inNodesNetwork("web", nil, parent))
		require.ErrorContains(t, err, "systemd", "none runs here")
		require.NotContains(t, err.Error(), "cgroupsPath", "runc wants a slice")
	})
}

// inNodesNetwork asks for a sandbox that needs no network of its own.
func inNodesNetwork(name string, labels map[string]string, cgroup string) *cri.RunPodSandboxRequest {
	return &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Labels: labels, LogDirectory: "/tmp",
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: cgroup, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_NODE},
		}},
	}}
}
