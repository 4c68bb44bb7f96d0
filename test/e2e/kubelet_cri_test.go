package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/docker"
	"github.com/fairlead/fairlead/internal/testbed/kube"
)

// dockerNode is a machine of a cluster with kubelet -> `fairlead cri` -> Docker
// and the agent's network.
type dockerNode struct {
	*kube.Node
	t      *testing.T
	c      *kube.Cluster
	ns     string
	engine *docker.Engine
	shim   *docker.CRI
	agent  *testbed.Agent
}

func newDockerNode(t *testing.T) *dockerNode {
	t.Helper()
	c := kube.Start(t, kube.Options{})
	n := &dockerNode{t: t, c: c, ns: c.Namespace()}
	bed := testbed.New(t)
	// Before kubelet, so that they end after it.
	n.engine = docker.Start(t, bed)
	n.shim = n.engine.StartCRI()
	n.Node = kube.StartNode(t, c, bed, kube.NodeOptions{Runtime: n.shim.Socket})
	c.Apply(together(
		subnetObject("ovn-default", map[string]any{"default": true, "cidrBlock": "10.16.0.0/16", "natOutgoing": true}),
		subnetObject("storage", map[string]any{"cidrBlock": "10.20.0.0/16", "provider": "storage." + n.ns + ".ovn"}),
		nadObject(n.ns+"/storage", `{"cniVersion":"1.0.0","type":"fairlead","provider":"storage.`+n.ns+`.ovn"}`)))
	n.startAgent()
	n.WriteConf("00-fairlead.conflist", `{"cniVersion":"1.1.0","name":"fairlead","plugins":[{"type":"fairlead",
		"capabilities":{"portMappings":true,"io.kubernetes.cri.pod-annotations":true}}]}`)
	n.WaitReady()
	return n
}

func (n *dockerNode) startAgent() {
	n.t.Helper()
	n.agent = n.Agent("--kubeconfig", n.c.Kubeconfig(n.c.Admin()), "--node-name", n.Name)
	n.agent.WaitReady()
}

