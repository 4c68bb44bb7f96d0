package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/install/explain"
	"github.com/fairlead/fairlead/internal/install/node"
	"github.com/fairlead/fairlead/internal/install/runtimes"
	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// stockConf is what a node has before Fairlead comes: StartNode calls its file
// 10-test.conflist.
const stockConf = `{"cniVersion":"1.0.0","name":"stock","plugins":[{"type":"bridge","bridge":"stock0","isGateway":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/24"}]]}}]}`

// stockNode is a machine with kubelet and containerd whose folder of plugins has
// upstream's only, and can be written.
type stockNode struct {
	*kube.Node
	t  *testing.T
	c  *kube.Cluster
	ns string
}

func newStockNode(t *testing.T) *stockNode {
	t.Helper()
	c := kube.Start(t, kube.Options{})
	n := &stockNode{t: t, c: c, ns: c.Namespace()}
	bed := testbed.New(t)
	bed.Run("sh", "-c", "mkdir /opt/stock; cp /opt/cni/bin/bridge /opt/cni/bin/host-local /opt/stock; mount --bind /opt/stock /opt/cni/bin")
	n.Node = kube.StartNode(t, c, bed, kube.NodeOptions{Conf: stockConf})
	c.Apply(subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}))
	return n
}

// pod runs a pod and wants its address in a subnet.
func (n *stockNode) pod(name, prefix string) *kube.Pod {
	n.t.Helper()
	p := n.RunPod(kube.Shell(n.ns, name, "", ""))
	require.NotEmpty(n.t, p.IPs())
	require.True(n.t, strings.HasPrefix(p.IPs()[0], prefix), "%s: %v", name, p.IPs())
	return p
}

func (n *stockNode) startAgent() {
	n.t.Helper()
	n.Agent("--kubeconfig", n.c.Kubeconfig(n.c.Admin()), "--node-name", n.Name).WaitReady()
}

// folders are the runtime's, in full.
func (n *stockNode) folders() string {
	n.t.Helper()
	return n.Run("sh", "-c", "cd /; for f in etc/cni/net.d/* opt/cni/bin/*; do stat -c '%n %a %s' $f; sha256sum <$f; done; ls -A etc/cni/net.d opt/cni/bin")
}

// loaded is the network that containerd has by now.
func (n *stockNode) loaded() string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	l, err := runtimes.Query(ctx, n.CRI())
	require.NoError(n.t, err)
	require.Equal(n.t, explain.Containerd, l.Dialect)
	require.True(n.t, l.Told)
	require.NotNil(n.t, l.Network)
	require.Equal(n.t, runtimes.DefaultConfDir, l.Network.Dir)
	require.Equal(n.t, []string{runtimes.DefaultBinDir}, l.Network.BinDirs)
	if len(l.Loaded) == 0 {
		require.False(n.t, l.Ready)
		return "none: " + l.Reason
	}
	return l.Loaded[0].Name
}

// awaitLoaded waits until containerd has the network.
func (n *stockNode) awaitLoaded(name string) {
	n.t.Helper()
	eventually(n.t, func() string {
		if now := n.loaded(); !strings.Contains(now, name) {
			return "containerd has " + now
		}
		return ""
	})
}

// install runs `install node` or `uninstall node` and reads its report.
func (n *stockNode) install(verb string, args ...string) (r node.Report, err error) {
	n.t.Helper()
	out, err := n.TryFairlead(append([]string{verb, "node", "-o", "json"}, args...)...)
	if strings.HasPrefix(out, "{") {
		require.NoError(n.t, json.NewDecoder(strings.NewReader(out)).Decode(&r), out)
	}
	return r, err
}

func actions(r node.Report) (out []string) {
	for _, f := range r.Files {
		out = append(out, f.Action)
	}
	return out
}

