package testbed

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//go:embed holder.sh
var holderScript string

// patience bounds every wait of the testbed. It is generous: it decides only
// how late a failure is seen, never whether a test passes.
const patience = time.Minute

// Node is one machine under test. Its methods fail the test on errors of the
// testbed itself; they must be called from the test's goroutine, but for Try,
// Cmd and the methods said to be safe elsewhere.
type Node struct {
	// Dir is the node's folder, at the same path inside and outside.
	Dir string
	// OVS is the node's Open vSwitch; nil on a node made by Bare.
	OVS *OVS

	t      testing.TB
	holder *holder

	mu      sync.Mutex
	started []*Process
	pods    map[string]*Pod
	outside *Outside
	site    *Site
	agents  int
}

// holder keeps a namespace alive; the pipe is its lifeline.
type holder struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// New makes a node with Open vSwitch running and no bridge.
func New(t testing.TB) *Node {
	t.Helper()
	n := Bare(t)
	n.OVS = newOVS(n)
	n.OVS.start()
	return n
}

// Bare makes a node without Open vSwitch.
func Bare(t testing.TB) *Node {
	t.Helper()
	// Not t.TempDir: a test's name makes paths too long for sockets (108 bytes).
	dir, err := os.MkdirTemp("", "fl")
	require.NoError(t, err)
	n := &Node{Dir: dir, t: t, pods: map[string]*Pod{}}
	for _, d := range []string{"upper", "disk/ovs", "disk/objects", "run", "cgroup", "fail", "log"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	t.Cleanup(n.close)
	n.boot()
	return n
}

// boot starts the namespaces with a new boot id.
func (n *Node) boot() {
	n.t.Helper()
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(filepath.Join(n.Dir, "boot_id"), id, 0o444))
	plugins := pluginDir(n.t)
	n.holder, err = hold(syscall.CLONE_NEWNET|syscall.CLONE_NEWNS, "sh", "-c", holderScript, "testbed", n.Dir, plugins)
	require.NoError(n.t, err, "make the node's namespaces (needs root, overlayfs)")
}

// hold starts a process in new namespaces and waits until it says ready.
func hold(flags uintptr, argv ...string) (*holder, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: flags, Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	h := &holder{cmd: cmd, pipe: pipe}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "ready\n" {
		h.end()
		return nil, fmt.Errorf("holder said %q: %s: %w", line, stderr.String(), err)
	}
	return h, nil
}

// end kills the holder; its namespaces go when the last process in them goes.
func (h *holder) end() {
	_ = h.cmd.Process.Kill()
	_ = h.pipe.Close()
	_ = h.cmd.Wait()
}

func (h *holder) pid() int { return h.cmd.Process.Pid }

// proc is a path below the holder's /proc folder, on this machine.
func (h *holder) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(h.pid()), name)
}

// Path is where this process finds a path of the node. It changes with a
// reboot; sockets and namespaces can be opened through it.
func (n *Node) Path(name string) string { return n.holder.proc("root" + name) }

// NetnsPath names the node's own network namespace for this process.
func (n *Node) NetnsPath() string { return n.holder.proc("ns/net") }

// BootID is the boot id that processes of the node read.
func (n *Node) BootID() string {
	n.t.Helper()
	return strings.TrimSpace(n.Run("cat", "/proc/sys/kernel/random/boot_id"))
}

// Objects is the folder of YAML that the agent watches (--objects).
func (n *Node) Objects() string { return filepath.Join(n.Dir, "disk/objects") }

// WriteObjects puts one YAML file into Objects, by rename.
func (n *Node) WriteObjects(name, yaml string) {
	n.t.Helper()
	tmp := filepath.Join(n.Dir, "disk", name+".tmp")
	require.NoError(n.t, os.WriteFile(tmp, []byte(yaml), 0o600))
	require.NoError(n.t, os.Rename(tmp, filepath.Join(n.Objects(), name)))
}

// Cmd prepares a command that runs in the node's namespaces. Safe in any
// goroutine. The process that starts is the command itself: its pid is real.
func (n *Node) Cmd(ctx context.Context, argv ...string) *exec.Cmd {
	return n.enter(ctx, n.NetnsPath(), argv...)
}

// enter runs argv with the node's files and the given network namespace.
func (n *Node) enter(ctx context.Context, netns string, argv ...string) *exec.Cmd {
	args := append([]string{"--mount=" + n.holder.proc("ns/mnt"), "--net=" + netns, "--"}, argv...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second // a busy machine may take seconds to deliver the end of an output
	return cmd
}

// Run runs a command in the node and returns its standard output.
func (n *Node) Run(argv ...string) string {
	n.t.Helper()
	out, err := n.Try(argv...)
	require.NoError(n.t, err)
	return out
}

// Try is Run for commands that may fail, and for any goroutine; the error
// holds standard error.
func (n *Node) Try(argv ...string) (string, error) {
	return output(n.NetnsPath(), n, argv)
}

// output runs argv to its end, at most patience.
func output(netns string, n *Node, argv []string) (string, error) {
	// Not t.Context: cleanups run commands too.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := n.enter(ctx, netns, argv...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s%s", strings.Join(argv, " "), err, exit.Stderr, out)
	}
	return string(out), err
}

// Reboot makes the node lose all that a machine loses: processes, namespaces,
// links, /run. The disk stays (/var/lib/fairlead, /var/lib/cni, /etc/cni,
// conf.db). The boot id is new, Open vSwitch, the world outside and the underlay
// are up again, the agent and the pods are not: old Pods must not be used any
// more.
func (n *Node) Reboot() {
	n.t.Helper()
	n.killAll()
	n.holder.end()
	run := filepath.Join(n.Dir, "run")
	require.NoError(n.t, os.RemoveAll(run))
	require.NoError(n.t, os.Mkdir(run, 0o755))
	n.mu.Lock()
	n.pods = map[string]*Pod{}
	n.mu.Unlock()
	n.boot()
	if n.outside != nil { // the kernel finds NICs before any service starts
		n.outside.join()
	}
	if n.OVS != nil {
		n.OVS.start()
	}
	if n.site != nil {
		n.site.join()
	}
}
