package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/testbed"
)

// ociRuntime is runc for a machine without CAP_SYS_RESOURCE: Docker wants a
// lower OOM score for what it starts, which the kernel refuses there.
const ociRuntime = `#!/bin/bash
previous=
for arg in "$@"; do
	if [ "$previous" = --bundle ]; then
		sed -i -E 's/"oomScoreAdj":-[0-9]+/"oomScoreAdj":0/' "$arg/config.json"
	fi
	previous=$arg
done
exec runc "$@"
`

// dockerEngine is a Docker Engine in a node's namespaces.
type dockerEngine struct {
	t    *testing.T
	n    *testbed.Node
	host string
}

// startDocker runs dockerd, and the containerd that it starts, in the node, and
// imports an image of the machine's static busybox.
func startDocker(t *testing.T, n *testbed.Node) dockerEngine {
	t.Helper()
	dir := filepath.Join(n.Dir, "dk")
	image := filepath.Join(dir, "image")
	require.NoError(t, os.MkdirAll(image, 0o700))
	runtime := filepath.Join(dir, "runtime")
	require.NoError(t, os.WriteFile(runtime, []byte(ociRuntime), 0o700))
	e := dockerEngine{t, n, "unix://" + dir + "/d.sock"}
	var log bytes.Buffer
	d := n.Cmd(context.WithoutCancel(t.Context()), "dockerd", "--host="+e.host, "--bridge=none", "--iptables=false",
		"--ip-forward=false", "--storage-driver=vfs", "--data-root="+dir+"/data", "--exec-root="+dir+"/exec",
		"--pidfile="+dir+"/pid", "--log-level=error", "--add-runtime=own="+runtime, "--default-runtime=own")
	d.Stdout, d.Stderr = &log, &log
	require.NoError(t, d.Start())
	t.Cleanup(func() {
		_ = d.Process.Signal(syscall.SIGTERM)
		_ = d.Wait() // it says what it was ended by
		if t.Failed() {
			t.Logf("dockerd: %s", &log)
		}
	})
	eventually(t, func() string {
		if _, err := n.Try("docker", "--host="+e.host, "version"); err != nil {
			return err.Error()
		}
		return ""
	})
	busybox, err := os.ReadFile("/bin/busybox")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(image, "busybox"), busybox, 0o755))
	require.NoError(t, exec.Command("tar", "-C", image, "-cf", dir+"/image.tar", ".").Run())
	e.docker("import", dir+"/image.tar", "busybox")
	return e
}

// docker runs the command line client.
func (e dockerEngine) docker(args ...string) string {
	e.t.Helper()
	return strings.TrimSpace(e.n.Run(append([]string{"docker", "--host=" + e.host}, args...)...))
}

// sleeper starts a container without a network.
func (e dockerEngine) sleeper(name string) {
	e.t.Helper()
	e.docker("run", "-d", "--name", name, "--net=none", "--stop-timeout=0", "busybox", "/busybox", "sleep", "3600")
	e.t.Cleanup(func() { _, _ = e.n.Try("docker", "--host="+e.host, "rm", "-f", name) }) // may be gone already
}

func (e dockerEngine) in(container string) inContainer { return inContainer{e, container} }

// inContainer is a container's network namespace.
type inContainer struct {
	e    dockerEngine
	name string
}

// Run runs a command there, with the node's files.
func (c inContainer) Run(argv ...string) string {
	c.e.t.Helper()
	pid := c.e.docker("inspect", "--format={{.State.Pid}}", c.name)
	return c.e.n.Run(append([]string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--"}, argv...)...)
}

// TestDockerContainer: a container that Docker left without a network gets one
// by `fairlead attach`, as the README shows.
func TestDockerContainer(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	e := startDocker(t, n)
	e.sleeper("web")
	p := n.NewPod("p")
	p.CNI("ADD", ownConf).Must()
	peer := bare(addresses(t, p, "eth0")[0])
	before := n.Inventory()
	web := e.in("web")
	require.Equal(t, []string{"lo"}, linkNames(t, web))

	n.Fairlead("attach", "--container", "web", "--docker-host", e.host)
	require.Equal(t, []string{"eth0", "lo"}, linkNames(t, web))
	addr := addresses(t, web, "eth0")[0]
	web.Run("ping", "-n", "-c", "1", "-w", "3", peer)
	require.NoError(t, p.Ping(bare(addr)))
	require.Contains(t, e.docker("exec", "web", "/busybox", "ip", "addr", "show", "eth0"), addr, "seen from inside")
	n.Fairlead("check", "--container", "web", "--docker-host", e.host)
	require.Contains(t, n.Fairlead("get", "pods"), "web")
	_, err := n.TryFairlead("attach", "--container", "web", "--docker-host", e.host)
	require.ErrorContains(t, err, "already")

	n.Fairlead("detach", "--container", "web", "--docker-host", e.host)
	require.Equal(t, []string{"lo"}, linkNames(t, web))
	n.RequireNoLeaks(before)

	// A container that is gone, and that Docker does not know any more.
	n.Fairlead("attach", "--container", "web", "--docker-host", e.host)
	e.docker("rm", "-f", "web")
	n.Fairlead("detach", "--container", "web", "--docker-host", e.host)
	n.RequireNoLeaks(before)
	p.CNI("DEL", ownConf).Must()
}