// TestKubelet_StockNode: a node of kubelet and containerd with a bridge becomes
// one whose new pods have Fairlead's network, by one command, and by another one
// it is as before. Pods that run keep what they have.
func TestKubelet_StockNode(t *testing.T) {
	t.Parallel()
	n := newStockNode(t)
	old := n.pod("old", "10.88.0.")
	before := n.folders()

	r, err := n.install("install")
	require.Error(t, err, "no agent runs")
	require.Len(t, r.Blocks, 1)
	require.Contains(t, r.Blocks[0].What, "no agent")
	require.Equal(t, before, n.folders())

	n.startAgent()
	inventory := n.Inventory()
	r, err = n.install("install", "--dry-run")
	require.NoError(t, err)
	require.False(t, r.Done)
	require.Equal(t, []string{node.Add, node.Add}, actions(r))
	require.Equal(t, `"stock" by 10-test.conflist`, r.Before)
	require.Equal(t, "00-fairlead.conflist", r.After.Winner().File)
	require.Equal(t, before, n.folders())

	r, err = n.install("install")
	require.NoError(t, err)
	require.True(t, r.Done)
	require.True(t, r.Runtime.Ready, r.Runtime.Reason)
	require.True(t, r.Proven, r.Notes)
	require.Equal(t, "fairlead", n.loaded(), "install node waits for it")
	require.Contains(t, strings.Join(r.Notes, "\n"), "1 pods with a network of their own run without Fairlead's")
	fresh := n.pod("fresh", "10.16.0.")
	n.Fairlead("check", n.ns+"/fresh")
	installed := n.folders()
	r, err = n.install("install")
	require.NoError(t, err)
	require.Equal(t, []string{node.Keep, node.Keep}, actions(r))
	require.Equal(t, installed, n.folders())
	n.Fairlead("conf", "explain", "--runtime", "containerd")

	r, err = n.install("uninstall")
	require.Error(t, err)
	require.Len(t, r.Blocks, 1)
	require.Equal(t, "1 pods have Fairlead's network", r.Blocks[0].What)
	require.Equal(t, installed, n.folders())
	fresh.Delete()
	r, err = n.install("uninstall")
	require.NoError(t, err)
	require.Equal(t, []string{node.Remove, node.Remove}, actions(r))
	require.Equal(t, before, n.folders())
	require.Equal(t, "stock", n.loaded())
	r, err = n.install("uninstall")
	require.NoError(t, err)
	require.Empty(t, r.Files)
	n.pod("late", "10.88.0.").Delete()
	_, err = old.Exec("true")
	require.NoError(t, err)
	n.RequireNoLeaks(inventory)
}

// TestKubelet_StockNodeHasItsOwn: what stands in the way is said before anything
// is changed; what others had there comes back, and what they write later stays.
func TestKubelet_StockNodeHasItsOwn(t *testing.T) {
	t.Parallel()
	n := newStockNode(t)
	n.startAgent()
	conf := func(name string) string { return filepath.Join(n.Dir, "disk/etc/cni/net.d", name) }
	blocked := func(why string, args ...string) {
		t.Helper()
		before := n.folders()
		r, err := n.install("install", args...)
		require.Error(t, err)
		require.Len(t, r.Blocks, 1)
		require.Contains(t, r.Blocks[0].What, why)
		require.NotEmpty(t, r.Blocks[0].Next)
		require.Equal(t, before, n.folders())
	}
	put := func(name, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(conf(name), []byte(text), 0o600))
	}
	put("00-a.conflist", stockConf)
	blocked("00-a.conflist would win")
	put("00-a.conflist", "{")
	blocked("00-a.conflist: 00-a.conflist cannot be parsed")
	require.NoError(t, os.Remove(conf("00-a.conflist")))
	n.Run("sh", "-c", "echo 'exit 1' >/opt/cni/bin/fairlead; chmod 755 /opt/cni/bin/fairlead")
	blocked("/opt/cni/bin/fairlead is another program")
	blocked("is not Fairlead's plugin", "--from", "/opt/cni/bin/bridge")
	blocked("no configuration of ours", "--cni-master", "none.conf")

	// Both files are somebody's, and come back.
	put("00-fairlead.conflist", stockConf)
	before := n.folders()
	old := n.pod("old", "10.88.0.")
	r, err := n.install("install", "--replace", "--cni-master", "auto")
	require.NoError(t, err)
	require.Equal(t, []string{node.Replace, node.Replace}, actions(r))
	require.Equal(t, []string{"bridge", "host-local"}, r.After.Winner().Plugins[0].Names)
	pod := n.pod("around", "10.88.0.")
	n.Fairlead("check", n.ns+"/around")
	addr := old.IPs()[0]
	n.Run("test", "-e", "/var/lib/cni/networks/stock/"+addr)
	old.Delete()
	n.Run("test", "!", "-e", "/var/lib/cni/networks/stock/"+addr) // its DEL was handed on
	r, err = n.install("install")                                 // another default network now: the first backup counts
	require.NoError(t, err)
	require.Equal(t, []string{node.Keep, node.Replace}, actions(r))
	pod.Delete()
	r, err = n.install("uninstall", "--dry-run")
	require.NoError(t, err)
	require.False(t, r.Done)
	require.NotEqual(t, before, n.folders())
	r, err = n.install("uninstall")
	require.NoError(t, err)
	require.Equal(t, []string{node.Restore, node.Restore}, actions(r))
	require.Equal(t, before, n.folders())

	// Nothing of ours is left but what somebody else wrote since.
	require.NoError(t, os.Remove(conf("00-fairlead.conflist")))
	n.Run("rm", "/opt/cni/bin/fairlead")
	_, err = n.install("install")
	require.NoError(t, err)
	put("00-fairlead.conflist", strings.Replace(stockConf, `"stock"`, `"later"`, 1))
	r, err = n.install("uninstall")
	require.NoError(t, err)
	require.Equal(t, []string{node.Leave, node.Remove}, actions(r))
	require.Equal(t, "later", n.loaded())
}

