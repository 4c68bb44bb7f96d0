package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// otherConf is a network that a machine has already.
const otherConf = `{"cniVersion":"0.4.0","name":"other","plugins":[{"type":"bridge","bridge":"other0","isGateway":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}}]}`

// eachContainerd runs a test with every version that nodes have: 1.6 and 1.7 (in make soak,
// which builds it) take CNI 1.0 at the most.
func eachContainerd(t *testing.T, test func(*testing.T, kube.ContainerdVersion)) {
	t.Helper()
	versions := []kube.ContainerdVersion{kube.Containerd16, kube.Containerd2}
	if soak() {
		versions = append(versions, kube.Containerd17)
	}
	for _, v := range versions {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			test(t, v)
		})
	}
}

// TestRuntimes_Up: pods that `up` begins have Fairlead's network from the first
// on, also where the runtime has loaded another one.
func TestRuntimes_Up(t *testing.T) {
	t.Parallel()
	eachContainerd(t, func(t *testing.T, v kube.ContainerdVersion) {
		b := newUpContainerdOf(t, v)
		conf := filepath.Join(b.Dir, "disk/etc/cni/net.d/10-other.conflist")
		require.NoError(t, os.WriteFile(conf, []byte(otherConf), 0o600))
		awaitNetwork(t, b.containerd, true)
		b.write("a.yaml", upPod("web-0", "", "one")+upPod("web-1", "", "one"))
		b.up()
		table := b.awaitUp()
		for _, pod := range []string{"web-0-node1", "web-1-node1"} {
			require.True(t, strings.HasPrefix(b.ip(pod, "eth0"), "10.16."), table)
		}
		list, err := b.runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
		require.NoError(t, err)
		require.Len(t, list.GetItems(), 2, "none was begun before")
		require.NoError(t, os.Remove(conf))
		b.down()
		b.requireNothing()
	})
}

// TestUpRefusesAForeignNetwork: where another configuration comes before ours no
// waiting helps. Before anything begins `up` says which, and leaves nothing.
func TestUpRefusesAForeignNetwork(t *testing.T) {
	t.Parallel()
	b := newUpContainerd(t)
	conf := filepath.Join(b.Dir, "disk/etc/cni/net.d/00-a.conflist")
	require.NoError(t, os.WriteFile(conf, []byte(otherConf), 0o600))
	awaitNetwork(t, b.containerd, true)
	b.write("a.yaml", upPod("web-0", "", "one"))
	_, err := b.TryFairlead(append([]string{"up"}, b.args...)...)
	require.ErrorContains(t, err, `runtime: pods would get the network "other" of 00-a.conflist, not Fairlead's`)
	require.ErrorContains(t, err, "next: rename or remove /etc/cni/net.d/00-a.conflist")
	require.Empty(t, b.sandboxes())
	require.Equal(t, "nothing is up\n", b.down())

	require.NoError(t, os.Remove(conf))
	b.requireNothing()
}

// TestRuntimes_Chart: the configuration that the agent writes, as the chart has
// it do, serves a pod's ADD and DEL.
func TestRuntimes_Chart(t *testing.T) {
	t.Parallel()
	eachContainerd(t, func(t *testing.T, v kube.ContainerdVersion) {
		n, c := runtimeNode(t, v)
		n.Agent("--cni-conf=auto").WaitReady()
		awaitNetwork(t, c, true)
		inventory := n.Inventory()
		requireServed(t, c)
		n.RequireNoLeaks(inventory)
	})
}

// TestRuntimes_InstallNode: the same by the command.
func TestRuntimes_InstallNode(t *testing.T) {
	t.Parallel()
	eachContainerd(t, func(t *testing.T, v kube.ContainerdVersion) {
		n, c := runtimeNode(t, v)
		n.Agent().WaitReady()
		inventory := n.Inventory()
		require.Contains(t, n.Fairlead("install", "node"), "✓ a pod was attached, and detached again")
		requireServed(t, c)
		n.Fairlead("uninstall", "node")
		n.RequireNoLeaks(inventory)
	})
}

