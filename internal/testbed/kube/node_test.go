package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

const bridgeConf = `{"cniVersion": "1.0.0", "name": "test", "plugins": [
 {"type": "bridge", "bridge": "br0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`

// leases are the addresses that host-local holds.
func leases(t *testing.T, n *Node) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.Dir, "disk/var/lib/cni/networks/test/10.*"))
	require.NoError(t, err)
	return files
}

func TestNodeRunsPods(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	n := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
	ns := c.Namespace()
	web := n.RunPod(Shell(ns, "web", `{"a": "b"}`, `echo hello from $(hostname) >/tmp/index.html; exec httpd -f -p 80 -h /tmp`))
	cli := n.RunPod(Shell(ns, "cli", "", ""))
	require.Len(t, web.IPs(), 1)

	// On a loaded machine the stream of an exec may be cut, and httpd be late.
	var out string
	var err error
	require.Eventually(t, func() bool {
		out, err = cli.Exec("wget", "-q", "-O", "-", "http://"+web.IPs()[0]+"/")
		return err == nil
	}, time.Minute, 100*time.Millisecond, "wget: %v", err)
	require.Equal(t, "hello from web\n", out)
	_, err = cli.Exec("false")
	require.Error(t, err)
	out, err = web.Nsenter("ip", "-4", "-o", "addr", "show", "dev", "eth0")
	require.NoError(t, err)
	require.Contains(t, out, web.IPs()[0]+"/24")
	require.Len(t, web.ContainerID(), 64)
	require.Len(t, leases(t, n), 2)

	// kubelet's and the runtime's ends leave pods alone.
	n.RestartKubelet()
	n.KillContainerd()
	n.StartContainerd()
	require.NoError(t, until(t.Context(), "exec, once kubelet knows the pods again", func() error {
		out, err = cli.Exec("wget", "-q", "-O", "-", "http://"+web.IPs()[0]+"/")
		return err
	}))
	require.Equal(t, "hello from web\n", out)

	web.Delete()
	require.Len(t, leases(t, n), 1)
}

func TestStaticPodsAndNodesBesideEachOther(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	a := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
	b := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
	require.NotEqual(t, a.IP, b.IP)
	ns := c.Namespace()
	for _, n := range []*Node{a, b} {
		p := n.RunPod(Shell(ns, n.Name, "", ""))
		out, err := p.Exec("hostname")
		require.NoError(t, err)
		require.Equal(t, n.Name+"\n", out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(a.Manifests(), "static.yaml"), []byte(Shell(ns, "static", "", "")), 0o600))
	mirror := &Pod{Namespace: ns, Name: "static-" + a.Name, k: a}
	mirror.WaitRunning()
}

func TestNodeReboots(t *testing.T) {
	t.Parallel()
	c := Shared(t)
	n := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
	ns := c.Namespace()
	p := n.RunPod(Shell(ns, "web", "", ""))
	before := p.ContainerID()
	n.Reboot()
	n.WaitReady()
	require.NoError(t, until(t.Context(), "a new sandbox", func() error {
		id, _, err := n.sandbox(string(p.UID))
		if err == nil && id == before {
			return os.ErrExist
		}
		return err
	}))
	p.WaitRunning()
	require.NoError(t, until(t.Context(), "exec", func() error {
		_, err := p.Exec("true")
		return err
	}))
	require.Len(t, leases(t, n), 1, "the old sandbox had its DEL")
}

