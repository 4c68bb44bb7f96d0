package client_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	docker "github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	"github.com/fairlead/fairlead/internal/client"
	"github.com/fairlead/fairlead/internal/core"
	"github.com/fairlead/fairlead/internal/kernel/netns"
)

// runtimeWrapper lets runc work where the machine may not lower an OOM score
// (no CAP_SYS_RESOURCE; testbed.md, 2).
const runtimeWrapper = `#!/bin/bash
args=("$@")
for i in "${!args[@]}"; do
	if [ "${args[i]}" = --bundle ]; then
		sed -i -E 's/"oomScoreAdj":-[0-9]+/"oomScoreAdj":0/' "${args[i+1]}/config.json"
	fi
done
exec runc "$@"
`

// engine is a Docker Engine of the test's own.
type engine struct {
	t    *testing.T
	host string
}

// startEngine runs a private dockerd and loads the image "busybox" from the
// machine's static busybox.
func startEngine(t *testing.T) engine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dkr") // short: socket paths end at 108 bytes
	require.NoError(t, err)
	runtime := filepath.Join(dir, "runtime")
	require.NoError(t, os.WriteFile(runtime, []byte(runtimeWrapper), 0o700))
	e := engine{t, "unix://" + dir + "/d.sock"}
	log := &bytes.Buffer{}
	d := exec.Command("dockerd", "--host="+e.host, "--bridge=none", "--iptables=false", "--ip-forward=false",
		"--storage-driver=vfs", "--data-root="+dir+"/data", "--exec-root="+dir+"/exec", "--pidfile="+dir+"/pid",
		"--add-runtime=own="+runtime, "--default-runtime=own")
	d.Stdout, d.Stderr = log, log
	require.NoError(t, d.Start())
	t.Cleanup(func() {
		_ = d.Process.Signal(syscall.SIGTERM)
		_ = d.Wait()
		if t.Failed() {
			t.Logf("dockerd: %s", log)
		}
		// dockerd's own, which it leaves where the machine's mounts are private.
		_ = syscall.Unmount(dir+"/data", syscall.MNT_DETACH)
		require.NoError(t, os.RemoveAll(dir), "nothing may still be mounted")
	})
	require.Eventually(t, func() bool { return e.command("version").Run() == nil }, 30*time.Second, 50*time.Millisecond)

	root := t.TempDir()
	busybox, err := os.ReadFile("/bin/busybox")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(root, "busybox"), busybox, 0o755))
	tar := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, exec.Command("tar", "-C", root, "-cf", tar, ".").Run())
	e.docker("import", tar, "busybox")
	return e
}

func (e engine) command(args ...string) *exec.Cmd {
	return exec.CommandContext(e.t.Context(), "docker", append([]string{"--host=" + e.host}, args...)...)
}

// docker runs the command line client and gives its output.
func (e engine) docker(args ...string) string {
	e.t.Helper()
	out, err := e.command(args...).CombinedOutput()
	require.NoError(e.t, err, "docker %s: %s", args, out)
	return strings.TrimSpace(string(out))
}

// sleeper starts a container without a network that sleeps until it is removed.
func (e engine) sleeper(name string, options ...string) (id string) {
	e.t.Helper()
	args := append([]string{"run", "-d", "--name", name, "--network", "none", "--stop-timeout", "0"}, options...)
	id = e.docker(append(args, "busybox", "/busybox", "sleep", "3600")...)
	e.t.Cleanup(func() {
		_ = exec.Command("docker", "--host="+e.host, "rm", "-f", name).Run() // may be gone already
	})
	return id
}

func TestDockerContainers(t *testing.T) {
	e := startEngine(t)
	d, err := client.NewDocker(docker.WithHost(e.host))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()

	id := e.sleeper("My_web")
	got, err := d.Container(t.Context(), "My_web")
	require.NoError(t, err)
	require.Equal(t, id, got.Target.Container)
	require.Equal(t, core.Pod{Namespace: "docker", Name: "my-web"}, got.Pod)
	require.Equal(t, "none", got.Mode)
	require.True(t, got.Running)
	ns, err := netns.Open(got.Netns)
	require.NoError(t, err, "the path names a network namespace")
	require.False(t, netns.IsHost(ns))
	require.NoError(t, ns.Close())

	byPrefix, err := d.Container(t.Context(), id[:12])
	require.NoError(t, err)
	require.Equal(t, got, byPrefix)

	e.sleeper("k8s", "--label=io.kubernetes.pod.namespace=ns1", "--label=io.kubernetes.pod.name=web", "--label=io.kubernetes.pod.uid=u1")
	labelled, err := d.Container(t.Context(), "k8s")
	require.NoError(t, err)
	require.Equal(t, core.Pod{Namespace: "ns1", Name: "web", UID: "u1"}, labelled.Pod)

	e.docker("stop", "My_web")
	stopped, err := d.Container(t.Context(), "My_web")
	require.NoError(t, err)
	require.False(t, stopped.Running)
	require.Empty(t, stopped.Netns)

	_, err = d.Container(t.Context(), "nobody")
	require.ErrorIs(t, err, core.ErrNotFound)
}

func TestDockerAway(t *testing.T) {
	d, err := client.NewDocker(docker.WithHost("unix://" + filepath.Join(t.TempDir(), "none.sock")))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = d.Container(ctx, "web")
	require.ErrorIs(t, err, core.ErrUnavailable)
}
