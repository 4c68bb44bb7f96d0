package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/fairlead/fairlead/internal/testbed"
	"github.com/fairlead/fairlead/internal/testbed/kube/image"
)

// containerdSocket is where containerd serves CRI in a node.
const containerdSocket = "/run/containerd/containerd.sock"

// ContainerdVersion is one of the versions that tests run with.
type ContainerdVersion string

// The versions. What nodes have at the least is Debian 12's.
const (
	Containerd16 ContainerdVersion = "1.6" // Debian's package
	Containerd17 ContainerdVersion = "1.7"
	Containerd2  ContainerdVersion = "2"
)

// program finds one of containerd's, which lie in a folder of their own.
func (v ContainerdVersion) program(name string) (string, error) {
	switch v {
	case Containerd16:
		return filepath.Join("/usr/bin", name), nil
	case Containerd17:
		return program(filepath.Join("containerd17", name))
	}
	return program(name)
}

// config is the text of its configuration, which 2.0 has changed.
func (v ContainerdVersion) config() string {
	if v == Containerd2 {
		return containerdConfig
	}
	return containerd1Config
}

// Containerd is one in a testbed node, with its CRI plugin and the images that
// every node has. It is asked as CRI; not through the code under test.
type Containerd struct {
	cri.RuntimeServiceClient

	t      testing.TB
	v      ContainerdVersion
	n      *testbed.Node
	host   string   // the name that pods with the node's network find; "" is the machine's
	images []string // NodeOptions.Images
	conn   *grpc.ClientConn
	proc   *process // nil before the first Start
}

// NewContainerd starts nothing yet. It is stopped when the test ends.
func NewContainerd(t testing.TB, n *testbed.Node) *Containerd {
	t.Helper()
	return NewContainerdOf(t, n, Containerd2)
}

// NewContainerdOf is NewContainerd of a version.
func NewContainerdOf(t testing.TB, n *testbed.Node, v ContainerdVersion) *Containerd {
	t.Helper()
	snapshotter, err := snapshotterOf(n.Dir)
	require.NoError(t, err)
	c := &Containerd{t: t, n: n, v: v}
	fill := strings.NewReplacer("@PAUSE@", Pause, "@SNAPSHOTTER@", snapshotter)
	require.NoError(t, os.WriteFile(c.config(), []byte(fill.Replace(v.config())), 0o600))
	t.Cleanup(c.close)
	return c
}

func (c *Containerd) config() string { return filepath.Join(c.n.Dir, "containerd.toml") }

// UnderSystemd has it leave cgroups to systemd from its next Start on, as nodes
// made by kubeadm do.
func (c *Containerd) UnderSystemd() {
	c.t.Helper()
	text, err := os.ReadFile(c.config())
	require.NoError(c.t, err)
	const is, will = "SystemdCgroup = false", "SystemdCgroup = true"
	require.Contains(c.t, string(text), is)
	require.NoError(c.t, os.WriteFile(c.config(), []byte(strings.Replace(string(text), is, will, 1)), 0o600))
}

// snapshotterOf is overlayfs, unless the folder lies on one itself, on which the
// kernel stacks no other for writing.
func snapshotterOf(dir string) (string, error) {
	const overlayMagic = 0x794c7630 // statfs(2)
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return "", fmt.Errorf("statfs %s: %w", dir, err)
	}
	if st.Type == overlayMagic {
		return "native", nil
	}
	return "overlayfs", nil
}

// Start starts containerd, for the first time, after Kill or Stop, or after a
// reboot of the node; waits until it answers; and gives it the images, unless it
// has them.
func (c *Containerd) Start() {
	c.t.Helper()
	// What a reboot keeps. Not below the node's overlays: containerd stacks its own.
	for _, d := range []string{"/var/lib/containerd", "/var/log"} {
		c.n.Run("sh", "-c", `mkdir -p "$1" "$2"; mountpoint -q "$1" || mount --bind "$2" "$1"`, "disk", d, filepath.Join(c.n.Dir, "disk", d))
	}
	bin, err := c.v.program("containerd")
	require.NoError(c.t, err)
	argv := []string{bin, "--config=" + c.config()}
	if c.host != "" {
		argv = append([]string{"unshare", "--uts", "--", "sh", "-c", `hostname "$0" && exec "$@"`, c.host}, argv...)
	}
	c.proc = daemon(c.t, c.n, bin, argv...)
	c.disconnect()
	// A connection of its own: that of an earlier start may be in the middle of a pause.
	c.conn, err = grpc.NewClient("unix://"+filepath.Join(c.n.Dir, containerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(c.t, err)
	c.RuntimeServiceClient = cri.NewRuntimeServiceClient(c.conn)
	require.NoError(c.t, until(context.Background(), "containerd", func() error {
		if err := c.proc.ended(); err != nil {
			return err
		}
		ctx, cancel := limited()
		defer cancel()
		return engine{c}.ready(ctx)
	}))
	c.load()
}

// load gives it the images.
func (c *Containerd) load() {
	c.t.Helper()
	if have := c.ctr("images", "ls", "-q"); strings.Contains(have, Pause) && strings.Contains(have, Busybox) {
		return
	}
	program, err := program("pause")
	require.NoError(c.t, err)
	pause, err := image.Pause(program)
	require.NoError(c.t, err)
	busybox, err := image.Busybox()
	require.NoError(c.t, err)
	for _, tar := range [][]byte{pause, busybox} {
		file := filepath.Join(c.n.Dir, "image.tar")
		require.NoError(c.t, os.WriteFile(file, tar, 0o600))
		c.ctr("images", "import", file)
		require.NoError(c.t, os.Remove(file))
	}
	for _, file := range c.images {
		c.ctr("images", "import", file)
	}
}

// ctr runs containerd's own client in the namespace of CRI's images.
func (c *Containerd) ctr(args ...string) string {
	c.t.Helper()
	bin, err := c.v.program("ctr")
	require.NoError(c.t, err)
	return c.n.Run(append([]string{bin, "--namespace=k8s.io"}, args...)...)
}

// Push gives an image to a registry without TLS by another name, which containerd
// does not keep.
func (c *Containerd) Push(image, name, user, password string) {
	c.t.Helper()
	c.ctr("images", "tag", image, name)
	c.ctr("images", "push", "--plain-http", "--user", user+":"+password, name)
	c.ctr("images", "rm", name)
}

// Kill kills it by SIGKILL; the pods' processes go on.
func (c *Containerd) Kill() {
	if c.proc != nil {
		c.proc.kill()
	}
}

// Stop ends it in order; one that has ended, or was never started, is nothing.
func (c *Containerd) Stop() error {
	c.disconnect()
	if c.proc == nil {
		return nil
	}
	return c.proc.stop()
}

func (c *Containerd) close() {
	c.t.Helper()
	require.NoError(c.t, c.Stop())
	if c.t.Failed() && c.proc != nil {
		c.t.Logf("containerd:\n%s", c.proc.tail())
	}
}

func (c *Containerd) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close() // an error: it is closed
		c.conn = nil
	}
}