// TestFairleadGivesPodsTheirNetworks: kubelet and containerd call our plugin,
// the agent reads the API server, whose one node this is: nothing tells apart which
// addresses each of several may give.
func TestFairleadGivesPodsTheirNetworks(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	n := StartNode(t, c, testbed.New(t), NodeOptions{})
	ns := c.Namespace()
	c.Apply(in(ns, `{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: second, namespace: NS},
		spec: {config: '{"cniVersion": "1.1.0", "type": "macvlan", "master": "second", "mode": "bridge", "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}}'}}`))
	n.Run("ip", "link", "add", "second", "up", "type", "bridge")
	n.Agent("--kubeconfig", c.Kubeconfig(c.Admin()), "--node-name", n.Name).WaitReady()
	n.WriteConf("00-fairlead.conflist", `{"cniVersion": "1.1.0", "name": "fairlead", "plugins": [{"type": "fairlead"}]}`)
	n.WaitReady()

	web := n.RunPod(Shell(ns, "web", `{"k8s.v1.cni.cncf.io/networks": "second"}`, "echo hello >/tmp/index.html; exec httpd -f -p 80 -h /tmp"))
	cli := n.RunPod(Shell(ns, "cli", "", ""))
	out, err := cli.Exec("wget", "-q", "-O", "-", "http://"+web.IPs()[0]+"/")
	require.NoError(t, err)
	require.Equal(t, "hello\n", out)
	out, err = web.Exec("ip", "-o", "-4", "addr", "show", "dev", "net1")
	require.NoError(t, err)
	require.Contains(t, out, "10.89.0.2/24")
	cli.Delete()
	web.Delete()
}

// TestControlPlane: with scheduler and controllers, a Deployment has its pods.
func TestControlPlane(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Control: true})
	n := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
	c.Kubectl("create", "deployment", "web", "--image="+Busybox, "--replicas=2", "--", "sh", "-c", "trap exit TERM; sleep 1000000 & wait")
	c.Kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=60s")
	require.Len(t, leases(t, n), 2)
	c.Kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
	c.Kubectl("wait", "--for=delete", "pods", "--all", "--timeout=80s")
	require.Empty(t, leases(t, n))
}

// machine is what kubelet and containerd would change on it.
func machine(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, f := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys"} {
		b, err := os.ReadFile("/proc/sys/" + f)
		require.NoError(t, err)
		all.WriteString(f + " " + string(b))
	}
	for _, dir := range []string{"/var/log/containers", "/var/lib/kubelet", "/etc/cni/net.d", "/etc/kubernetes"} {
		entries, err := os.ReadDir(dir)
		fmt.Fprintln(&all, dir, entries, err)
	}
	return all.String()
}

func TestMachineIsNotTouched(t *testing.T) {
	before := machine(t)
	var cgroups []string
	t.Run("node", func(t *testing.T) {
		c := Shared(t)
		n := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
		cgroups = n.cgroups.Paths
		n.RunPod(Shell(c.Namespace(), "p", "", ""))
		require.Equal(t, before, machine(t))
		require.DirExists(t, cgroups[0])
		require.NotEmpty(t, n.cgroups.Residents())
	})
	require.Equal(t, before, machine(t))
	for _, dir := range cgroups {
		require.NoDirExists(t, dir)
	}
}

// TestNodeDiesWithItsProcess runs this test's binary again, which starts a
// node with a pod and kills itself.
func TestNodeDiesWithItsProcess(t *testing.T) {
	if file := os.Getenv("KUBE_TEST_DIE"); file != "" {
		c := Start(t, Options{})
		n := StartNode(t, c, testbed.Bare(t), NodeOptions{Conf: bridgeConf})
		n.RunPod(Shell(c.Namespace(), "p", "", ""))
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(append(n.cgroups.Paths, n.Dir, c.Dir()), "\n")), 0o600))
		dieNow(t)
	}
	t.Parallel()
	left := runAndDie(t, "^TestNodeDiesWithItsProcess$")
	cgroups, dirs := left[:len(left)-2], left[len(left)-2:]
	require.NoError(t, until(t.Context(), "the end of its children", func() error {
		for _, c := range cgroups {
			if _, err := os.Stat(c); err == nil {
				return fmt.Errorf("%s is there: %w", c, os.ErrExist)
			}
		}
		return nobody(dirs...)
	}))
	for _, d := range dirs {
		require.NoError(t, os.RemoveAll(d))
	}
}