// TestRuntimes_Doctor: doctor asks the runtime that runs, whatever the machine's
// files say; they count when it does not run any more, and doctor says so.
func TestRuntimes_Doctor(t *testing.T) {
	t.Parallel()
	eachContainerd(t, func(t *testing.T, v kube.ContainerdVersion) {
		n, c := runtimeNode(t, v)
		n.Outside()
		a := n.Agent("--cni-conf=auto")
		a.WaitReady()
		awaitGateways(t, n)
		awaitNetwork(t, c, true)
		n.Run("sh", "-c", `mkdir -p /etc/containerd && printf '[plugins.cri.cni]\nconf_dir = "/none"\n' > /etc/containerd/config.toml`)
		const name, socket = "conf for containerd", "/run/containerd/containerd.sock"
		f := found(t, n, name)
		require.Equal(t, "ok", f.Verdict, "%+v", f)
		require.Contains(t, f.Reason, "00-fairlead.conflist wins")
		require.Contains(t, strings.Join(f.Details, "\n"), "on "+socket+" says")

		// What it has loaded is told too.
		a.Kill()
		n.Run("sh", "-c", "rm /etc/cni/net.d/*")
		awaitNetwork(t, c, false)
		n.Run("sh", "-c", "cat > /etc/cni/net.d/10-other.conflist << 'END'\n"+otherConf+"\nEND")
		awaitNetwork(t, c, true)
		f = found(t, n, name)
		require.Equal(t, "warning", f.Verdict, "%+v", f)
		require.Contains(t, strings.Join(f.Details, "\n"), `has loaded the network "other"`)

		c.Kill()
		f = found(t, n, name)
		require.Equal(t, "warning", f.Verdict, "%+v", f)
		require.Contains(t, f.Reason, "/none holds no configuration")
		require.Contains(t, strings.Join(f.Details, "\n"), "none of it answers: by /etc/containerd/config.toml")
	})
}

// found is one of doctor's findings, whatever the others are.
func found(t *testing.T, n *testbed.Node, name string) finding {
	t.Helper()
	out, err := n.TryFairlead("doctor", "-o", "json")
	if err != nil {
		out = err.Error()[strings.Index(err.Error(), "{"):]
	}
	var report struct{ Findings []finding }
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&report), out)
	for _, f := range report.Findings {
		if f.Name == name {
			return f
		}
	}
	require.FailNow(t, "no finding "+name, out)
	return finding{}
}

// runtimeNode is a machine with a containerd and a subnet.
func runtimeNode(t *testing.T, v kube.ContainerdVersion) (*testbed.Node, *kube.Containerd) {
	t.Helper()
	n := testbed.New(t)
	n.WriteObjects("networks.yaml", upNetworks)
	c := kube.NewContainerdOf(t, n, v)
	c.Start()
	return n, c
}

// awaitNetwork waits until the runtime has a network, or has none.
func awaitNetwork(t *testing.T, c *kube.Containerd, want bool) {
	t.Helper()
	eventually(t, func() string {
		s, err := c.Status(t.Context(), &cri.StatusRequest{})
		if err != nil {
			return err.Error()
		}
		for _, cond := range s.GetStatus().GetConditions() {
			if cond.GetType() == cri.NetworkReady && cond.GetStatus() == want {
				return ""
			}
		}
		return s.String()
	})
}

// requireServed runs a pod's sandbox, wants an address of the default subnet,
// and removes it.
func requireServed(t *testing.T, c *kube.Containerd) {
	t.Helper()
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "uid-web"}, Linux: &cri.LinuxPodSandboxConfig{},
	}
	made, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: config})
	require.NoError(t, err)
	id := made.GetPodSandboxId()
	st, err := c.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(st.GetStatus().GetNetwork().GetIp(), "10.16."), st.String())
	_, err = c.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id})
	require.NoError(t, err)
	_, err = c.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: id})
	require.NoError(t, err)
}