// webPod has both networks, a page on a port of the node, and a line in its log.
const webPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":%q,"annotations":{%q:"storage"}},
"spec":{"containers":[{"name":"c","image":%q,"ports":[{"containerPort":80,"hostPort":8080}],
 "command":["sh","-c","echo hello >/tmp/index.html; echo serving; exec httpd -f -p 80 -h /tmp"]}]}}`

// pods are what must survive: of each pod its sandbox, container, addresses and
// number of restarts.
func (n *dockerNode) pods(all ...*kube.Pod) (out []string) {
	n.t.Helper()
	for _, p := range all {
		o, err := p.Object()
		require.NoError(n.t, err)
		s := o.Status.ContainerStatuses[0]
		out = append(out, fmt.Sprintln(p.Name, p.ContainerID(), s.ContainerID, s.RestartCount, p.IPs()))
	}
	return out
}

// running are the names of Docker's containers, sandboxes too, that run.
func (n *dockerNode) running() (names []string) {
	n.t.Helper()
	list, err := n.engine.ContainerList(n.t.Context(), client.ContainerListOptions{})
	require.NoError(n.t, err)
	for _, c := range list.Items {
		names = append(names, c.Names...)
	}
	return names
}

// works tells what of a pod's use does not: exec with both interfaces, logs, the
// node's port.
func (n *dockerNode) works(web *kube.Pod) string {
	n.t.Helper()
	for _, nic := range []struct{ name, prefix string }{{"eth0", "inet 10.16."}, {"net1", "inet 10.20."}} {
		out, err := web.Exec("ip", "-4", "-o", "addr", "show", "dev", nic.name)
		if err != nil {
			return err.Error()
		}
		require.Contains(n.t, out, nic.prefix)
	}
	if out, err := web.Logs(); err != nil || out != "serving\n" {
		return fmt.Sprintf("logs: %q %v", out, err)
	}
	for _, addr := range []string{n.IP, "127.0.0.1"} {
		out, err := n.Try("timeout", "3", "busybox", "wget", "-q", "-O", "-", "http://"+addr+":8080/")
		if err != nil || out != "hello\n" {
			return fmt.Sprintf("host port at %s: %q %v", addr, out, err)
		}
	}
	return ""
}

// TestKubelet_Docker: stock kubelet with `fairlead cri` over Docker, with our
// network. All that a user does through the API server works; every daemon may be
// killed, all at once and (make soak) one by one, and the pods are the same ones.
func TestKubelet_Docker(t *testing.T) {
	t.Parallel()
	n := newDockerNode(t)
	before := n.Inventory()
	web := n.RunPod(fmt.Sprintf(webPod, n.ns, networksKey, kube.Busybox))
	cli := n.RunPod(kube.Shell(n.ns, "cli", "", ""))
	eventually(t, func() string { return n.works(web) })
	_, err := cli.Exec("false")
	require.ErrorContains(t, err, "exit code 1")
	out, err := cli.Exec("wget", "-q", "-O", "-", "http://"+web.IPs()[0]+"/")
	require.NoError(t, err)
	require.Equal(t, "hello\n", out)
	require.Equal(t, "hello\n", get(t, "http://"+web.Forward(80)+"/"))

	same, inventory := n.pods(web, cli), n.Inventory()
	for _, kill := range []struct {
		name        string
		kill, start func()
	}{
		{"kubelet", n.KillKubelet, n.RestartKubelet},
		{"shim", n.shim.Kill, n.shim.Run},
		{"dockerd", n.engine.Kill, n.engine.Run},
		{"agent", n.agent.Kill, n.startAgent},
		{"all", n.killAll, n.startAll},
	} {
		if kill.name != "all" && !soak() {
			continue
		}
		kill.kill()
		kill.start()
		// A pod that comes and goes has all of them do their work anew: after it
		// they have looked at the others too.
		n.RunPod(kube.Shell(n.ns, "after", "", "trap exit TERM; sleep 1000000 & wait")).Delete()
		eventually(t, func() string { return n.works(web) })
		require.Equal(t, same, n.pods(web, cli), "after the end of %s", kill.name)
		require.Len(t, n.running(), 4, "after the end of %s", kill.name)
		require.Empty(t, n.Leaks(inventory), "after the end of %s", kill.name)
	}
	n.deleteWithoutRuntime()
	n.nothingLeft(before)
}

// deleteWithoutRuntime deletes all pods while dockerd and the shim are away.
// kubelet tries again when it finds right.
func (n *dockerNode) deleteWithoutRuntime() {
	n.t.Helper()
	n.shim.Kill()
	n.engine.Kill()
	n.c.Kubectl("delete", "pods", "-n", n.ns, "--all", "--wait=false")
	n.engine.Run()
	n.shim.Run()
	n.c.Kubectl("delete", "pods", "-n", n.ns, "--all", "--timeout=60s")
}

func (n *dockerNode) killAll() {
	n.KillKubelet()
	n.shim.Kill()
	n.engine.Kill()
	n.agent.Kill()
}

// startAll has the shim last but for kubelet: a machine that boots waits for
// Docker's socket.
func (n *dockerNode) startAll() {
	n.engine.Run()
	n.startAgent()
	n.shim.Run()
	n.RestartKubelet()
}

// nothingLeft wants no process, address or device of any pod, and then no record.
func (n *dockerNode) nothingLeft(before testbed.Inventory) {
	n.t.Helper()
	require.Empty(n.t, n.running())
	n.RequireNoLeaks(before)
	// kubelet does this once a minute.
	list, err := n.shim.ListPodSandbox(n.t.Context(), &cri.ListPodSandboxRequest{})
	require.NoError(n.t, err)
	for _, s := range list.Items {
		_, err := n.shim.RemovePodSandbox(n.t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: s.Id})
		require.NoError(n.t, err)
	}
	all, err := n.engine.ContainerList(n.t.Context(), client.ContainerListOptions{All: true})
	require.NoError(n.t, err)
	require.Empty(n.t, all.Items)
	for _, d := range []string{"sandbox", "cni/results"} {
		entries, err := os.ReadDir(filepath.Join(n.shim.Root, d))
		require.NoError(n.t, err)
		require.Empty(n.t, entries)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}
