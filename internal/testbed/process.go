package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/require"
)

// Process is a daemon that the testbed started in a node. It is known by its
// pid alone; its output is in a file, so that children that outlive it block
// nobody.
type Process struct {
	Name string
	Log  string // path of its standard output and error

	node *Node
	cmd  *exec.Cmd
	done chan struct{} // closed once it was reaped
}

// Start runs argv as a daemon of the node. Its name is that of its log; what
// outlives the test is killed with the node. A program of ours passes its crash
// points in the node's list (Crash, CrashTrace).
func (n *Node) Start(name string, argv ...string) *Process {
	n.t.Helper()
	p := &Process{Name: name, Log: filepath.Join(n.Dir, "log", name), node: n, done: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(n.t, err)
	defer log.Close()
	// Its life is not that of a context: tests end it on purpose.
	p.cmd = n.Cmd(context.Background(), argv...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), "FAIRLEAD_FAIL_DIR="+n.failDir())
	require.NoError(n.t, p.cmd.Start(), "start %s", name)
	n.mu.Lock()
	n.started = append(n.started, p)
	n.mu.Unlock()
	go func() {
		_ = p.cmd.Wait() // ProcessState holds the outcome
		close(p.done)
	}()
	return p
}

// PID is the process id, also after its end.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running tells that the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process has ended and was reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends this very process with SIGKILL, not its children, and waits until
// it is gone. Killing a dead one is nothing.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Stop sends SIGTERM and waits for the end, which must come with status 0.
func (p *Process) Stop() {
	p.node.t.Helper()
	require.NoError(p.node.t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(p.node.t, p.Wait(), "%s ends badly on SIGTERM; its log: %s", p.Name, p.tail())
}

// Wait waits for the process to end by itself and tells how: nil for status 0.
func (p *Process) Wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("%s (pid %d) still runs: %w", p.Name, p.PID(), ctx.Err())
	}
	if s := p.cmd.ProcessState; !s.Success() {
		return fmt.Errorf("%s: %s", p.Name, s)
	}
	return nil
}

// Killed tells that the process was ended by SIGKILL, as a crash point does.
func (p *Process) Killed() bool {
	if p.Running() {
		return false
	}
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
}

// Watched is the pid of what this process watches over (--monitor), its one child; 0 when
// that does not run, and of a process that watches over nothing.
func (p *Process) Watched() int {
	p.node.t.Helper()
	if !slices.Contains(p.cmd.Args, "--monitor") || !p.Running() {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.PID()))
	require.NoError(p.node.t, err)
	child := strings.TrimSpace(string(b))
	if child == "" { // it has ended by a fault of its own, a moment ago
		return 0
	}
	pid, err := strconv.Atoi(child)
	require.NoError(p.node.t, err, "%s: %s", p.Name, p.tail())
	return pid
}

// KillWatched ends what this process watches over with SIGKILL. It ends then too.
func (p *Process) KillWatched() {
	p.node.t.Helper()
	if pid := p.Watched(); pid != 0 {
		require.NoError(p.node.t, syscall.Kill(pid, syscall.SIGKILL))
		_ = p.Wait()
	}
	p.Kill() // nothing, unless it was about to start another
}

// tail is the end of the log.
func (p *Process) tail() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	const most = 16 << 10 // bytes
	if len(b) > most {
		b = b[len(b)-most:]
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	return string(b)
}

// resident is a process found in a node's namespaces.
type resident struct {
	pid  int
	args string
}

func (r resident) String() string { return fmt.Sprintf("pid %d: %s", r.pid, r.args) }

// residents finds every process that lives in the node: in its mount
// namespace, or in the network namespace of the node or of one of its pods.
// Zombies have no namespaces any more; the holder does not count.
func (n *Node) residents() []resident {
	homes := []string{link(n.holder.proc("ns/mnt")), link(n.holder.proc("ns/net"))}
	for _, name := range n.NetnsNames() {
		if ino, ok := inode(n.Path("/run/netns/" + name)); ok {
			homes = append(homes, fmt.Sprintf("net:[%d]", ino))
		}
	}
	var out []resident
	for _, pid := range pidsIn(homes...) {
		if pid == n.holder.pid() || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // gone meanwhile: no matter
		out = append(out, resident{pid, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))})
	}
	return out
}

// pidsIn lists the processes whose mount or network namespace is one of homes.
func pidsIn(homes ...string) []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is good
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err == nil && (lives(d+"/ns/mnt", homes) || lives(d+"/ns/net", homes)) {
			out = append(out, pid)
		}
	}
	return out
}

// lives tells that a namespace link names one of the homes.
func lives(name string, homes []string) bool {
	s := link(name)
	return s != "" && slices.Contains(homes, s)
}

// link reads a namespace link; "" where there is none (a zombie, a dead one).
func link(name string) string {
	s, err := os.Readlink(name)
	if err != nil {
		return ""
	}
	return s
}

func inode(name string) (uint64, bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil {
		return 0, false
	}
	return st.Ino, true
}

// NetnsNames lists the node's named network namespaces.
func (n *Node) NetnsNames() []string {
	entries, err := os.ReadDir(n.Path("/run/netns"))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// killAll kills every process of the node by pid. It repeats until none is
// left, for a process may fork while it is hunted.
func (n *Node) killAll() {
	n.mu.Lock()
	started := slices.Clone(n.started)
	n.mu.Unlock()
	for _, p := range started {
		p.Kill()
	}
	for range 1000 {
		left := n.residents()
		if len(left) == 0 {
			return
		}
		for _, r := range left {
			_ = syscall.Kill(r.pid, syscall.SIGKILL)
		}
		pause()
	}
	n.t.Errorf("cannot be killed: %v", n.residents())
}
