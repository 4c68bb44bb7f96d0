package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed/kube/cgroup"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// engine is a container runtime on a node, asked through CRI. Its containers,
// and what stands beside them without being anybody's child (shims), are in
// cgroups that are emptied and removed when the benchmark ends, however it ends.
type engine struct {
	node    *node
	cgroups *cgroup.Group
	procs   string // file that takes a daemon into the cgroups
	main    *daemon
	conn    *grpc.ClientConn
	cri.RuntimeServiceClient
}

// Where the engines' sockets and metrics are, in a node.
const (
	containerdSocket  = "/run/containerd/containerd.sock"
	dockerSocket      = "/run/docker.sock"
	shimSocket        = "/run/fairlead/cri.sock"
	containerdMetrics = "127.0.0.1:1338"
)

// newEngine makes the cgroups on a node, and nothing that runs.
func newEngine(n *node) (*engine, error) {
	e := &engine{node: n}
	var err error
	if e.cgroups, err = cgroup.New(fmt.Sprintf("flb-%d-%s", os.Getpid(), filepath.Base(n.dir))); err != nil {
		return nil, err
	}
	for _, dir := range e.cgroups.Paths {
		if _, err := os.Stat(filepath.Join(dir, "cpuset.cpus")); err == nil && len(e.cgroups.Paths) > 1 {
			continue // v1: one that admits nobody until it is configured
		}
		// One hierarchy is enough to be found in.
		e.procs = filepath.Join(dir, "daemons", "cgroup.procs")
		err := os.Mkdir(filepath.Dir(e.procs), 0o755)
		if err == nil {
			return e, nil
		}
		return nil, errors.Join(err, e.cgroups.Remove())
	}
	return nil, errors.Join(errors.New("no cgroup for the daemons"), e.cgroups.Remove())
}

// start runs a daemon in the cgroups, with its children.
func (e *engine) start(name string, argv ...string) (*daemon, error) {
	script := `echo $$ >"$0" && exec "$@"`
	return e.node.startAs(name, append([]string{"sh", "-c", script, e.procs}, argv...)...)
}

// close ends all that runs on the node, and the node. Nothing is done in order:
// no pod is needed any more.
func (e *engine) close() error {
	var err error
	if e.conn != nil {
		err = e.conn.Close()
	}
	for _, d := range e.node.daemons { // before the cgroups: they would start again what ends
		d.kill()
	}
	return errors.Join(err, e.cgroups.Remove(), e.node.close())
}

// connect waits until the runtime answers on a socket of the node.
func (e *engine) connect(socket string, d *daemon) (err error) {
	e.main = d
	dial := func(context.Context, string) (net.Conn, error) { return e.node.dial("unix", socket) }
	e.conn, err = grpc.NewClient("passthrough:///"+socket, grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	e.RuntimeServiceClient = cri.NewRuntimeServiceClient(e.conn)
	return d.await(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s, err := e.Status(ctx, &cri.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		for _, c := range s.GetStatus().GetConditions() {
			needed := c.GetType() == cri.RuntimeReady || c.GetType() == cri.NetworkReady
			if needed && !c.GetStatus() {
				return fmt.Errorf("%s: %s", c.GetType(), c.GetMessage())
			}
		}
		return nil
	})
}

// containerdConfig has a second runtime, whose pods have the network of another
// folder. A score may not be lowered everywhere.
const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "` + containerdSocket + `"
[metrics]
  address = "` + containerdMetrics + `"
[debug]
  level = "error"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "@SNAPSHOTTER@"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "` + image.PauseName + `"
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["@BIN@"]
    conf_dir = "@CONF@"
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.` + plainHandler + `]
      runtime_type = "io.containerd.runc.v2"
      cni_conf_dir = "@CONF@/` + plainHandler + `"
[plugins.'io.containerd.internal.v1.opt']
  path = "/var/lib/containerd/opt"
[plugins.'io.containerd.nri.v1.nri']
  disable = true
`

// plainHandler is the name of the second runtime.
const plainHandler = "plain"

// containerd runs the one of `make kube`, with the plugins of a folder and the
// given network, and gives it the image of a pod.
func (b *bench) containerd(n *node, plugins, conf, plain string) (*engine, error) {
	e, err := newEngine(n)
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	if err := b.startContainerd(e, plugins, conf, plain); err != nil {
		return nil, errors.Join(fmt.Errorf("containerd: %w", err), e.close())
	}
	return e, nil
}

func (b *bench) startContainerd(e *engine, plugins, conf, plain string) error {
	dir := filepath.Join(e.node.dir, "net.d")
	err := os.MkdirAll(filepath.Join(dir, plainHandler), 0o755)
	if conf != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "10-bench.conflist"), []byte(conf), 0o600))
	}
	if plain == "" {
		plain = conf
	}
	snapshotter, err2 := stacking(e.node.dir, "overlayfs", "native")
	config := filepath.Join(e.node.dir, "containerd.toml")
	text := strings.NewReplacer("@SNAPSHOTTER@", snapshotter, "@BIN@", plugins, "@CONF@", dir).Replace(containerdConfig)
	err = errors.Join(err, err2, os.WriteFile(config, []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, plainHandler, "10-bench.conflist"), []byte(plain), 0o600))
	if err != nil {
		return err
	}
	// The shim is found beside it.
	d, err := e.start("containerd", "env", "PATH="+filepath.Dir(b.kube("containerd"))+":"+os.Getenv("PATH"), b.kube("containerd"), "--config="+config)
	if err != nil {
		return err
	}
	tar, err := image.Pause(b.kube("pause"))
	archive := filepath.Join(e.node.dir, "pause.tar")
	if err := errors.Join(err, os.WriteFile(archive, tar, 0o600)); err != nil {
		return err
	}
	if err := d.await(func() error {
		return e.node.command(b.kube("ctr"), "--namespace=k8s.io", "images", "import", archive)
	}); err != nil {
		return err
	}
	if conf == "" { // it is not ready before somebody writes one
		return nil
	}
	return e.connect(containerdSocket, d)
}

// stacking is how images are kept in a folder: the kernel stacks no overlay on
// an overlay for writing.
func stacking(dir, overlay, other string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", fmt.Errorf("statfs %s: %w", dir, err)
	}
	if st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return other, nil
	}
	return overlay, nil
}

// client asks HTTP servers of the node; an address that is a path is a unix
// socket's.
func (n *node) client(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
		if socket != "" {
			network, addr = "unix", socket
		}
		return n.dial(network, addr)
	}}}
}
