// Package docker runs a Docker Engine of its own in a testbed node: dockerd and
// the containerd that it starts, with their folders in the node's, cgroups of
// their own, and images made from programs of this machine. It can be killed and
// started again. When the test ends, containers, processes and cgroups go, and
// what is left fails the test.
package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"

	_ "embed"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube"
	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// Images that every engine has.
const (
	Busybox = image.BusyboxName
	Pause   = image.PauseName
)

// patience bounds every wait. It decides how late a failure is seen, never
// whether a test passes.
const patience = time.Minute

// ociRuntime is runc for a machine without CAP_SYS_RESOURCE.
//
//go:embed runtime.sh
var ociRuntime []byte

// Engine is a Docker Engine.
type Engine struct {
	*client.Client
	// Host is the socket, as --docker-host wants it; the path is the same inside
	// the node and outside.
	Host string
	// Cgroup is the parent of all that the engine starts: "/name".
	Cgroup string

	t       testing.TB
	n       *testbed.Node
	dir     string
	flags   []string
	cgroups *cgroup.Group
	// Both end with the test; only dockerd is ever killed.
	containerd *daemon
	daemon     *daemon
}

// daemon is a child of the test in the node's namespaces.
type daemon struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{}
}

// Start runs an engine without a network of its own, as for pods; flags are
// dockerd's, in addition.
func Start(t testing.TB, n *testbed.Node, flags ...string) *Engine {
	t.Helper()
	dir := filepath.Join(n.Dir, "dk")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "runtime"), ociRuntime, 0o700))
	e := &Engine{Host: "unix://" + dir + "/d.sock", t: t, n: n, dir: dir, flags: flags}
	var err error
	e.cgroups, err = cgroup.New("fld-" + filepath.Base(n.Dir))
	require.NoError(t, err)
	e.Cgroup = e.cgroups.Name
	e.Client, err = client.New(client.WithHost(e.Host))
	require.NoError(t, err)
	t.Cleanup(e.close)
	e.startContainerd()
	e.Run()
	e.load()
	return e
}

// containerdConfig is version 2 of the form: Debian 12's containerd is 1.6.
const containerdConfig = `version = 2
root = "@DIR@/containerd"
state = "@DIR@/containerd-run"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "@DIR@/c.sock"
[debug]
  level = "error"
`

// startContainerd runs one that is not dockerd's child: it would hinder the
// next dockerd after a kill.
func (e *Engine) startContainerd() {
	e.t.Helper()
	config := filepath.Join(e.dir, "containerd.toml")
	require.NoError(e.t, os.WriteFile(config, []byte(strings.ReplaceAll(containerdConfig, "@DIR@", e.dir)), 0o600))
	e.containerd = start(e.t, e.n, "containerd", "--config="+config)
}

// start runs a daemon in the node.
func start(t testing.TB, n *testbed.Node, argv ...string) *daemon {
	t.Helper()
	// Its life is not that of a context: tests end it on purpose.
	d := &daemon{cmd: n.Cmd(context.Background(), argv...), done: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	require.NoError(t, d.cmd.Start())
	go func() {
		_ = d.cmd.Wait() // ProcessState holds the outcome
		close(d.done)
	}()
	return d
}

// end asks a daemon to end and waits.
func (d *daemon) end() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	<-d.done
}

// Run starts the daemon, for the first time or after Kill.
func (e *Engine) Run() {
	e.t.Helper()
	args := append([]string{
		"dockerd", "--host=" + e.Host, "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false",
		"--storage-driver=" + e.storage(), "--data-root=" + e.dir + "/data", "--exec-root=" + e.dir + "/exec", "--pidfile=" + e.dir + "/pid",
		"--containerd=" + e.dir + "/c.sock", "--log-level=error", "--live-restore", "--cgroup-parent=" + e.Cgroup,
		"--add-runtime=noadj=" + e.dir + "/runtime", "--default-runtime=noadj",
	}, e.flags...)
	d := start(e.t, e.n, args...)
	e.daemon = d
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for {
		_, err := e.Ping(ctx, client.PingOptions{})
		if err == nil {
			return
		}
		select {
		case <-d.done:
			require.Failf(e.t, "dockerd ended", "%s", &d.log)
		case <-ctx.Done():
			require.NoError(e.t, err, "dockerd does not answer")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// storage is the driver for the node's folder: the kernel stacks no overlay on an
// overlay for writing.
func (e *Engine) storage() string {
	const overlayMagic = 0x794c7630 // statfs(2)
	var st syscall.Statfs_t
	require.NoError(e.t, syscall.Statfs(e.dir, &st))
	if st.Type == overlayMagic {
		return "vfs"
	}
	return "overlay2"
}

// Kill kills dockerd by SIGKILL. Containers live on.
func (e *Engine) Kill() {
	_ = e.daemon.cmd.Process.Kill()
	<-e.daemon.done
}

// load gives the engine its images.
func (e *Engine) load() {
	e.t.Helper()
	programs, err := kube.Programs()
	require.NoError(e.t, err)
	pause, err := image.Pause(filepath.Join(programs, "pause"))
	require.NoError(e.t, err, "run: make kube")
	busybox, err := image.Busybox()
	require.NoError(e.t, err)
	for _, tar := range [][]byte{pause, busybox} {
		e.Load(tar)
	}
}

// Load imports an archive in the form of `docker save`.
func (e *Engine) Load(tar []byte) {
	e.t.Helper()
	r, err := e.ImageLoad(context.Background(), bytes.NewReader(tar))
	require.NoError(e.t, err)
	said, err := io.ReadAll(r)
	require.NoError(e.t, err)
	require.NoError(e.t, r.Close())
	require.NotContains(e.t, string(said), "error")
}

// close ends everything and tells what was left.
func (e *Engine) close() {
	e.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	var errs []error
	if e.daemon != nil {
		errs = append(errs, e.removeAll(ctx))
		e.daemon.end()
		if e.t.Failed() {
			e.t.Logf("dockerd:\n%s", &e.daemon.log)
		}
	}
	if e.containerd != nil {
		e.containerd.end()
	}
	if left := e.cgroups.Residents(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("left over in the engine's cgroups: %s", strings.Join(left, "; ")))
	}
	errs = append(errs, e.Client.Close(), e.cgroups.Remove(), e.unmount())
	require.NoError(e.t, errors.Join(errs...), "end of the Docker Engine")
}

// removeAll removes containers that the test left. It says nothing: a test of
// what is left looks itself.
func (e *Engine) removeAll(ctx context.Context) error {
	select {
	case <-e.daemon.done: // the test killed it
		return nil
	default:
	}
	list, err := e.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list.Items {
		_, err := e.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// unmount gives back what a killed engine left mounted below its folder.
func (e *Engine) unmount() error {
	out, err := e.n.Try("sh", "-c", `grep -o " $1/[^ ]*" /proc/self/mounts | sort -r | xargs -r umount -l`, "unmount", e.dir)
	if err != nil {
		return fmt.Errorf("unmount: %s: %w", out, err)
	}
	return nil
}