// TestKubelet_DockerInstalled: the same command where kubelet's runtime is
// `fairlead cri` over Docker. The plugin is there already; the node becomes Ready
// by the configuration.
func TestKubelet_DockerInstalled(t *testing.T) {
	t.Parallel()
	c := kube.Start(t, kube.Options{})
	n := &stockNode{t: t, c: c, ns: c.Namespace()}
	bed := testbed.New(t)
	shim := docker.Start(t, bed).StartCRI() // before kubelet, so that it ends after it
	n.Node = kube.StartNode(t, c, bed, kube.NodeOptions{Runtime: shim.Socket})
	c.Apply(subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16"}))
	n.startAgent()
	before := n.Inventory()
	r, err := n.install("install", "--runtime", shim.Socket)
	require.NoError(t, err)
	require.Equal(t, explain.Fairlead, r.Runtime.Dialect)
	require.Equal(t, []string{node.Keep, node.Add}, actions(r))
	require.True(t, r.Runtime.Ready)
	require.True(t, r.Proven, r.Notes)
	n.WaitReady()
	p := n.pod("web", "10.16.0.")
	n.Fairlead("check", n.ns+"/web")
	_, err = n.install("uninstall", "--runtime", shim.Socket)
	require.Error(t, err, "a pod has our network")
	p.Delete()
	r, err = n.install("uninstall", "--runtime", shim.Socket)
	require.NoError(t, err)
	require.Equal(t, []string{node.Remove}, actions(r))
	n.RequireNoLeaks(before)
}

// TestKubelet_ContainerdHears: containerd itself behaves as is told of it: what is
// moved in from another folder it does not load, and a broken file takes all
// networks away.
func TestKubelet_ContainerdHears(t *testing.T) {
	t.Parallel()
	n := newStockNode(t)
	other := strings.Replace(stockConf, `"stock"`, `"other"`, 1)
	conf := filepath.Join(n.Dir, "disk/etc/cni/net.d/05-other.conflist")
	elsewhere := filepath.Join(n.Dir, "disk/elsewhere")
	require.NoError(t, os.WriteFile(elsewhere, []byte(other), 0o600))
	require.NoError(t, os.Rename(elsewhere, conf))
	for range 20 {
		require.Equal(t, "stock", n.loaded(), "moved in: not heard")
	}
	require.NoError(t, os.WriteFile(conf, []byte(other), 0o600))
	n.awaitLoaded("other")
	require.NoError(t, os.WriteFile(conf, []byte("{"), 0o600))
	n.awaitLoaded("none: ")
	require.Contains(t, n.loaded(), "05-other.conflist")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(conf), ".tmp"), []byte(other), 0o600))
	require.NoError(t, os.Rename(filepath.Join(filepath.Dir(conf), ".tmp"), conf))
	n.awaitLoaded("other")
	require.NoError(t, os.Remove(conf))
	n.awaitLoaded("stock")
}
